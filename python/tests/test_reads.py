"""Ranges, snapshots, columns."""

from __future__ import annotations

import itertools
import random
import threading

import pytest

import quenchdb

Bytes = quenchdb.Table[bytes, bytes]


@pytest.fixture
def full(table: Bytes) -> Bytes:
    table.update((b"%05d" % number, b"v%d" % number) for number in range(10_000))
    return table


def test_range_returns_rows_in_order(db: quenchdb.Database, full: Bytes) -> None:
    snapshot = db.snapshot()
    rows = list(snapshot.range(full))
    assert rows == [(b"%05d" % number, b"v%d" % number) for number in range(10_000)]
    assert list(snapshot.range(full, reverse=True)) == rows[::-1]
    assert list(snapshot.keys(full)) == [key for key, _ in rows]
    assert list(snapshot.values(full, reverse=True)) == [value for _, value in reversed(rows)]
    assert snapshot.count(full) == 10_000


@pytest.mark.parametrize(("include_start", "include_stop"), list(itertools.product([True, False], repeat=2)))
def test_limits_of_ranges(db: quenchdb.Database, table: Bytes, include_start: bool, include_stop: bool) -> None:
    keys = [b"%02d" % number for number in range(0, 100, 2)]
    table.update((key, b"") for key in keys)
    snapshot = db.snapshot()
    for start, stop in itertools.product([None, b"", b"10", b"11", b"98", b"99"], repeat=2):

        def inside(key: bytes) -> bool:
            above = start is None or key > start or (include_start and key == start)
            below = stop is None or key < stop or (include_stop and key == stop)
            return above and below

        expected = [key for key in keys if inside(key)]
        limits = {"include_start": include_start, "include_stop": include_stop}
        assert list(snapshot.keys(table, start, stop, **limits)) == expected
        assert list(snapshot.keys(table, start, stop, reverse=True, **limits)) == expected[::-1]
        assert snapshot.count(table, start, stop, **limits) == len(expected)


def test_prefixes(db: quenchdb.Database, table: Bytes) -> None:
    keys = [b"", b"a", b"a\xff", b"a\xff\xff", b"a\xff\xffz", b"b", b"\xff", b"\xff\xff"]
    table.update((key, b"") for key in keys if key)
    snapshot = db.snapshot()
    for prefix in keys:
        assert list(snapshot.keys(table, prefix=prefix)) == sorted(
            key for key in keys if key and key.startswith(prefix)
        )
    with pytest.raises(quenchdb.InvalidArgumentError, match="a prefix, or start and stop"):
        snapshot.range(table, b"a", prefix=b"a")


def test_iterator_is_lazy_and_closed_by_its_snapshot(db: quenchdb.Database, full: Bytes) -> None:
    with db.snapshot() as snapshot:
        rows = snapshot.range(full)
        assert next(rows) == (b"00000", b"v0")
        full.clear()
        assert next(rows) == (b"00001", b"v1")
        assert sum(1 for _ in snapshot.range(full)) == 10_000
    for call in [lambda: next(rows), lambda: snapshot.get(full, b"a"), lambda: snapshot.first(full)]:
        with pytest.raises(quenchdb.InvalidArgumentError, match="the snapshot is closed; take another one"):
            call()


def test_iterator_keeps_its_snapshot(db: quenchdb.Database, full: Bytes) -> None:
    rows = full.range(b"09990")
    full.clear()
    assert len(list(rows)) == 10


def test_exhausted_iterator_stays_exhausted(db: quenchdb.Database, table: Bytes) -> None:
    with db.transaction() as tx:
        rows = tx.range(table)
        assert list(rows) == []
        tx.put(table, b"a", b"1")
        assert list(rows) == []


def test_iterator_sees_writes_that_are_ahead(db: quenchdb.Database, table: Bytes) -> None:
    table.update((b"%03d" % number, b"old") for number in range(100))
    with db.transaction() as tx:
        seen = []
        for key, value in tx.range(table):
            seen.append((key, value))
            number = int(key[:3])
            if number % 10 == 0 and len(key) == 3:
                tx.put(table, key + b"+", b"new")
                tx.delete(table, b"%03d" % (number + 1))
                tx.put(table, b"%03d" % (number + 2), b"new")
                tx.put(table, b"000-behind", b"new")
        expected = []
        for number in range(100):
            if number % 10 != 1:
                expected.append((b"%03d" % number, b"new" if number % 10 == 2 else b"old"))
            if number % 10 == 0:
                expected.append((b"%03d+" % number, b"new"))
        expected.insert(2, (b"000-behind", b"new"))
        assert seen == expected


def test_loop_may_delete_each_row(db: quenchdb.Database, full: Bytes) -> None:
    with db.transaction() as tx:
        for reverse in [False, True]:
            deleted = [tx.delete(full, key) for key in itertools.islice(tx.keys(full, reverse=reverse), 500)]
            assert deleted == [True] * 500
        assert tx.count(full) == 9000


def test_snapshot_does_not_move(db: quenchdb.Database, table: Bytes) -> None:
    table[b"a"] = b"1"
    snapshot = db.snapshot()
    table[b"a"] = b"2"
    assert snapshot.get(table, b"a") == b"1" and snapshot[table][b"a"] == b"1"
    assert snapshot["rows"][b"a"] == b"1"
    assert db.snapshot().csn > snapshot.csn


def test_first_and_last(db: quenchdb.Database, table: Bytes) -> None:
    assert db.snapshot().first(table) is None
    table.update({b"a": b"1", b"b": b"2"})
    assert db.snapshot().first(table) == (b"a", b"1")
    assert db.snapshot().last(table) == (b"b", b"2")


def test_values_of_all_lengths(db: quenchdb.Database, table: Bytes) -> None:
    rows = {b"%08d" % length: random.randbytes(length) for length in [0, 1, 100, 4000, 70_000, 3_000_000]}
    table.update(rows)
    assert dict(table) == rows
    assert dict(table.range(reverse=True)) == rows
    assert all(table[key] == value for key, value in rows.items())


def test_threads_read_from_one_snapshot(db: quenchdb.Database, full: Bytes) -> None:
    snapshot, sums = db.snapshot(), []

    def read() -> None:
        sums.append(sum(len(value) for value in snapshot.values(full)))
        assert all(snapshot.get(full, b"%05d" % number) for number in range(0, 10_000, 7))

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(sums) == 8 and len(set(sums)) == 1


def test_columns_have_all_rows(db: quenchdb.Database, full: Bytes) -> None:
    numpy = pytest.importorskip("numpy")
    columns = quenchdb.Columns(full, rows=3000)
    snapshot, keys, values = db.snapshot(), [], []
    while snapshot.scan_into(columns):
        assert len(columns) in (3000, 1000)
        key_ends = numpy.frombuffer(columns.key_offsets, "<i8")
        value_ends = numpy.frombuffer(columns.value_offsets, "<i8")
        keys += [columns.keys[a:b] for a, b in itertools.pairwise(key_ends)]
        values += [columns.values[a:b] for a, b in itertools.pairwise(value_ends)]
    assert list(zip(keys, values)) == list(full.items())
    assert snapshot.scan_into(columns) == 0 and columns.numpy()[0].size == 0


def test_columns_of_ranges(db: quenchdb.Database, full: Bytes) -> None:
    columns = quenchdb.Columns(full, b"00010", b"00020", reverse=True, include_stop=True, rows=4)
    snapshot, keys = db.snapshot(), []
    while snapshot.scan_into(columns):
        keys += [columns.keys[at : at + 5] for at in range(0, len(columns.keys), 5)]
    assert keys == [b"%05d" % number for number in range(20, 9, -1)]


def test_columns_as_numpy_and_arrow(db: quenchdb.Database) -> None:
    pytest.importorskip("numpy")
    pytest.importorskip("pyarrow")
    table = db.table("numbers", key=quenchdb.INTEGER, value=bytes)
    table.update((number, number.to_bytes(8, "little", signed=True)) for number in range(-500, 500))
    columns = quenchdb.Columns(table)
    db.snapshot().scan_into(columns)
    keys, values = columns.numpy(">u8", "<i8")
    assert (keys - (1 << 63)).astype("i8").tolist() == values.tolist() == list(range(-500, 500))
    with pytest.raises(ValueError, match="the values are not all 4 bytes long"):
        columns.numpy(">u8", "<i4")
    batch = columns.arrow()
    assert batch.num_rows == 1000 and batch.schema.names == ["key", "value"]
    assert batch["value"].to_pylist() == [value for value in table.values()]
