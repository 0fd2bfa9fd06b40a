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

place=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null || true; rm -rf "$place"' EXIT

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
mvn -q -B -f "$place/pom.xml" dependency:copy-dependencies -DoutputDirectory="$place/classes" -DincludeScope=runtime \
    >"$place/mvn.log" 2>&1 || { cat "$place/mvn.log"; exit 2; }
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
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
import http.client, sys, threading, time

PORT, RIVALS, ROUNDS = int(sys.argv[1]), 16, 500

def connect():
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    connection.connect()
    return connection

def put(connection, key, body, headers):
    connection.request("PUT", f"/bucket/{key}", body, headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status, answer.getheader("ETag")

for _ in range(240):
    try:
        connection = connect()
        if put(connection, "started", b"1", {})[0] == 200:
            break
    except OSError:
        pass
    time.sleep(0.5)
else:
    sys.exit("the server does not start")

_, etag = put(connection, "sequential", b"0" * 64, {})
first = put(connection, "sequential", b"1" * 64, {"If-Match": etag})
second = put(connection, "sequential", b"2" * 64, {"If-Match": etag})
print("sequential:", first[0], second[0])
if (first[0], second[0]) != (200, 412):
    sys.exit("changed: one request at a time is answered in another way")

connections = [connect() for _ in range(RIVALS)]
for number in range(1, ROUNDS + 1):
    key, barrier, answers = f"race-{number}", threading.Barrier(RIVALS), [None] * RIVALS
    _, etag = put(connection, key, b"before\n" * 200, {})

    def rival(at):
        barrier.wait()
        answers[at] = put(connections[at], key, b"body of rival %02d\n" % at * 200, {"If-Match": etag})

    threads = [threading.Thread(target=rival, args=(at,)) for at in range(RIVALS)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    winners = [at for at in range(RIVALS) if answers[at][0] == 200]
    if len(winners) > 1 and len({answers[at][1] for at in winners}) > 1:
        print(f"round {number}: {len(winners)} of {RIVALS} replacements of one version succeeded, with different ETags")
        break
else:
    sys.exit(f"changed: no round of {ROUNDS} had two winners")
PY
