"""What the findings have in common: requests to a server, and rivals that send theirs at the same time."""

import http.client
import sys
import threading
import time

PORT, RIVALS = int(sys.argv[1]), 16


def connect():
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
    connection.connect()
    return connection


def put(connection, key, body, headers={}):
    """Returns the status and the ETag."""
    connection.request("PUT", f"/bucket/{key}", body, headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status, answer.getheader("ETag")


def get(connection, key):
    connection.request("GET", f"/bucket/{key}")
    return connection.getresponse().read()


def started():
    """Waits until the server takes puts. Returns a connection."""
    for _ in range(240):
        try:
            connection = connect()
            if put(connection, "started", b"1")[0] == 200:
                return connection
        except OSError:
            pass
        time.sleep(0.5)
    sys.exit("the server does not start")


def check_sequential(first, second):
    """Ends the script unless one request at a time is right: the second is refused."""
    print("sequential:", first[0], second[0])
    if (first[0], second[0]) != (200, 412):
        sys.exit("changed: one request at a time is answered in another way")


def race(rounds, prepare):
    """Lets rivals put one key at the same time, `rounds` times at most. `prepare` returns the headers
    of a round's requests. Returns the first round with several winners: its number, its key, how many
    there were, and all bodies."""
    connections = [connect() for _ in range(RIVALS)]
    bodies = [b"body of rival %02d\n" % at * 200 for at in range(RIVALS)]
    for number in range(1, rounds + 1):
        key, barrier, answers = f"race-{number}", threading.Barrier(RIVALS), [None] * RIVALS
        headers = prepare(key)

        def rival(at):
            barrier.wait()
            answers[at] = put(connections[at], key, bodies[at], headers)

        threads = [threading.Thread(target=rival, args=(at,)) for at in range(RIVALS)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        tags = [tag for status, tag in answers if status == 200]
        if len(set(tags)) > 1:
            return number, key, len(tags), bodies
    sys.exit(f"changed: no round of {rounds} had two winners")
