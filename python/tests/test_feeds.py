"""Change feeds."""

from __future__ import annotations

import threading

import pytest

import quenchdb

Bytes = quenchdb.Table[bytes, bytes]


def test_feed_returns_transactions_in_order(db: quenchdb.Database, table: Bytes) -> None:
    feed = db.changes(db.snapshot().csn)
    with db.transaction() as tx:
        tx.put(table, b"a", b"1")
        tx.put(table, b"b", b"2")
    del table[b"a"]
    db.table("more")
    first, second, third = next(feed), next(feed), next(feed)
    Change = quenchdb.Change
    assert first.changes == [Change("put", "rows", b"a", b"1", None), Change("put", "rows", b"b", b"2", None)]
    assert second.changes == [Change("delete", "rows", b"a", None, None)]
    assert third.changes == [Change("create-table", "more", None, None, None)]
    assert first.csn < second.csn < third.csn <= feed.csn
    assert feed.next(0) is None and feed.next(0.01) is None
    assert next(db.changes(first.csn)) == second


def test_feed_begins_with_the_database(db: quenchdb.Database, table: Bytes) -> None:
    assert next(db.changes()).changes == [quenchdb.Change("create-table", "rows", None, None, None)]
    with pytest.raises(quenchdb.InvalidArgumentError, match="a change feed begins at CSN 1000000"):
        db.changes(1_000_000)


def test_feed_waits_and_ends_with_the_database(db: quenchdb.Database, table: Bytes) -> None:
    feed, seen = db.changes(db.snapshot().csn), []
    began = threading.Event()

    def follow() -> None:
        began.set()
        for transaction in feed:
            seen.extend(change.key for change in transaction.changes)

    thread = threading.Thread(target=follow)
    thread.start()
    began.wait()
    for number in range(20):
        table[b"%02d" % number] = b""
    while len(seen) < 20:
        thread.join(0.01)
    db.close()
    thread.join(10)
    assert not thread.is_alive() and seen == [b"%02d" % number for number in range(20)]


def test_watch_returns_rows_with_a_prefix(db: quenchdb.Database, table: Bytes) -> None:
    watch = db.watch(table, b"a/")
    table.update({b"a/1": b"x", b"b/1": b"y"})
    csn, change = next(watch)
    assert csn > 0 and change == quenchdb.Change("put", "rows", b"a/1", b"x", None)
    assert watch.next(0.01) is None
    everything = db.watch(table)
    table[b"b"] = b"z"
    found = everything.next(10)
    assert found is not None and found[1].key == b"b"
