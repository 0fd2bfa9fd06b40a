"""Commits in asyncio."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

import quenchdb

Bytes = quenchdb.Table[bytes, bytes]


def test_await_makes_durable(db: quenchdb.Database, table: Bytes) -> None:
    async def program() -> None:
        async with db.transaction() as tx:
            tx.put(table, b"a", b"1")
        tx = db.transaction()
        tx.put(table, b"b", b"2")
        commit = tx.commit_async()
        assert db.transaction().get(table, b"b") == b"2"
        assert await commit == commit.csn > 0
        assert commit.done() and commit.wait() and await commit == commit.csn
        with pytest.raises(ValueError, match="mine"):
            async with db.transaction() as tx:
                tx.put(table, b"c", b"3")
                raise ValueError("mine")
        assert dict(table) == {b"a": b"1", b"b": b"2"}

    asyncio.run(program())


def test_hundreds_of_commits_hold_no_thread(db: quenchdb.Database, table: Bytes) -> None:
    before, most = threading.active_count(), 0

    async def write(number: int) -> int:
        nonlocal most
        tx = db.transaction()
        tx.put(table, b"%d" % number, b"v")
        commit = tx.commit_async()
        most = max(most, threading.active_count())
        return await commit

    async def program() -> list[int]:
        return await asyncio.gather(*[write(number) for number in range(500)])

    csns = asyncio.run(program())
    assert len(set(csns)) == 500 and len(table) == 500 and most == before


def test_two_tasks_await_one_commit(db: quenchdb.Database, table: Bytes) -> None:
    async def program() -> None:
        for number in range(100):
            tx = db.transaction()
            tx.put(table, b"a", b"%d" % number)
            commit = tx.commit_async()

            async def wait(commit: quenchdb.Commit = commit) -> int:
                return await commit

            assert await asyncio.gather(wait(), wait(), wait()) == [commit.csn] * 3

    asyncio.run(asyncio.wait_for(program(), 60))


def test_cancelled_wait_leaves_the_commit(db: quenchdb.Database, table: Bytes) -> None:
    async def program() -> None:
        # A lazy commit becomes durable with the next write, so that the wait can be cancelled first.
        tx = db.transaction(durability="lazy")
        tx.put(table, b"a", b"1")
        commit = tx.commit_async()

        async def wait() -> int:
            return await commit

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await commit
        assert commit.done()

    asyncio.run(program())


def test_wait_has_a_timeout(db: quenchdb.Database, table: Bytes) -> None:
    tx = db.transaction()
    tx.put(table, b"a", b"1")
    commit = tx.commit_async()
    assert commit.wait(10.0) and commit.wait(0) and commit.done()
    assert db.transaction().commit_async().csn == 0


def test_loop_may_end_before_its_commits(db: quenchdb.Database, table: Bytes) -> None:
    async def program() -> None:
        tx = db.transaction()
        tx.put(table, b"a", b"1")
        commit = tx.commit_async()

        async def wait() -> int:
            return await commit

        asyncio.ensure_future(wait())
        await asyncio.sleep(0)

    for _ in range(20):
        asyncio.run(program())
    db.flush()
    assert table[b"a"] == b"1"


def test_transact_async_repeats(db: quenchdb.Database, table: Bytes) -> None:
    async def program() -> list[int]:
        add = [db.transact_async(lambda tx: tx.add(table, b"n", 1)) for _ in range(50)]
        return await asyncio.gather(*add)

    assert sorted(asyncio.run(program())) == list(range(1, 51))


def test_transact_async_raises_what_the_function_raises(db: quenchdb.Database, table: Bytes) -> None:
    def fail(tx: quenchdb.Transaction) -> None:
        tx.put(table, b"a", b"1")
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        asyncio.run(db.transact_async(fail))
    assert not table


def test_loop_runs_while_commits_wait(db: quenchdb.Database, table: Bytes) -> None:
    async def program() -> int:
        ticks, ends = 0, time.monotonic() + 0.3

        async def tick() -> None:
            nonlocal ticks
            while time.monotonic() < ends:
                ticks += 1
                await asyncio.sleep(0)

        async def write() -> None:
            while time.monotonic() < ends:
                async with db.transaction() as tx:
                    tx.add(table, b"n", 1)

        await asyncio.gather(tick(), write())
        return ticks

    assert asyncio.run(program()) > 50 and int.from_bytes(table[b"n"], "big") > 5
