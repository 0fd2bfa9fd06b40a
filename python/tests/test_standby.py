"""Standbys, and databases in several buckets."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

import quenchdb

SECONDS = 30


def test_standby_follows_and_takes_over(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    with pytest.raises(quenchdb.FencedError), quenchdb.open(url, memory_bytes=64 << 20) as db:
        users = db.table("users", key=str, value=quenchdb.JSON)
        users["alice"] = {"city": "Vienna"}
        with quenchdb.open_standby(url, memory_bytes=64 << 20) as standby:
            assert repr(standby) == f"<Standby {url!r}>"
            with db.transaction() as tx:
                tx.put(users, "bob", {"city": "Graz"})
            csn = db.snapshot().csn
            assert standby.wait_for(csn, timeout=SECONDS) and standby.csn >= csn
            snapshot = standby.snapshot()
            assert isinstance(snapshot, quenchdb.StandbySnapshot) and snapshot.csn >= csn
            assert snapshot.tables() == ["users"]
            mine = snapshot.table("users", key=str, value=quenchdb.JSON)
            assert dict(mine) == {"alice": {"city": "Vienna"}, "bob": {"city": "Graz"}}
            assert mine["bob"] == {"city": "Graz"} and "carol" not in mine and len(mine) == 2
            assert snapshot.get(mine, "alice") == {"city": "Vienna"}
            assert list(snapshot["users"]) == [b"alice", b"bob"]
            assert [key for key, _ in mine.range(prefix="b")] == ["bob"]
            statistics = standby.statistics()
            assert statistics.csn >= csn and statistics.transactions >= 1 and statistics.failure is None
            for write in [lambda: mine.clear(), lambda: mine.update({"x": 1}), lambda: mine.pop("alice")]:
                with pytest.raises(quenchdb.InvalidArgumentError, match="a standby can only be read"):
                    write()
            with pytest.raises(quenchdb.NotFoundError):
                snapshot.table("nothing")
            assert not standby.wait_for(csn + 1000, timeout=0.1)

            with standby.promote() as promoted:
                assert standby.closed and repr(standby).endswith("(closed)>")
                assert repr(promoted) == f"<Database {url!r}>"
                assert dict(promoted["users"]).keys() == {b"alice", b"bob"}
                promoted["users"][b"carol"] = b"1"
                with pytest.raises((quenchdb.FencedError, quenchdb.OutcomeUnknownError), match="another process"):
                    users["dora"] = {}
                assert len(mine) == 2  # a snapshot does not change, and outlives its standby
            with pytest.raises(quenchdb.InvalidArgumentError, match="the standby has ended; open it again"):
                standby.snapshot()
            snapshot.close()
            with pytest.raises(quenchdb.InvalidArgumentError, match="the snapshot is closed"):
                mine["alice"]


def test_standby_of_a_directory_takes_over_after_its_writer(tmp_path: Path) -> None:
    path = tmp_path / "db"
    with quenchdb.open(path) as db:
        db.table("users")[b"alice"] = b"1"
        with quenchdb.open_standby(path) as standby:
            assert standby.wait_for(db.snapshot().csn, timeout=SECONDS)
            assert standby.snapshot()["users"][b"alice"] == b"1"
            with pytest.raises(quenchdb.BusyError):
                standby.promote()
        standby = quenchdb.open_standby(path)
        db["users"][b"bob"] = b"2"
        assert standby.wait_for(db.snapshot().csn, timeout=SECONDS)
    with standby.promote() as promoted:
        assert dict(promoted["users"]) == {b"alice": b"1", b"bob": b"2"}
        promoted["users"][b"carol"] = b"3"


def test_standby_of_three_buckets_takes_over(tmp_path: Path) -> None:
    url = ",".join(f"file://{tmp_path / name}" for name in "abc")
    with pytest.raises((quenchdb.FencedError, quenchdb.OutcomeUnknownError)), quenchdb.open(url) as db:
        users = db.table("users")
        standby = quenchdb.open_standby(url)
        users[b"alice"] = b"1"
        assert standby.wait_for(db.snapshot().csn, timeout=SECONDS)
        assert standby.snapshot()["users"][b"alice"] == b"1"
        with standby.promote() as promoted:
            assert dict(promoted["users"]) == {b"alice": b"1"}
            promoted["users"][b"bob"] = b"2"
            users[b"carol"] = b"3"


def test_standby_closes_while_threads_use_it(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/store"
    with quenchdb.open(url) as db:
        db.table("t")[b"a"] = b"1"
        standby = quenchdb.open_standby(url)
        assert standby.wait_for(db.snapshot().csn, timeout=SECONDS)
        ended = threading.Event()

        def work() -> None:
            try:
                while True:
                    assert standby.snapshot()["t"][b"a"] == b"1"
                    standby.wait_for(10**9, timeout=0.01)
            except quenchdb.InvalidArgumentError:
                ended.set()

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        standby.close()
        standby.close()
        for thread in threads:
            thread.join(SECONDS)
        assert ended.is_set() and standby.closed


@pytest.mark.parametrize("acknowledge", ["majority", "all"])
def test_database_in_three_buckets(tmp_path: Path, acknowledge: str) -> None:
    places = [tmp_path / name for name in "abc"]
    url = ",".join(f"file://{place}" for place in places)
    with quenchdb.open(url, acknowledge=acknowledge) as db:  # type: ignore[arg-type]
        db.table("t").update((b"%03d" % number, b"v") for number in range(100))
    assert all(place.exists() for place in places)
    shutil.rmtree(places[1])
    places[1].mkdir()
    with quenchdb.open(url) as db:
        assert len(db["t"]) == 100
        db["t"][b"x"] = b"1"
    with pytest.raises(quenchdb.InvalidArgumentError, match="`acknowledge` cannot be most: there are majority, all"):
        quenchdb.open(url, acknowledge="most")  # type: ignore[arg-type]
