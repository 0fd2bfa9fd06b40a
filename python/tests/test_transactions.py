"""Transactions: what they read and write, and how they end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import pytest

import quenchdb

Bytes = quenchdb.Table[bytes, bytes]


@contextlib.contextmanager
def row_held_elsewhere(db: quenchdb.Database, table: Bytes, key: bytes) -> Iterator[None]:
    """Another thread has changed a row and not committed."""
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with db.transaction() as tx:
            tx.put(table, key, b"held")
            held.set()
            release.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        yield
    finally:
        release.set()
        thread.join()


def test_with_commits_at_the_end(db: quenchdb.Database, table: Bytes) -> None:
    with db.transaction() as tx:
        tx.put(table, b"a", b"1")
    assert tx.closed
    assert table[b"a"] == b"1"


def test_exception_takes_the_transaction_back(db: quenchdb.Database, table: Bytes) -> None:
    with pytest.raises(ZeroDivisionError), db.transaction() as tx:
        tx.put(table, b"a", b"1")
        1 / 0
    assert b"a" not in table


def test_explicit_end_inside_with_stays(db: quenchdb.Database, table: Bytes) -> None:
    with db.transaction() as tx:
        tx.put(table, b"a", b"1")
        assert tx.commit() > 0
    with db.transaction() as tx:
        tx.put(table, b"b", b"1")
        tx.rollback()
        tx.rollback()
    assert list(table) == [b"a"]


def test_ended_transaction_says_so(db: quenchdb.Database, table: Bytes) -> None:
    with db.transaction() as tx:
        rows = tx.range(table)
    for call in [
        lambda: tx.get(table, b"a"),
        lambda: tx.put(table, b"a", b""),
        lambda: tx.commit(),
        lambda: tx.commit_async(),
        lambda: next(rows),
        lambda: tx.count(table),
    ]:
        with pytest.raises(quenchdb.InvalidArgumentError, match="the transaction has ended; begin another"):
            call()


def test_reads_of_single_rows(db: quenchdb.Database, table: Bytes) -> None:
    with db.transaction() as tx:
        tx.put(table, b"a", b"1")
        assert tx.get(table, b"a") == b"1"
        assert tx.get(table, b"b") is None
        assert tx.get(table, b"b", b"?") == b"?"
        assert tx.contains(table, b"a") and not tx.contains(table, b"b")
        assert tx.get_for_update(table, b"a") == b"1"
        assert tx.get_for_share(table, b"b", b"?") == b"?"
        assert db.snapshot().get(table, b"a") is None
        tx.prefetch(table, [b"a", b"b"])


def test_changes_of_single_rows(db: quenchdb.Database, table: Bytes) -> None:
    with db.transaction() as tx:
        assert tx.put_new(table, b"a", b"1")
        assert not tx.put_new(table, b"a", b"2")
        assert tx.replace(table, b"a", b"3") == b"1"
        assert tx.replace(table, b"b", b"4") is None
        assert tx.pop(table, b"a") == b"3"
        assert tx.pop(table, b"a") is None
        assert tx.pop(table, b"a", b"?") == b"?"
        assert tx.delete(table, b"b") and not tx.delete(table, b"b")
        assert tx.count(table) == 0


def test_update_sets_and_deletes(db: quenchdb.Database, table: Bytes) -> None:
    with db.transaction() as tx:
        assert tx.update(table, b"a", lambda value: (value or b"") + b"x") == b"x"
        assert tx.update(table, b"a", lambda value: (value or b"") + b"x") == b"xx"
        assert tx.update(table, b"a", lambda value: None) is None
        assert tx.update(table, b"a", lambda value: None) is None
        assert not tx.contains(table, b"a")


def test_exception_of_update_changes_nothing(db: quenchdb.Database, table: Bytes) -> None:
    def fail(value: bytes | None) -> bytes | None:
        raise KeyError(value)

    table[b"a"] = b"1"
    with db.transaction() as tx:
        with pytest.raises(KeyError):
            tx.update(table, b"a", fail)
        tx.put(table, b"b", b"2")
    assert dict(table) == {b"a": b"1", b"b": b"2"}


def test_update_may_use_its_transaction(db: quenchdb.Database, table: Bytes) -> None:
    with db.transaction() as tx:
        tx.update(table, b"a", lambda value: b"%d" % tx.count(table))
        assert tx.get(table, b"a") == b"0"


def test_compare_and_set(db: quenchdb.Database, table: Bytes) -> None:
    with db.transaction() as tx:
        assert not tx.compare_and_set(table, b"a", b"0", b"1")
        assert tx.compare_and_set(table, b"a", None, b"1")
        assert tx.compare_and_set(table, b"a", b"1", b"2")
        assert tx.compare_and_set(table, b"a", b"2", None)
        assert not tx.contains(table, b"a")


def test_add_counts(db: quenchdb.Database, table: Bytes) -> None:
    with db.transaction() as tx:
        assert tx.add(table, b"n", 5) == 5
        assert tx.add(table, b"n", -7) == -2
        tx.put(table, b"text", b"abc")
        with pytest.raises(quenchdb.InvalidArgumentError, match="a counter is a value of 8 bytes"):
            tx.add(table, b"text", 1)
        with pytest.raises(OverflowError):
            tx.add(table, b"n", 1 << 64)


def test_pops_of_both_ends(db: quenchdb.Database, table: Bytes) -> None:
    table.update({b"a": b"1", b"b": b"2", b"c": b"3"})
    with db.transaction() as tx:
        assert tx.pop_first(table) == (b"a", b"1")
        assert tx.pop_last(table) == (b"c", b"3")
        assert tx.pop_first(table) == (b"b", b"2")
        assert tx.pop_first(table) is None


def test_put_many_takes_mappings_and_iterables(db: quenchdb.Database, table: Bytes) -> None:
    with db.transaction() as tx:
        assert tx.put_many(table, {b"a": b"1", b"b": b"2"}) == 2
        assert tx.put_many(table, ((b"%05d" % i, b"v") for i in range(3000))) == 3000
        assert tx.put_many(table, []) == 0
        assert tx.count(table) == 3002
        with pytest.raises(TypeError):
            tx.put_many(table, [(b"x", 1)])  # type: ignore[list-item]
        with pytest.raises(ValueError):
            tx.put_many(table, [(b"x", b"1", b"2")])  # type: ignore[list-item]


def test_delete_range(db: quenchdb.Database, table: Bytes) -> None:
    table.update((b"%d" % i, b"") for i in range(10))
    with db.transaction() as tx:
        assert tx.delete_range(table, b"2", b"4") == 2
        assert tx.delete_range(table, b"4", b"6", include_start=False, include_stop=True) == 2
        assert tx.delete_range(table, prefix=b"9") == 1
        assert list(tx.keys(table)) == [b"0", b"1", b"4", b"7", b"8"]
        assert tx.delete_range(table) == 5


def test_savepoints(db: quenchdb.Database, table: Bytes) -> None:
    with db.transaction() as tx:
        tx.put(table, b"a", b"1")
        savepoint = tx.savepoint()
        tx.put(table, b"b", b"2")
        tx.rollback_to(savepoint)
        tx.put(table, b"c", b"3")
    assert dict(table) == {b"a": b"1", b"c": b"3"}
    with db.transaction() as tx, pytest.raises(quenchdb.InvalidArgumentError):
        tx.rollback_to(savepoint)


@pytest.mark.parametrize("durability", ["durable", "written", "bounded-loss", "lazy"])
def test_each_durability_commits(db: quenchdb.Database, table: Bytes, durability: str) -> None:
    with db.transaction(durability=durability) as tx:  # type: ignore[arg-type]
        tx.put(table, b"a", durability.encode())
    assert table[b"a"] == durability.encode()


def test_write_skew_by_isolation(db: quenchdb.Database, table: Bytes) -> None:
    def skew(isolation: str) -> None:
        first = db.transaction(isolation=isolation)  # type: ignore[arg-type]
        second = db.transaction(isolation=isolation)  # type: ignore[arg-type]
        first.get(table, b"a")
        second.get(table, b"b")
        first.put(table, b"b", b"1")
        second.put(table, b"a", b"1")
        first.commit()
        second.commit()

    skew("snapshot")
    with pytest.raises(quenchdb.ConflictError) as caught:
        skew("serializable")
    assert isinstance(caught.value, quenchdb.RetryableError)
    assert caught.value.code == "conflict" and caught.value.advice == "run the transaction again"


def test_read_committed_sees_newer_rows(db: quenchdb.Database, table: Bytes) -> None:
    older, newer = db.transaction(), db.transaction(isolation="read-committed")
    table[b"a"] = b"1"
    assert older.get(table, b"a") is None
    assert newer.get(table, b"a") == b"1"


def test_waits_end_as_their_options_say(db: quenchdb.Database, table: Bytes) -> None:
    with row_held_elsewhere(db, table, b"a"):
        waits = db.transaction(locking="pessimistic", lock_timeout=0.05)
        with pytest.raises(quenchdb.LockTimeoutError):
            waits.put(table, b"a", b"2")
        waits.rollback()
        with db.transaction(no_wait=True) as refuses, pytest.raises(quenchdb.RetryableError):
            refuses.put(table, b"a", b"2")


def test_wait_for_the_own_thread_is_a_deadlock(db: quenchdb.Database, table: Bytes) -> None:
    with db.transaction() as holder:
        holder.put(table, b"a", b"1")
        with db.transaction() as other, pytest.raises(quenchdb.DeadlockError, match="of the same thread"):
            other.put(table, b"a", b"2")


def test_read_only_transaction_writes_nothing(db: quenchdb.Database, table: Bytes) -> None:
    with db.transaction(read_only=True) as tx, pytest.raises(quenchdb.InvalidArgumentError):
        tx.put(table, b"a", b"1")


def test_lock_table_excludes_writers(db: quenchdb.Database, table: Bytes) -> None:
    with db.transaction() as holder:
        holder.lock_table(table, "exclusive")
        with db.transaction(no_wait=True) as other, pytest.raises(quenchdb.RetryableError):
            other.put(table, b"a", b"1")
        with pytest.raises(quenchdb.InvalidArgumentError, match="choose shared or exclusive"):
            holder.lock_table(table, "both")


def test_transact_repeats_after_a_conflict(db: quenchdb.Database, table: Bytes) -> None:
    runs = []

    def count(tx: quenchdb.Transaction) -> int:
        runs.append(1)
        if len(runs) == 1:
            table[b"n"] = (10).to_bytes(8, "big")
        return tx.add(table, b"n", 1)

    assert db.transact(count) == 11
    assert len(runs) == 2


def test_transact_repeats_what_the_function_made_of_it(db: quenchdb.Database, table: Bytes) -> None:
    runs = []

    def count(tx: quenchdb.Transaction) -> None:
        runs.append(tx.get(table, b"n"))
        if len(runs) == 1:
            table[b"n"] = b"other"
        try:
            tx.put(table, b"n", b"own")
        except quenchdb.ConflictError:
            raise RuntimeError("wrapped") from None

    db.transact(count)
    assert runs == [None, b"other"] and table[b"n"] == b"own"


def test_transact_returns_other_exceptions_at_once(db: quenchdb.Database, table: Bytes) -> None:
    def fail(tx: quenchdb.Transaction) -> None:
        tx.put(table, b"a", b"1")
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        db.transact(fail)
    assert b"a" not in table


def test_transact_gives_up_after_lock_timeouts(db: quenchdb.Database, table: Bytes) -> None:
    with row_held_elsewhere(db, table, b"a"):
        runs = []

        def wait(tx: quenchdb.Transaction) -> None:
            runs.append(1)
            tx.put(table, b"a", b"2")

        with pytest.raises(quenchdb.LockTimeoutError):
            db.transact(wait, locking="pessimistic", lock_timeout=0.05)
        assert 2 <= len(runs) <= 5


def test_threads_count_together(db: quenchdb.Database, table: Bytes) -> None:
    def count() -> None:
        for _ in range(100):
            db.transact(lambda tx: tx.add(table, b"n", 1))

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int.from_bytes(table[b"n"], "big") == 800


def test_threads_share_a_transaction(db: quenchdb.Database, table: Bytes) -> None:
    with db.transaction() as tx:

        def put(first: int) -> None:
            for number in range(first, first + 500):
                tx.put(table, b"%06d" % number, b"v")
                tx.get(table, b"%06d" % first)

        threads = [threading.Thread(target=put, args=(1000 * thread,)) for thread in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(table) == 4000


def test_unknown_options_name_the_known_ones(db: quenchdb.Database) -> None:
    with pytest.raises(TypeError, match="no option is called `isolaton`; there are isolation, locking"):
        db.transaction(isolaton="snapshot")  # type: ignore[call-arg]
    with pytest.raises(quenchdb.InvalidArgumentError, match="`isolation` cannot be best: there are snapshot"):
        db.transaction(isolation="best")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="lock_timeout"):
        db.transaction(lock_timeout="1")  # type: ignore[arg-type]
    with pytest.raises(quenchdb.InvalidArgumentError, match="no number of seconds"):
        db.transaction(lock_timeout=-1)
