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

place=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$place"' EXIT

mvn -q -B dependency:copy -Dartifact=com.adobe.testing:s3mock:5.2.0:jar:exec -DoutputDirectory="$place" >"$place/mvn.log" 2>&1 ||
    { cat "$place/mvn.log"; exit 2; }
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
java -Xmx512m -jar "$place/s3mock-5.2.0-exec.jar" --http.port="$port" --server.port=0 \
    --com.adobe.testing.s3mock.store.initialBuckets=bucket >"$place/server.log" 2>&1 &
server=$!

python3 - "$port" <<'PY'
import http.client, sys, threading, time

PORT, RIVALS, ROUNDS = int(sys.argv[1]), 16, 200

def connect():
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    connection.connect()
    return connection

def put(connection, key, body):
    connection.request("PUT", f"/bucket/{key}", body, {"If-None-Match": "*"})
    answer = connection.getresponse()
    answer.read()
    return answer.status, answer.getheader("ETag")

for _ in range(240):
    try:
        connection = connect()
        connection.request("GET", "/bucket?list-type=2")
        answer = connection.getresponse()
        answer.read()
        if answer.status == 200:
            break
    except OSError:
        pass
    time.sleep(0.5)
else:
    sys.exit("the server does not start")

first, second = put(connection, "sequential", b"1" * 64), put(connection, "sequential", b"2" * 64)
print("sequential:", first[0], second[0])
if (first[0], second[0]) != (200, 412):
    sys.exit("changed: one request at a time is answered in another way")

connections = [connect() for _ in range(RIVALS)]
for number in range(1, ROUNDS + 1):
    key, barrier, answers = f"race-{number}", threading.Barrier(RIVALS), [None] * RIVALS
    bodies = [b"body of rival %02d\n" % rival * 200 for rival in range(RIVALS)]

    def rival(at):
        barrier.wait()
        answers[at] = put(connections[at], key, bodies[at])

    threads = [threading.Thread(target=rival, args=(at,)) for at in range(RIVALS)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    winners = [at for at in range(RIVALS) if answers[at][0] == 200]
    if len(winners) > 1 and len({answers[at][1] for at in winners}) > 1:
        connection.request("GET", f"/bucket/{key}")
        body = connection.getresponse().read()
        kept = "one of the bodies" if body in bodies else "none of the bodies"
        print(f"round {number}: {len(winners)} of {RIVALS} creations of one key succeeded, "
              f"with different ETags; the object holds {kept}")
        break
else:
    sys.exit(f"changed: no round of {ROUNDS} had two winners")
PY
