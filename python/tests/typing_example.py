"""Not run: mypy --strict checks that the types of a program come out as it expects."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

from typing_extensions import assert_type

import quenchdb


def program(db: quenchdb.Database) -> None:
    users = db.table("users", key=str, value=quenchdb.JSON)
    raw = db.table("raw")
    counted = db.table("counted", key=quenchdb.INTEGER, value=str)
    assert_type(raw, quenchdb.Table[bytes, bytes])
    assert_type(users, quenchdb.Table[str, Any])
    assert_type(counted, quenchdb.Table[int, str])
    assert_type(counted[1], str)
    assert_type(counted.get(1), str | None)
    assert_type(counted.get(1, "?"), str)
    mapping: MutableMapping[int, str] = counted
    mapping.update({1: "a"})
    with db.transaction(isolation="serializable", lock_timeout=0.5) as tx:
        assert_type(tx, quenchdb.Transaction)
        assert_type(tx.get(counted, 1), str | None)
        assert_type(tx.get(counted, 1, "?"), str)
        assert_type(tx.range(counted, 1, 2), Iterator[tuple[int, str]])
        assert_type(tx.keys(counted), Iterator[int])
        assert_type(tx.pop_first(counted), tuple[int, str] | None)
        assert_type(tx[counted][1], str)
        assert_type(tx["raw"][b"a"], bytes)
        assert_type(tx.update(counted, 1, lambda value: None), str | None)
    assert_type(db.transact(lambda tx: tx.add(raw, b"n", 1)), int)
    assert_type(db.statistics().commit.p99_us, float)
    for transaction in db.changes(0):
        assert_type(transaction.changes[0].key, bytes | None)
    quenchdb.open("path", memory_bytes=1 << 20, durability="x")  # type: ignore[call-arg]


async def asynchronous(db: quenchdb.Database) -> None:
    async with db.transaction() as tx:
        assert_type(tx, quenchdb.Transaction)
    assert_type(await db.transaction().commit_async(), int)
    assert_type(await db.transact_async(lambda tx: "x"), str)
