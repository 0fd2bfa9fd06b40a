#!/usr/bin/env bash
# s3proxy 4.1.0 (Maven Central: org.gaul:s3proxy; Java 17) with the provider filesystem-nio2 lets several concurrent
# `PUT` requests with the same `If-Match` replace one version of an object.
#
# Amazon S3 documents that a conditional write succeeds only if the ETag still matches, so that of concurrent requests
# with one ETag exactly one succeeds. s3proxy answers 200 to two or three of 16, now and then. One request at a time is
# right: the second replacement of the same version gets 412. So a compare-and-swap (optimistic locking of a table's
# metadata, a leader election) loses updates that were confirmed.
#
# Seen on 2026-11-27, Linux, two cores:
#   sequential: 200 412
#   round 3: 2 of 16 replacements of one version succeeded, with different ETags
#
# The class path that Maven resolves for 4.1.0 has jackson-annotations 2.18.3, with which the server does not start
# (NoClassDefFoundError: com/fasterxml/jackson/annotation/JsonSerializeAs). The script asks for 2.21.
#
# Needs mvn, java 17 and python3. Exit code 0: seen again. 1: no round of 500 had two winners.
set -euo pipefail

. "$(dirname "$0")/common.bash"

cat >"$place/pom.xml" <<'POM'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>findings</groupId><artifactId>findings</artifactId><version>1</version>
  <dependencies>
    <dependency>
      <groupId>com.fasterxml.jackson.core</groupId><artifactId>jackson-annotations</artifactId><version>2.21</version>
    </dependency>
    <dependency><groupId>org.gaul</groupId><artifactId>s3proxy</artifactId><version>4.1.0</version></dependency>
  </dependencies>
</project>
POM
prepare mvn -q -B -f "$place/pom.xml" dependency:copy-dependencies -DoutputDirectory="$place/classes" \
    -DincludeScope=runtime
mkdir -p "$place/objects/bucket"
cat >"$place/settings" <<SETTINGS
s3proxy.endpoint=http://127.0.0.1:$port
s3proxy.authorization=none
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir=$place/objects
SETTINGS
java -Xmx512m -cp "$place/classes/*" org.gaul.s3proxy.Main --properties "$place/settings" >"$place/server.log" 2>&1 &
server=$!

python3 - "$port" <<'PY'
from client import RIVALS, check_sequential, put, race, started

connection = started()

def unchanged(key):
    return {"If-Match": put(connection, key, b"before\n" * 200)[1]}

headers = unchanged("sequential")
check_sequential(*[put(connection, "sequential", body * 64, headers) for body in (b"1", b"2")])
number, _, winners, _ = race(500, unchanged)
print(f"round {number}: {winners} of {RIVALS} replacements of one version succeeded, with different ETags")
PY
