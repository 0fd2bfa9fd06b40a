#!/usr/bin/env bash
# Adobe S3Mock 5.2.0 (Maven Central: com.adobe.testing:s3mock, classifier exec; Java 17) lets several concurrent
# `PUT` requests with `If-None-Match: *` create the same object.
#
# Amazon S3 documents that exactly one of them succeeds and the others get 412 or 409. S3Mock answers 200 to several
# of 16 concurrent requests for one key, each with an ETag of its own. Of the bodies that it confirmed one is kept.
# One request at a time is right: the second creation gets 412. So a program that uses the condition as a lock (a client
# library in its tests, a job queue, a database) sees two owners.
#
# Seen on 2026-11-27, Linux, two cores:
#   sequential: 200 412
#   round 1: 2 of 16 creations of one key succeeded, with different ETags; the object holds one of the bodies
#
# Needs mvn, java 17 and python3. Exit code 0: seen again. 1: no round of 200 had two winners.
set -euo pipefail

. "$(dirname "$0")/common.bash"

prepare mvn -q -B dependency:copy -Dartifact=com.adobe.testing:s3mock:5.2.0:jar:exec -DoutputDirectory="$place"
java -Xmx512m -jar "$place/s3mock-5.2.0-exec.jar" --http.port="$port" --server.port=0 \
    --com.adobe.testing.s3mock.store.initialBuckets=bucket >"$place/server.log" 2>&1 &
server=$!

python3 - "$port" <<'PY'
from client import RIVALS, check_sequential, get, put, race, started

connection, absent = started(), {"If-None-Match": "*"}
check_sequential(*[put(connection, "sequential", body * 64, absent) for body in (b"1", b"2")])
number, key, winners, bodies = race(200, lambda key: absent)
kept = "one of the bodies" if get(connection, key) in bodies else "none of the bodies"
print(f"round {number}: {winners} of {RIVALS} creations of one key succeeded, with different ETags; "
      f"the object holds {kept}")
PY
