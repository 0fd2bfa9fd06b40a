"""Copies from other engines."""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import quenchdb
from quenchdb import migrate

ROWS = {b"%05d" % number: b"v%d" % number for number in range(25_000)}


def make_lmdb(path: Path) -> None:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(path), map_size=1 << 28, max_dbs=4) as env:
        names = [env.open_db(name) for name in [b"first", b"second"]]
        for db in names:
            with env.begin(write=True, db=db) as txn:
                txn.cursor().putmulti(list(ROWS.items()))


def make_rocksdb(path: Path) -> None:
    rocksdict = pytest.importorskip("rocksdict")
    db = rocksdict.Rdict(str(path), rocksdict.Options(raw_mode=True))
    second = db.create_column_family("second", rocksdict.Options(raw_mode=True))
    for key, value in ROWS.items():
        db[key] = value
        second[key] = value
    second.close()
    db.close()


def make_leveldb(path: Path) -> None:
    plyvel = pytest.importorskip("plyvel")
    with plyvel.DB(str(path), create_if_missing=True) as db, db.write_batch() as batch:
        for key, value in ROWS.items():
            batch.put(key, value)


MAKERS = {"lmdb": make_lmdb, "rocksdb": make_rocksdb, "leveldb": make_leveldb}
TABLES = {"lmdb": ["first", "second"], "rocksdb": ["default", "second"], "leveldb": ["main"]}


@pytest.mark.parametrize("kind", list(MAKERS))
def test_copy_has_all_rows(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    MAKERS[kind](tmp_path / "source")
    assert migrate.kind_of(tmp_path / "source") == kind
    assert migrate.main([str(tmp_path / "source"), str(tmp_path / "target")]) == 0
    assert f"{len(TABLES[kind]) * len(ROWS):,} rows in" in capsys.readouterr().out
    with quenchdb.open(tmp_path / "target") as db:
        assert db.tables() == TABLES[kind]
        assert all(dict(db[name]) == ROWS for name in TABLES[kind])


@pytest.mark.parametrize("kind", list(MAKERS))
def test_interrupted_copy_continues(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MAKERS[kind](tmp_path / "source")
    monkeypatch.setattr(migrate, "BATCH", 1000)
    original, reads = migrate.KINDS[kind].rows, []

    def interrupted(self: Any, table: str, after: bytes | None) -> Any:
        reads.append((table, after))
        yield from itertools.islice(original(self, table, after), 10_500)
        raise KeyboardInterrupt

    monkeypatch.setattr(migrate.KINDS[kind], "rows", interrupted)
    arguments = [str(tmp_path / "source"), str(tmp_path / "target"), "--quiet"]
    assert migrate.main(arguments) == 130
    assert migrate.main(arguments) == 1
    assert migrate.main([*arguments, "--resume"]) == 130
    monkeypatch.setattr(migrate.KINDS[kind], "rows", original)
    assert migrate.main([*arguments, "--resume"]) == 0
    assert [after for _, after in reads] == [None, b"09999"]
    with quenchdb.open(tmp_path / "target") as db:
        assert db.tables() == TABLES[kind] and all(dict(db[name]) == ROWS for name in TABLES[kind])


@pytest.fixture
def sqlite(tmp_path: Path) -> Path:
    path = tmp_path / "source.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, picture BLOB)")
        connection.execute("CREATE TABLE words (word TEXT PRIMARY KEY COLLATE NOCASE, count INTEGER) WITHOUT ROWID")
        connection.execute("CREATE TABLE log (line TEXT)")
        connection.execute("CREATE TABLE mixed (a, b, PRIMARY KEY (a, b))")
        connection.executemany("INSERT INTO mixed VALUES (?, ?)", [(1, 1), ("x", 2)])
        connection.execute("CREATE TABLE parts (n, b BLOB, a TEXT COLLATE NOCASE, PRIMARY KEY (a, n, b))")
        parts = itertools.product([3, -1], [b"", b"\0", b"\0\xff", b"\xff"], ["", "a", "B", "a\0", "a\0b", "ab"])
        connection.executemany("INSERT INTO parts VALUES (?, ?, ?)", parts)
        connection.executemany(
            "INSERT INTO users VALUES (?, ?, ?)", [(-2, "Ä", b"\xff"), (7, None, None), (1, "x", b"")]
        )
        connection.executemany("INSERT INTO words VALUES (?, ?)", [("b", 1), ("C", 2), ("ä", 3)])
        connection.executemany("INSERT INTO log VALUES (?)", [("one",), ("two",)])
    connection.close()
    return path


def test_rows_of_sqlite_are_objects(sqlite: Path, tmp_path: Path) -> None:
    assert migrate.main([str(sqlite), str(tmp_path / "target"), "--tables", "users", "words", "log"]) == 0
    with quenchdb.open(tmp_path / "target") as db:
        users = db.table("users", key=quenchdb.INTEGER, value=quenchdb.JSON)
        assert list(users) == [-2, 1, 7]
        assert users[-2] == {"id": -2, "name": "Ä", "picture": {"$bytes": "/w=="}}
        words = db.table("words", key=str, value=quenchdb.JSON)
        assert dict(words) == {
            "C": {"word": "C", "count": 2},
            "b": {"word": "b", "count": 1},
            "ä": {"word": "ä", "count": 3},
        }
        assert list(db.table("log", key=quenchdb.INTEGER, value=quenchdb.JSON).values()) == [
            {"line": "one"},
            {"line": "two"},
        ]


def test_keys_of_several_columns_are_in_their_order(sqlite: Path, tmp_path: Path) -> None:
    assert migrate.main([str(sqlite), str(tmp_path / "target"), "--tables", "parts"]) == 0
    with quenchdb.open(tmp_path / "target") as db:
        rows = [migrate._sqlite_values(["text", "integer", "blob"], key) for key in db["parts"]]
        assert rows == sorted(rows) and len(rows) == 48
        key = b"a\0\xff\0\1" + quenchdb.INTEGER.encode(-1) + b"\0\xff"
        assert db.table("parts", value=quenchdb.JSON)[key] == {"n": -1, "b": {"$bytes": "AP8="}, "a": "a\0"}


@pytest.mark.parametrize("table", ["users", "words", "log", "parts"])
def test_copy_of_sqlite_continues_behind_each_row(sqlite: Path, tmp_path: Path, table: str) -> None:
    source = migrate.Sqlite(sqlite)
    rows = list(source.rows(table, None))
    for at, (key, _) in enumerate(rows):
        assert list(source.rows(table, key)) == rows[at + 1 :]
    source.close()


def test_what_cannot_be_copied_is_said(sqlite: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, message in [
        ([str(sqlite), str(tmp_path / "t1")], "of mixed are integer,text: leave the table out"),
        ([str(sqlite), str(tmp_path / "t2"), "--tables", "none"], "there is no table none in the source; there are"),
        ([str(tmp_path), str(tmp_path / "t3")], "no database of SQLite, LMDB, RocksDB or LevelDB is there"),
    ]:
        assert migrate.main(arguments) == 1
        assert message in capsys.readouterr().err
