"""Compares quenchdb with lmdb, rocksdict and sqlite3, as far as they are installed.

    python python/tools/bench.py [--json FILE] [--rows N] [--directory DIRECTORY] [--rounds N]

All store 16-byte keys and 100-byte values, and make each commit durable. The median of some rounds counts; the rounds
of the engines alternate. `ratio` is the time of the other engine by that of quenchdb: above 1, quenchdb is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import quenchdb

BATCH = 1000
THREADS = 16
COMMITS = 100
VALUE = b"x" * 100


class Quench:
    """quenchdb."""

    def __init__(self, place: Path) -> None:
        self.db = quenchdb.open(place / "quench")
        self.table = self.db.table("rows")

    def put(self, keys: list[bytes]) -> None:
        with self.db.transaction() as tx:
            put, table = tx.put, self.table
            for key in keys:
                put(table, key, VALUE)

    def put_many(self, keys: list[bytes]) -> None:
        with self.db.transaction() as tx:
            tx.put_many(self.table, ((key, VALUE) for key in keys))

    def get(self, keys: list[bytes]) -> None:
        with self.db.snapshot() as snapshot:
            get, table = snapshot.get, self.table
            for key in keys:
                get(table, key)

    def rows(self) -> Iterator[Any]:
        return self.table.range()

    def commit(self, key: bytes) -> None:
        self.table[key] = VALUE

    def close(self) -> None:
        self.db.close()


class Lmdb:
    """lmdb, with its own map."""

    def __init__(self, place: Path) -> None:
        import lmdb

        self.env = lmdb.open(str(place / "lmdb"), map_size=8 << 30)

    def put(self, keys: list[bytes]) -> None:
        with self.env.begin(write=True) as txn:
            put = txn.put
            for key in keys:
                put(key, VALUE)

    def put_many(self, keys: list[bytes]) -> None:
        with self.env.begin(write=True) as txn:
            txn.cursor().putmulti([(key, VALUE) for key in keys])

    def get(self, keys: list[bytes]) -> None:
        with self.env.begin() as txn:
            get = txn.get
            for key in keys:
                get(key)

    def rows(self) -> Iterator[Any]:
        return iter(self.env.begin().cursor())

    def commit(self, key: bytes) -> None:
        with self.env.begin(write=True) as txn:
            txn.put(key, VALUE)

    def close(self) -> None:
        self.env.close()


class Rocksdict:
    """rocksdict, with raw bytes."""

    def __init__(self, place: Path) -> None:
        import rocksdict

        self.rocksdict = rocksdict
        self.db = rocksdict.Rdict(str(place / "rocks"), rocksdict.Options(raw_mode=True))
        self.durable = rocksdict.WriteOptions()
        self.durable.sync = True

    def put(self, keys: list[bytes]) -> None:
        batch = self.rocksdict.WriteBatch(raw_mode=True)
        for key in keys:
            batch.put(key, VALUE)
        self.db.write(batch, self.durable)

    put_many = put

    def get(self, keys: list[bytes]) -> None:
        get = self.db.get
        for key in keys:
            get(key)

    def rows(self) -> Iterator[Any]:
        return iter(self.db.items())

    def commit(self, key: bytes) -> None:
        self.db.put(key, VALUE, self.durable)

    def close(self) -> None:
        self.db.close()


class Sqlite:
    """sqlite3, with a write-ahead log and full synchronisation."""

    def __init__(self, place: Path) -> None:
        self.path = place / "sqlite"
        self.local = threading.local()
        self.connection().execute("CREATE TABLE rows (key BLOB PRIMARY KEY, value BLOB) WITHOUT ROWID")

    def connection(self) -> sqlite3.Connection:
        found: sqlite3.Connection | None = getattr(self.local, "connection", None)
        if found is None:
            found = self.local.connection = sqlite3.connect(self.path, isolation_level=None, timeout=60)
            found.execute("PRAGMA journal_mode = WAL")
            found.execute("PRAGMA synchronous = FULL")
        return found

    def put(self, keys: list[bytes]) -> None:
        execute = self.connection().execute
        execute("BEGIN")
        for key in keys:
            execute("INSERT OR REPLACE INTO rows VALUES (?, ?)", (key, VALUE))
        execute("COMMIT")

    def put_many(self, keys: list[bytes]) -> None:
        connection = self.connection()
        connection.execute("BEGIN")
        connection.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", ((key, VALUE) for key in keys))
        connection.execute("COMMIT")

    def get(self, keys: list[bytes]) -> None:
        execute = self.connection().execute
        for key in keys:
            execute("SELECT value FROM rows WHERE key = ?", (key,)).fetchone()

    def rows(self) -> Iterator[Any]:
        return iter(self.connection().execute("SELECT key, value FROM rows ORDER BY key"))

    def commit(self, key: bytes) -> None:
        self.connection().execute("INSERT OR REPLACE INTO rows VALUES (?, ?)", (key, VALUE))

    def close(self) -> None:
        self.connection().close()


ENGINES: list[Any] = [Quench, Lmdb, Rocksdict, Sqlite]


def load(engine: Any, keys: list[bytes]) -> None:
    for at in range(0, len(keys), 100_000):
        engine.put_many(keys[at : at + 100_000])


def by_batches(put: Callable[[list[bytes]], None], keys: list[bytes]) -> int:
    for at in range(0, len(keys), BATCH):
        put(keys[at : at + BATCH])
    return len(keys)


def get(engine: Any, keys: list[bytes]) -> int:
    engine.get(keys)
    return len(keys)


def iterate(engine: Any, rows: int) -> int:
    count = sum(1 for _ in engine.rows())
    if count != rows:
        sys.exit(f"{type(engine).__name__} has {count} rows, not {rows}")
    return count


def commit(engine: Any, keys: list[bytes], threads: int) -> int:
    """Commits single rows, each durable, from some threads."""

    def work(first: int) -> None:
        for number in range(COMMITS):
            engine.commit(keys[first * COMMITS + number])

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return threads * COMMITS


def workloads(keys: list[bytes]) -> dict[str, Callable[[Any], int]]:
    sample = random.Random(1).sample(keys, min(100_000, len(keys)))
    some = keys[: min(50_000, len(keys))]
    return {
        "put in transactions of 1,000": lambda engine: by_batches(engine.put, some),
        "put_many of 1,000": lambda engine: by_batches(engine.put_many, some),
        "get": lambda engine: get(engine, sample),
        "iteration of all rows": lambda engine: iterate(engine, len(keys)),
        "durable commits, 1 thread": lambda engine: commit(engine, keys, 1),
        f"durable commits, {THREADS} threads": lambda engine: commit(engine, keys, THREADS),
    }


def measure(engines: dict[str, Any], keys: list[bytes], rounds: int) -> dict[str, dict[str, float]]:
    """Returns microseconds for each operation, by workload and engine."""
    times: dict[str, dict[str, float]] = {}
    for name, run in workloads(keys).items():
        taken: dict[str, list[float]] = {engine_name: [] for engine_name in engines}
        for _ in range(rounds):
            for engine_name, engine in engines.items():
                begun = time.perf_counter()
                count = run(engine)
                taken[engine_name].append((time.perf_counter() - begun) / count * 1e6)
        times[name] = {engine_name: statistics.median(all_taken) for engine_name, all_taken in taken.items()}
    return times


def show(times: dict[str, dict[str, float]]) -> None:
    names = list(next(iter(times.values())))
    print(f"{'us for each':32}" + "".join(f"{name:>12}{'' if name == 'quench' else '   ratio'}" for name in names))
    for workload, by_engine in times.items():
        line = f"{workload:32}"
        for name, took in by_engine.items():
            line += f"{took:12.3f}"
            if name != "quench":
                line += f"{took / by_engine['quench']:8.2f}"
        print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of each database, at least 1,600")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", help="where the databases are made, and removed again")
    parser.add_argument("--json", help="a file for the times in microseconds")
    arguments = parser.parse_args()
    if arguments.rows < THREADS * COMMITS or arguments.rounds < 1:
        parser.error(f"give at least {THREADS * COMMITS} rows, and 1 round")
    keys = [b"%016d" % number for number in range(arguments.rows)]
    with tempfile.TemporaryDirectory(dir=arguments.directory) as place:
        engines: dict[str, Any] = {}
        for kind in ENGINES:
            try:
                engine = kind(Path(place))
            except ImportError as error:
                print(f"without {kind.__name__.lower()}: {error}")
                continue
            load(engine, keys)
            engines[kind.__name__.lower()] = engine
        # What the loads left to the system to be written would delay the first commits.
        os.sync()
        times = measure(engines, keys, arguments.rounds)
        for engine in engines.values():
            engine.close()
    show(times)
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(times, indent=2) + "\n")


if __name__ == "__main__":
    main()
