#!/usr/bin/env bash
# rclone 1.76.0 (Go module github.com/rclone/rclone), `rclone serve s3` over a local directory: a `GET` that comes while
# the same key is replaced by `PUT` is answered with 200 and fewer bytes than its Content-Length.
#
# Amazon S3 documents that a read returns the object before or the object after the replacement, never a mixture or a
# part. Here the file is truncated and written in place, so a third to a half of the reads beside a busy writer end early.
# A reader that does not compare the length with the header takes a part for the whole.
#
# Seen on 2026-11-27, Linux, two cores, default options (--vfs-cache-mode off):
#   reads beside 200 replacements of 65536 bytes: 711 whole, 935 shorter than their Content-Length
#
# Needs go and python3. Exit code 0: seen again. 1: every read was whole.
set -euo pipefail

. "$(dirname "$0")/common.bash"

prepare env GOBIN="$place" GOSUMDB="${GOSUMDB-off}" go install github.com/rclone/rclone@v1.76.0
mkdir -p "$place/objects/bucket"
"$place/rclone" --config "$place/none" serve s3 --addr "127.0.0.1:$port" "$place/objects" >"$place/server.log" 2>&1 &
server=$!

python3 - "$port" <<'PY'
import collections, http.client, sys, threading
from client import connect, put, started

BYTES, REPLACEMENTS, READERS = 64 << 10, 200, 4

def replace(number):
    put(writer, "key", b"%08d" % number * (BYTES // 8))

writer = started()
replace(0)
done, seen = threading.Event(), collections.Counter()

def read():
    connection = connect()
    while not done.is_set():
        try:
            connection.request("GET", "/bucket/key")
            answer = connection.getresponse()
            body = answer.read()
            seen["whole" if answer.status == 200 and len(body) == BYTES else "other"] += 1
        except http.client.IncompleteRead:
            # The status was 200, and the connection ended before Content-Length bytes had come.
            seen["short"] += 1
            connection = connect()
        except OSError:
            connection = connect()

readers = [threading.Thread(target=read) for _ in range(READERS)]
[reader.start() for reader in readers]
for number in range(1, REPLACEMENTS + 1):
    replace(number)
done.set()
[reader.join() for reader in readers]
print(f"reads beside {REPLACEMENTS} replacements of {BYTES} bytes: "
      f"{seen['whole']} whole, {seen['short']} shorter than their Content-Length")
if not seen["short"]:
    sys.exit("changed: every read was whole")
PY
