"""The interface of `plyvel` over `quenchdb`, as far as the tests of plyvel need it. Only for tests."""

from __future__ import annotations

import os
import shutil
from typing import Any

import quenchdb

__leveldb_version__ = "1.0"


class Error(Exception):
    """An error of the database."""


class IOError(Error):
    """The system refused something."""


class IteratorInvalidError(Error):
    """The iterator has no position."""


class DB:
    """A database of one table. Rows are not durable on return without `sync`, as with LevelDB."""

    def __init__(
        self,
        name: Any,
        *,
        create_if_missing: bool = False,
        error_if_exists: bool = False,
        write_buffer_size: int | None = None,
        lru_cache_size: int | None = None,
        compression: Any = "snappy",
        **_: Any,
    ) -> None:
        if not isinstance(name, str):
            raise TypeError("a name is a str")
        if not isinstance(write_buffer_size or 0, int) or not isinstance(lru_cache_size or 0, int):
            raise TypeError("a size is an int")
        if compression not in (None, "snappy"):
            raise ValueError("there is no such compression")
        if error_if_exists and os.path.exists(os.path.join(name, "MANIFEST")):
            raise Error("the database exists")
        try:
            self._db = quenchdb.open(name, create=create_if_missing, memory_bytes=64 << 20)
        except quenchdb.Error as error:
            raise (IOError if error.code == "io" else Error)(str(error)) from error
        self._name, self._prefix, self._table = name, b"", self._db.table("rows")

    @property
    def name(self) -> str:
        return self._name

    @property
    def closed(self) -> bool:
        return self._db.closed

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> DB:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check(self) -> None:
        if self._db.closed:
            raise RuntimeError("the database is closed")

    def _full(self, key: Any) -> bytes:
        return self._prefix + bytes(memoryview(key))

    def get(self, key: Any, default: Any = None, *, verify_checksums: Any = None, fill_cache: Any = None) -> Any:
        self._check()
        return self._table.get(self._full(key), default)

    def put(self, key: Any, value: Any, *, sync: bool = False) -> None:
        with self.write_batch(sync=sync) as batch:
            batch.put(key, value)

    def delete(self, key: Any, *, sync: bool = False) -> None:
        with self.write_batch(sync=sync) as batch:
            batch.delete(key)

    def write_batch(self, *, transaction: bool = False, sync: bool = False) -> WriteBatch:
        self._check()
        return WriteBatch(self, transaction, sync)

    def snapshot(self) -> Snapshot:
        self._check()
        return Snapshot(self)

    def iterator(self, **how: Any) -> Iterator:
        return self.snapshot().iterator(**how)

    def raw_iterator(self, **_: Any) -> RawIterator:
        return self.snapshot().raw_iterator()

    def __iter__(self) -> Iterator:
        return self.iterator()

    def prefixed_db(self, prefix: bytes) -> PrefixedDB:
        return PrefixedDB(self, self, prefix)


class PrefixedDB(DB):
    """The rows with a prefix."""

    def __init__(self, root: DB, parent: DB, prefix: bytes) -> None:
        self.db, self._name = root, root._name
        self._db, self._table, self._prefix = root._db, root._table, parent._prefix + prefix

    def prefixed_db(self, prefix: bytes) -> PrefixedDB:
        return PrefixedDB(self.db, self, prefix)


class WriteBatch:
    """Changes that are made together."""

    def __init__(self, db: DB, transaction: bool, sync: bool) -> None:
        self._db, self._transaction = db, transaction
        self._durability: Any = "durable" if sync else "bounded-loss"
        self._changes: list[tuple[bytes, bytes | None]] = []

    def put(self, key: Any, value: Any) -> None:
        self._db._check()
        self._changes.append((self._db._full(key), bytes(memoryview(value))))

    def delete(self, key: Any) -> None:
        self._db._check()
        self._changes.append((self._db._full(key), None))

    def append(self, other: WriteBatch) -> None:
        self._changes += other._changes

    def clear(self) -> None:
        self._changes.clear()

    def approximate_size(self) -> int:
        return sum(len(key) + len(value or b"") for key, value in self._changes)

    def write(self) -> None:
        self._db._check()

        def change(tx: quenchdb.Transaction) -> None:
            for key, value in self._changes:
                if value is None:
                    tx.delete(self._db._table, key)
                else:
                    tx.put(self._db._table, key, value)

        self._db._db.transact(change, durability=self._durability)

    def __enter__(self) -> WriteBatch:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is None or not self._transaction:
            self.write()
        self.clear()


class Snapshot:
    """A view of the rows."""

    def __init__(self, db: DB) -> None:
        self._of, self._snapshot = db, db._db.snapshot()

    def _check(self) -> None:
        if self._snapshot.closed or self._of.closed:
            raise RuntimeError("the snapshot or its database is closed")

    def get(self, key: Any, default: Any = None, **_: Any) -> Any:
        self._check()
        return self._snapshot.get(self._of._table, self._of._full(key), default)

    def iterator(self, **how: Any) -> Iterator:
        self._check()
        return Iterator(self, **how)

    def raw_iterator(self) -> RawIterator:
        self._check()
        return RawIterator(self)

    def __iter__(self) -> Iterator:
        return self.iterator()

    def close(self) -> None:
        self._snapshot.close()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _behind(prefix: bytes) -> bytes | None:
    """Returns the lowest key above all keys with a prefix."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


class _Positions:
    """Gaps between the rows of a range: each has a row after it and one before it."""

    def __init__(self, snapshot: Snapshot, start: Any, stop: Any, include_start: bool, include_stop: bool) -> None:
        of, prefix = snapshot._of, snapshot._of._prefix
        self.snapshot, self.prefix, self.closed = snapshot, prefix, False
        self.start = (of._full(start), include_start) if start is not None else (prefix, True)
        self.stop = (of._full(stop), include_stop) if stop is not None else (_behind(prefix), False)
        # A gap lies before a key, or, with `after`, behind it.
        self.gap: tuple[bytes | None, bool] = (self.start[0], not self.start[1])

    def check(self) -> None:
        self.snapshot._check()
        if self.closed:
            raise RuntimeError("the iterator is closed")

    def to_start(self) -> None:
        self.check()
        self.gap = (self.start[0], not self.start[1])

    def to_stop(self) -> None:
        self.check()
        self.gap = (self.stop[0], self.stop[1])

    def seek(self, key: bytes) -> None:
        self.check()
        key = self.prefix + key
        if key < self.start[0]:
            self.to_start()
        elif self.stop[0] is not None and key > self.stop[0]:
            self.to_stop()
        else:
            self.gap = (key, False)

    def row_after(self) -> Any:
        """Returns the row after the gap, and moves the gap behind it."""
        self.check()
        key, after = self.gap
        if key is None or (self.stop[0] is not None and key > self.stop[0]):
            return None
        rows = self.snapshot._snapshot.range(
            self.snapshot._of._table, key, self.stop[0], include_start=not after, include_stop=self.stop[1]
        )
        row = next(rows, None)
        self.gap = (row[0], True) if row else self.gap
        return row

    def row_before(self) -> Any:
        """Returns the row before the gap, and moves the gap before it."""
        self.check()
        key, after = self.gap
        rows = self.snapshot._snapshot.range(
            self.snapshot._of._table,
            self.start[0],
            key,
            include_start=self.start[1],
            include_stop=after,
            reverse=True,
        )
        row = next(rows, None)
        self.gap = (row[0], False) if row else self.gap
        return row


class Iterator:
    """Rows of a range, in both directions."""

    def __init__(
        self,
        snapshot: Snapshot,
        reverse: bool = False,
        start: Any = None,
        stop: Any = None,
        include_start: bool = True,
        include_stop: bool = False,
        prefix: Any = None,
        include_key: bool = True,
        include_value: bool = True,
        **_: Any,
    ) -> None:
        if prefix is not None:
            if start is not None or stop is not None:
                raise TypeError("a range has a prefix, or start and stop")
            start, stop, include_start, include_stop = prefix, _behind(prefix), True, False
        self._reverse, self._key, self._value = reverse, include_key, include_value
        self._at = _Positions(snapshot, start, stop, include_start, include_stop)
        if reverse:
            self._at.to_stop()

    def _step(self, forward: bool) -> Any:
        row = self._at.row_after() if forward else self._at.row_before()
        if row is None:
            raise StopIteration
        key, value = row[0][len(self._at.prefix) :], row[1]
        if self._key and self._value:
            return key, value
        return key if self._key else value if self._value else None

    def __iter__(self) -> Iterator:
        return self

    def __next__(self) -> Any:
        return self._step(not self._reverse)

    def prev(self) -> Any:
        return self._step(self._reverse)

    def seek(self, key: bytes) -> None:
        self._at.seek(key)

    def seek_to_start(self) -> None:
        self._at.to_start()

    def seek_to_stop(self) -> None:
        self._at.to_stop()

    def close(self) -> None:
        self._at.closed = True

    def __enter__(self) -> Iterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RawIterator:
    """LevelDB's own iterator: on a row, or not valid."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._at, self._row = _Positions(snapshot, None, None, True, False), None

    def _go(self, forward: bool) -> None:
        self._row = self._at.row_after() if forward else self._at.row_before()

    def valid(self) -> bool:
        self._at.check()
        return self._row is not None

    def seek_to_first(self) -> None:
        self._at.to_start()
        self._go(True)

    def seek_to_last(self) -> None:
        self._at.to_stop()
        self._go(False)

    def seek(self, key: bytes) -> None:
        self._at.seek(key)
        self._go(True)

    def _check(self) -> Any:
        self._at.check()
        if self._row is None:
            raise IteratorInvalidError("the iterator is not on a row")
        return self._row

    def next(self) -> None:
        self._at.gap = (self._check()[0], True)
        self._go(True)

    def prev(self) -> None:
        self._at.gap = (self._check()[0], False)
        self._go(False)

    def key(self) -> bytes:
        return self._check()[0]  # type: ignore[no-any-return]

    def value(self) -> bytes:
        return self._check()[1]  # type: ignore[no-any-return]

    def close(self) -> None:
        self._at.closed = True

    def __enter__(self) -> RawIterator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def destroy_db(name: str) -> None:
    """Removes a database."""
    shutil.rmtree(name)
