"""Copies a database of SQLite, LMDB, RocksDB or LevelDB into one of QuenchDB.

    python -m quenchdb.migrate SOURCE TARGET [--from KIND] [--tables NAME ...] [--resume]

Each table, named database or column family becomes a table of bytes of the same name. Their Python packages read
them: `sqlite3` (part of Python), `lmdb`, `rocksdict`, `plyvel`. A run that was interrupted continues with `--resume`,
behind the last row that was stored. The source is only read.

Rows of SQLite: the key is the primary key, in its order, and the value is the row as a JSON object, in which bytes are
`{"$bytes": "base64"}`. A primary key of one text or blob is stored as it is, and one integer as `quenchdb.INTEGER`
writes it. Of several columns each one is stored so, one behind the other, as Rust's typed tables write tuples: in a
text or blob before another column each byte 0 becomes 0, 255, and 0, 1 follows it. Other keys are refused.
"""

from __future__ import annotations

import argparse
import base64
import itertools
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import quenchdb

__all__ = ["KINDS", "Source", "kind_of", "main", "migrate"]

Row = tuple[bytes, bytes]

#: Rows that one transaction stores.
BATCH = 10_000
#: The table that says how far each table was copied, while a copy is not complete.
STATE = "quenchdb.migrate"


class Refused(Exception):
    """Something that cannot be copied, with the reason and what to do."""


class Source:
    """A database to be copied: tables, and their rows in the order of their keys."""

    def tables(self) -> list[str]:
        """Returns the names of the tables."""
        raise NotImplementedError

    def rows(self, table: str, after: bytes | None) -> Iterator[Row]:
        """Returns the rows of a table behind a key."""
        raise NotImplementedError

    def close(self) -> None:
        """Closes the database."""


def _package(name: str) -> Any:
    try:
        return __import__(name)
    except ImportError as error:
        raise Refused(f"the package {name} reads such a database, and is not installed: pip install {name}") from error


def _behind(rows: Iterable[Row], after: bytes | None) -> Iterator[Row]:
    """Leaves out a first row that is the one before."""
    return (row for row in rows if row[0] != after)


class Sqlite(Source):
    """A database of SQLite."""

    def __init__(self, path: Path) -> None:
        sqlite3 = _package("sqlite3")
        self._connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
        # One moment for all tables.
        self._connection.execute("BEGIN")

    def tables(self) -> list[str]:
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
        return [name for (name,) in self._connection.execute(query)]

    def rows(self, table: str, after: bytes | None) -> Iterator[Row]:
        columns = list(self._connection.execute(f"PRAGMA table_info({_quoted(table)})"))
        keyed = sorted((column[5], column[1]) for column in columns if column[5])
        keys = [_quoted(name) for _, name in keyed] or ["rowid"]
        kinds = [self._kind(table, key) for key in keys]
        # A collation of a column would be another order than that of the bytes.
        order = [f"{key} COLLATE BINARY" if kind == "text" else key for key, kind in zip(keys, kinds)]
        query, bound = f"SELECT {', '.join(keys)}, * FROM {_quoted(table)}", []
        if after is not None:
            bound = _sqlite_values(kinds, after)
            query += f" WHERE ({', '.join(order)}) > ({', '.join('?' * len(order))})"
        names = [column[1] for column in columns]
        for row in self._connection.execute(f"{query} ORDER BY {', '.join(order)}", bound):
            fields = dict(zip(names, row[len(keys) :]))
            yield (
                _sqlite_key(row[: len(keys)]),
                json.dumps(fields, ensure_ascii=False, default=_sqlite_bytes).encode(),
            )

    def _kind(self, table: str, key: str) -> str:
        query = f"SELECT group_concat(DISTINCT typeof({key})) FROM {_quoted(table)}"
        kind: str = self._connection.execute(query).fetchone()[0] or "integer"
        if kind not in ("integer", "text", "blob"):
            raise Refused(f"the primary keys {key} of {table} are {kind}: leave the table out with --tables")
        return kind

    def close(self) -> None:
        self._connection.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _sqlite_key(key: tuple[Any, ...]) -> bytes:
    parts = []
    for at, part in enumerate(key):
        if isinstance(part, int):
            parts.append(quenchdb.INTEGER.encode(part))
            continue
        data = part.encode() if isinstance(part, str) else bytes(part)
        # Before another column, the end of a shorter one sorts before each byte of a longer one.
        parts.append(data if at == len(key) - 1 else data.replace(b"\0", b"\0\xff") + b"\0\1")
    return b"".join(parts)


def _sqlite_values(kinds: list[str], key: bytes) -> list[Any]:
    values: list[Any] = []
    for at, kind in enumerate(kinds):
        if kind == "integer":
            values.append(quenchdb.INTEGER.decode(key[:8]))
            key = key[8:]
            continue
        data, key = (key, b"") if at == len(kinds) - 1 else key.split(b"\0\1", 1)
        if at < len(kinds) - 1:
            data = data.replace(b"\0\xff", b"\0")
        values.append(data.decode() if kind == "text" else data)
    return values


def _sqlite_bytes(value: Any) -> Any:
    return {"$bytes": base64.b64encode(value).decode()}


class Lmdb(Source):
    """An environment of LMDB: its main database, or its named ones."""

    def __init__(self, path: Path) -> None:
        lmdb = _package("lmdb")
        self._env = lmdb.open(str(path), readonly=True, max_dbs=4096, subdir=path.is_dir(), lock=True)
        self._txn = self._env.begin()
        self._named: dict[str, Any] = {}
        for name in [key for key, _ in self._txn.cursor()]:
            try:
                self._named[name.decode()] = self._env.open_db(name, txn=self._txn, create=False)
            except (lmdb.Error, UnicodeDecodeError):
                continue  # a row of the main database

    def tables(self) -> list[str]:
        return list(self._named) or ["main"]

    def rows(self, table: str, after: bytes | None) -> Iterator[Row]:
        db = self._named.get(table)
        if db is not None and db.flags(self._txn)["dupsort"]:
            raise Refused(f"{table} has several values for a key (dupsort): leave it out with --tables")
        cursor = self._txn.cursor(db=db)
        if after is None or cursor.set_range(after):
            yield from _behind(cursor.iternext(), after)

    def close(self) -> None:
        self._txn.abort()
        self._env.close()


class Rocksdb(Source):
    """A database of RocksDB: its column families, with raw bytes."""

    def __init__(self, path: Path) -> None:
        self._rocksdict = _package("rocksdict")
        options = self._rocksdict.Options(raw_mode=True)
        self._names = self._rocksdict.Rdict.list_cf(str(path))
        families = {name: options for name in self._names if name != "default"}
        access = self._rocksdict.AccessType.read_only()
        self._db = self._rocksdict.Rdict(str(path), options, column_families=families or None, access_type=access)

    def tables(self) -> list[str]:
        return list(self._names)

    def rows(self, table: str, after: bytes | None) -> Iterator[Row]:
        family = self._db if table == "default" else self._db.get_column_family(table)
        return _behind(family.items(from_key=after), after)

    def close(self) -> None:
        self._db.close()


class Leveldb(Source):
    """A database of LevelDB."""

    def __init__(self, path: Path) -> None:
        self._db = _package("plyvel").DB(str(path), create_if_missing=False)

    def tables(self) -> list[str]:
        return ["main"]

    def rows(self, table: str, after: bytes | None) -> Iterator[Row]:
        rows: Iterator[Row] = self._db.iterator(start=after, include_start=False)
        return rows

    def close(self) -> None:
        self._db.close()


#: The kinds of databases, by their names.
KINDS: dict[str, Any] = {"sqlite": Sqlite, "lmdb": Lmdb, "rocksdb": Rocksdb, "leveldb": Leveldb}


def kind_of(path: Path) -> str:
    """Returns the kind of the database at a path, by its files."""
    if path.is_file():
        with path.open("rb") as file:
            return "sqlite" if file.read(16) == b"SQLite format 3\0" else "lmdb"
    if (path / "data.mdb").exists():
        return "lmdb"
    if (path / "CURRENT").exists():
        return "rocksdb" if list(path.glob("OPTIONS-*")) else "leveldb"
    raise Refused(f"{path}: no database of SQLite, LMDB, RocksDB or LevelDB is there: check the path, or give --from")


def migrate(
    source: Source,
    target: quenchdb.Database,
    *,
    tables: Iterable[str] | None = None,
    resume: bool = False,
    report: Any = None,
) -> int:
    """Copies tables, and returns the number of rows that were stored.

    ``report(table, rows)`` is called after each transaction. A target that has one of the tables is refused, unless
    ``resume`` continues a copy.
    """
    there = source.tables()
    names = there if tables is None else list(tables)
    if missing := [name for name in names if name not in there]:
        raise Refused(f"there is no table {', '.join(missing)} in the source; there are {', '.join(there)}")
    if not resume and (
        known := [name for name in names if name in target] or [name for name in [STATE] if name in target]
    ):
        raise Refused(f"the target has {', '.join(known)} already: choose another target, or continue with --resume")
    state, total = target.table(STATE, key=str), 0
    for name in names:
        # The position of the copy: nothing at first, a mark and the last key, or the end.
        position = state.get(name, b"")
        if position == b"end":
            continue
        total += _copy(source.rows(name, position[1:] or None), target.table(name), state, report)
    target.drop_table(STATE)
    return total


def _copy(rows: Iterator[Row], table: Any, state: Any, report: Any) -> int:
    total = 0
    while batch := list(itertools.islice(rows, BATCH)):
        with table.database.transaction() as tx:
            tx.put_many(table, batch)
            tx.put(state, table.name, b"+" + batch[-1][0])
        total += len(batch)
        if report is not None:
            report(table.name, total)
    state[table.name] = b"end"
    return total


def main(arguments: list[str] | None = None) -> int:
    """Runs the program. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m quenchdb.migrate", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", help="a directory, which is created if it is missing")
    parser.add_argument(
        "--from", dest="kind", choices=list(KINDS), help="the kind of the source, if its files do not say it"
    )
    parser.add_argument("--tables", nargs="+", metavar="NAME", help="only these tables")
    parser.add_argument("--resume", action="store_true", help="continue a copy that was interrupted")
    parser.add_argument("--quiet", action="store_true", help="no progress")
    given = parser.parse_args(arguments)
    begun = time.monotonic()

    def report(table: str, rows: int) -> None:
        if not given.quiet:
            print(
                f"\r{table}: {rows:,} rows, {rows / max(time.monotonic() - begun, 1e-9):,.0f}/s ",
                end="",
                file=sys.stderr,
            )

    try:
        source: Source = KINDS[given.kind or kind_of(given.source)](given.source)
        try:
            with quenchdb.open(given.target) as target:
                rows = migrate(source, target, tables=given.tables, resume=given.resume, report=report)
        finally:
            source.close()
    except (Refused, quenchdb.Error, OSError) as error:
        print(f"{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted: continue with --resume", file=sys.stderr)
        return 130
    print(f"{'' if given.quiet else chr(10)}{rows:,} rows in {time.monotonic() - begun:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
