"""Forks, threads at exit, signals, objects that are collected in any order."""

from __future__ import annotations

import concurrent.futures
import gc
import importlib
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import quenchdb

Bytes = quenchdb.Table[bytes, bytes]
SECONDS = 60


def run(program: str, *arguments: object, status: int = 0) -> str:
    """Runs a program in an interpreter of its own; returns what it printed."""
    command = [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


def in_child(function: Callable[[], object]) -> str:
    """Runs a function in a forked child; returns its result, or the name and text of its exception."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            text = repr(function())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    deadline = time.monotonic() + SECONDS
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.001)
    with os.fdopen(read) as pipe:
        return pipe.read()


def test_forked_child_is_refused_every_call(db: quenchdb.Database, table: Bytes) -> None:
    table[b"a"] = b"1"
    tx, snapshot, feed = db.transaction(), db.snapshot(), db.changes()
    tx.put(table, b"b", b"2")
    rows = snapshot.range(table)
    calls: list[Callable[[], object]] = [
        lambda: table[b"a"],
        lambda: table.update({b"x": b"1"}),
        lambda: db.transaction(),
        lambda: db.snapshot(),
        lambda: tx.put(table, b"x", b"1"),
        lambda: tx.get(table, b"a"),
        lambda: tx.commit(),
        lambda: tx.rollback_acknowledging(),
        lambda: snapshot.get(table, b"a"),
        lambda: next(rows),
        lambda: next(feed),
        lambda: db.checkpoint(),
        lambda: db.close(),
    ]
    for call in calls:
        assert in_child(call).startswith("ForkedError: this process was forked from the one that opened"), call
    assert in_child(lambda: tx.rollback()) == "None"
    assert in_child(lambda: (gc.collect(), db.tables(), db.health().state)).endswith("[], 'failed')")
    tx.commit()
    assert dict(table) == {b"a": b"1", b"b": b"2"}


def test_fork_beside_busy_threads_hangs_in_no_child(db: quenchdb.Database, table: Bytes) -> None:
    stop, shared = threading.Event(), db.transaction()

    def work() -> None:
        while not stop.is_set():
            table[b"n"] = b"x" * 100
            shared.get(table, b"n")
            list(table)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert in_child(lambda: shared.get(table, b"n")).startswith("ForkedError")
            assert in_child(lambda: table[b"n"]).startswith("ForkedError")
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_forked_child_opens_another_database(db: quenchdb.Database, tmp_path: Path) -> None:
    def use() -> object:
        with quenchdb.open(tmp_path / "other", memory_bytes=16 << 20) as other:
            other.table("t")[b"a"] = b"1"
            return dict(other["t"])

    assert in_child(use) == "{b'a': b'1'}"
    assert in_child(lambda: quenchdb.open(tmp_path / "db")).startswith("BusyError")
    with quenchdb.open(tmp_path / "other") as other:
        assert other["t"][b"a"] == b"1"


def worker(path: Path, number: int) -> str:
    """What a process of a pool does."""
    try:
        quenchdb.open(path)
    except quenchdb.BusyError:
        with quenchdb.open_checkpoint(path) as reader:
            return f"{number} {reader['rows'][b'a'].decode()}"
    return "opened"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_a_pool_read_a_checkpoint(
    db: quenchdb.Database, table: Bytes, tmp_path: Path, method: str
) -> None:
    table[b"a"] = b"1"
    db.checkpoint()
    context = multiprocessing.get_context(method)
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        results = list(pool.map(worker, [tmp_path / "db"] * 4, range(4), timeout=SECONDS))
    assert results == [f"{number} 1" for number in range(4)]
    table[b"a"] = b"2"
    assert table[b"a"] == b"2"


def test_child_that_exits_normally_leaves_the_parent_alone(tmp_path: Path) -> None:
    run(
        """
        import os, sys, quenchdb
        db = quenchdb.open(sys.argv[1])
        table = db.table("t")
        tx, snapshot = db.transaction(), db.snapshot()
        tx.put(table, b"a", b"1")
        if os.fork() == 0:
            sys.exit(0)         # with exit handlers and the collection of all objects
        assert os.wait()[1] == 0
        tx.commit()
        assert table[b"a"] == b"1" and db.verify().ok
        """,
        tmp_path / "db",
    )
    assert quenchdb.verify(tmp_path / "db").result == "sound"


def test_database_that_is_open_at_exit_is_closed(tmp_path: Path) -> None:
    run(
        """
        import sys, quenchdb
        db = quenchdb.open(sys.argv[1])
        db.table("t")[b"a"] = b"1"
        lazy = db.transaction(durability="lazy")
        lazy.put(db["t"], b"lazy", b"2")
        lazy.commit()
        open = db.transaction()
        open.put(db["t"], b"open", b"3")
        rows = db["t"].range()
        """,
        tmp_path / "db",
    )
    with quenchdb.open(tmp_path / "db", read_only=True) as db:
        assert dict(db["t"]) == {b"a": b"1", b"lazy": b"2"}
        assert db.statistics().everything["log_bytes"] == 0


@pytest.mark.parametrize("what", ["put", "read", "feed", "async", "lock"])
def test_daemon_threads_at_exit_do_not_hang_it(tmp_path: Path, what: str) -> None:
    run(
        """
        import asyncio, sys, threading, time, quenchdb
        db = quenchdb.open(sys.argv[1], lock_wait=60)
        table = db.table("t")
        table[b"a"] = b"1"
        holder = db.transaction()
        holder.put(table, b"held", b"1")
        began = threading.Event()

        async def write():
            for number in range(10**9):
                async with db.transaction() as tx:
                    tx.put(table, b"async", b"%d" % number)
                began.set()

        def work():
            try:
                if sys.argv[2] == "async":
                    asyncio.run(write())
                if sys.argv[2] == "feed":
                    began.set()
                    for _ in db.changes(db.snapshot().csn): pass
                if sys.argv[2] == "lock":
                    began.set()
                    table[b"held"] = b"2"
                for number in range(10**9):
                    if sys.argv[2] == "put":
                        table[b"%d" % number] = b"v"
                    else:
                        list(table)
                    began.set()
            except quenchdb.InvalidArgumentError:
                pass                # the database was closed

        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        began.wait()
        time.sleep(0.1)
        """,
        tmp_path / "db",
        what,
    )
    assert quenchdb.verify(tmp_path / "db").ok


def test_threads_that_are_no_daemons_end_first(tmp_path: Path) -> None:
    run(
        """
        import sys, threading, time, quenchdb
        db = quenchdb.open(sys.argv[1])
        table = db.table("t")
        def work():
            time.sleep(0.2)     # the main thread has ended by then
            for number in range(100):
                table[b"%d" % number] = b"v"
        threading.Thread(target=work).start()
        """,
        tmp_path / "db",
    )
    with quenchdb.open(tmp_path / "db") as db:
        assert len(db["t"]) == 100


@pytest.mark.parametrize("order", list(itertools.permutations(range(5)))[::7])
def test_objects_are_collected_in_any_order(tmp_path: Path, order: tuple[int, ...]) -> None:
    for cycle in [False, True]:
        db = quenchdb.open(tmp_path / f"{cycle}", memory_bytes=16 << 20)
        table = db.table("t")
        table.update((b"%d" % number, b"v") for number in range(1000))
        tx = db.transaction()
        tx.put(table, b"x", b"lost")
        rows = tx.range(table)
        next(rows)
        objects: list[object] = [db, table, tx, rows, db.changes()]
        del db, table, tx, rows
        if cycle:
            for number in order:
                holder: list[object] = [objects[number]]
                holder.append(holder)
                objects[number] = None
                del holder
                gc.collect()
        else:
            for number in order:
                objects[number] = None
        del objects
        gc.collect()
        with quenchdb.open(tmp_path / f"{cycle}") as again:
            assert len(again["t"]) == 1000


def test_dropped_transaction_releases_its_rows(db: quenchdb.Database, table: Bytes) -> None:
    tx = db.transaction()
    tx.put(table, b"a", b"1")
    del tx
    gc.collect()
    with db.transaction(no_wait=True) as other:
        other.put(table, b"a", b"2")


@pytest.mark.parametrize("what", ["feed", "watch", "commit"])
def test_interrupt_ends_a_wait(db: quenchdb.Database, table: Bytes, what: str) -> None:
    waits: dict[str, Callable[[], object]] = {
        "feed": lambda: next(db.changes(db.snapshot().csn)),
        "watch": lambda: next(db.watch(table, b"x")),
        # Not durable by itself: the wait writes it, and the loop waits again.
        "commit": lambda: [commit() for _ in range(10**9)],
    }

    def commit() -> None:
        tx = db.transaction()
        tx.put(table, b"a", b"1")
        tx.commit_async().wait()

    timer = threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        waits[what]()
    assert time.monotonic() - began < 5
    timer.join()
    table[b"b"] = b"2"
    assert table[b"b"] == b"2"


def test_interrupt_in_a_transaction_takes_it_back(db: quenchdb.Database, table: Bytes) -> None:
    timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt), db.transaction() as tx:
        timer.start()
        tx.put(table, b"a", b"1")
        for _ in range(10**9):
            tx.get(table, b"a")
    timer.join()
    assert tx.closed and not table
    with pytest.raises(KeyboardInterrupt):
        db.transact(interrupt)
    with db.transaction(no_wait=True) as other:
        other.put(table, b"1", b"v")


def interrupt(tx: quenchdb.Transaction) -> None:
    tx.put(tx._database["rows"], b"1", b"v")
    raise KeyboardInterrupt


WAITS = [
    "table.__setitem__(b'a', b'2')",
    "db.transact(lambda tx: tx.put(table, b'a', b'2'))",
    "open.put(table, b'a', b'2')",
    "open.get_for_update(table, b'a')",
    "locking.delete_range(table)",
    "open.lock_table(table, 'exclusive')",
    "next(locking.range(table))",
    "locking.count(table)",
]


@pytest.mark.parametrize("wait", WAITS)
def test_interrupt_ends_a_wait_for_a_row(tmp_path: Path, wait: str) -> None:
    output = run(
        """
        import os, signal, sys, threading, time, quenchdb
        db = quenchdb.open(sys.argv[1], lock_wait=60)
        table, held, end = db.table("t"), threading.Event(), threading.Event()
        def hold():
            with db.transaction() as tx:
                tx.put(table, b"a", b"1")
                held.set()
                end.wait()
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        open = db.transaction(locking="pessimistic")
        locking = db.transaction(locking="pessimistic", isolation="serializable")
        for tx, key in [(open, b"x"), (locking, b"y")]:
            tx.put(table, key, b"kept")
        if "lock_table" in sys.argv[2]:
            locking.commit()                # not what is waited for
        if "locking" in sys.argv[2]:
            open.commit()
        wait = eval(f"lambda: {sys.argv[2]}")
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        try:
            wait()
        except KeyboardInterrupt:
            took = time.monotonic() - began
            print("interrupted", 0.1 < took < 0.2 + 0.3 or took)
        # The transactions are as they were before the call, and continue.
        for tx in [open, locking]:
            if not tx.closed:
                assert not tx.has_to_retry()
                tx.put(table, b"z", b"later")
                tx.commit()
        end.set()
        thread.join()
        print(dict(table))
        """,
        tmp_path / "db",
        wait,
    )
    first, rows = output.splitlines()
    assert first == "interrupted True"
    expected = {b"a": b"1", b"x": b"kept", b"y": b"kept", b"z": b"later"}
    assert rows == repr(expected)
    assert quenchdb.verify(tmp_path / "db").ok


def test_signal_handlers_run_in_a_wait_for_a_row(tmp_path: Path) -> None:
    output = run(
        """
        import os, signal, sys, threading, time, quenchdb
        db = quenchdb.open(sys.argv[1], lock_wait=60)
        table, log = db.table("t"), db.table("log")
        holder, waiter = db.transaction(), db.transaction()
        calls = []
        def handler(number, frame):
            log[b"%d" % len(calls)] = b"another transaction works"
            try:
                waiter.get(table, b"a")     # the one that waits is refused, and nothing hangs
            except quenchdb.InvalidArgumentError as error:
                calls.append(str(error))
            if len(calls) == 3:
                holder_ends.set()
        holder_ends = threading.Event()
        signal.signal(signal.SIGUSR1, handler)
        held = threading.Event()
        def hold():
            with db.transaction() as tx:
                tx.put(table, b"a", b"1")
                held.set()
                holder_ends.wait()
        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        def signals():
            while not holder_ends.wait(0.1):
                os.kill(os.getpid(), signal.SIGUSR1)
        threading.Thread(target=signals).start()
        try:
            waiter.put(table, b"a", b"2")
        except quenchdb.ConflictError:
            print("conflict")               # the holder has committed first
        thread.join()
        print(len(log), calls[0])
        """,
        tmp_path / "db",
    )
    assert output.splitlines() == [
        "conflict",
        "3 a signal handler cannot use a transaction in whose wait it runs; use another transaction, or raise an exception",
    ]


def test_interrupt_in_a_commit_of_a_store_leaves_the_commit(tmp_path: Path) -> None:
    output = run(
        """
        import os, signal, sys, threading, quenchdb
        db = quenchdb.open(f"file://{sys.argv[1]}")
        table, number = db.table("t"), -1
        threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            for number in range(10**9):
                tx = db.transaction()
                tx.put(table, b"%09d" % number, b"v")
                tx.commit()
        except KeyboardInterrupt:
            pass
        if not tx.closed:
            tx.rollback()
        # Each commit that returned is there, and at most one more.
        assert len(table) in (number, number + 1), (len(table), number)
        table[b"x"] = b"later"
        print(number > 3)
        """,
        tmp_path / "store",
    )
    assert output == "True\n"


def test_panic_is_an_exception_of_the_package(db: quenchdb.Database, table: Bytes) -> None:
    output = run(
        """
        import quenchdb
        db = quenchdb.open_in_memory()
        table = db.table("t")
        try:
            with db.transaction() as tx:
                tx.put(table, b"a", b"1")
                quenchdb._native._panic("planted")
        except quenchdb.PanicError as error:
            assert isinstance(error, quenchdb.Error) and error.code == "panic", error
            assert "report this" in error.advice
            print(error)
        assert not table                    # taken back
        table[b"b"] = b"2"
        print(dict(table))
        """
    )
    assert "the library has a bug: planted; report this, then close and reopen the database\n" in output
    assert output.splitlines()[1 if output.startswith("the") else 0 :] and "{b'b': b'2'}" in output


def test_killed_process_loses_nothing_durable(tmp_path: Path) -> None:
    program = """
        import sys, quenchdb
        table = quenchdb.open(sys.argv[1]).table("t")
        for number in range(10**9):
            table[b"%09d" % number] = b"v"
            print(number, flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        last = next(int(line) for line in process.stdout if int(line) == 200)
        process.kill()
        last = max([last, *(int(line) for line in process.stdout if line.endswith("\n"))])
    seen: list[str] = []
    with quenchdb.open(tmp_path / "db", progress=lambda what, done, all: seen.append(what)) as db:
        rows = list(db["t"])
        assert rows == [b"%09d" % number for number in range(len(rows))] and len(rows) in (last + 1, last + 2)
        assert db.verify().ok


def test_second_interpreter_is_refused(tmp_path: Path) -> None:
    program = """
        import importlib, sys, quenchdb
        interpreters = importlib.import_module(sys.argv[1])
        try:
            failed = interpreters.run_string(
                interpreters.create(), f"import sys; sys.path[:] = {sys.path!r}; import quenchdb"
            )
        except Exception as error:
            failed = error
        print(getattr(failed, "formatted", failed))
    """
    for name in ["_interpreters", "_xxsubinterpreters"]:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
        assert "subinterpreters" in run(program, name)
        return
    pytest.skip("this Python has no module for interpreters")


def test_interpreter_without_its_lock_is_refused() -> None:
    """Simulated: a free-threaded interpreter has this function, and it returns False."""
    program = """
        import sys
        sys._is_gil_enabled = lambda: {}
        try:
            import quenchdb
            print(quenchdb.__name__)
        except ImportError as error:
            print(error)
            assert "quenchdb._native" not in sys.modules    # which would turn the lock on
    """
    refused = run(program.format(False))
    assert refused.startswith("quenchdb does not support an interpreter without the interpreter lock")
    assert "PYTHON_GIL=1" in refused
    assert run(program.format(True)) == "quenchdb\n"
