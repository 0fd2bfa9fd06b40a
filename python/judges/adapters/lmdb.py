"""The interface of `lmdb` over `quenchdb`, as far as the tests of lmdb need it. Only for tests."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import quenchdb

__version__ = "0"
MAIN = "main"


class Error(Exception):
    """An error; `code` is LMDB's number, 0 if it has none."""

    code = 0


class ReadonlyError(Error):
    """A write in a read-only transaction or environment."""


class InvalidParameterError(Error):
    """Something of another environment or transaction, or something dropped."""


class BadValsizeError(Error):
    """A key without bytes, or a too long one."""


class NotFoundError(Error):
    """There is no such database."""


class MapFullError(Error):
    """The map is full: there is no map here."""


class DbsFullError(Error):
    """Too many databases."""


def version(subpatch: bool = False) -> tuple[int, ...]:
    """LMDB's version that the tests are written for."""
    return (0, 9, 33, 1) if subpatch else (0, 9, 33)


CLOSED = "Attempt to operate on closed/deleted/dropped object."


class _Database:
    """A named database: a table."""

    def __init__(self, env: Environment, table: Any) -> None:
        self.env, self.table, self.dropped = env, table, False

    def flags(self, txn: Any = None) -> dict[str, bool]:
        return dict.fromkeys(("dupfixed", "dupsort", "integerdup", "integerkey", "reverse_key"), False)


class Environment:
    """A database of ours; the write lock is what makes one writer of many."""

    def __init__(self, path: Any, max_dbs: int = 0, readonly: bool = False, create: bool = True, **_: Any) -> None:
        self._path, self.readonly, self.max_dbs = os.fsdecode(path), readonly, max_dbs
        try:
            self._db = quenchdb.open(self._path, read_only=readonly, create=create, memory_bytes=64 << 20)
        except quenchdb.Error as error:
            raise Error(str(error)) from error
        self._write, self._writer = threading.Lock(), None
        self._transactions: weakref.WeakSet[Transaction] = weakref.WeakSet()
        self._databases: dict[str, _Database] = {}
        self._main = self._open(MAIN, create=not readonly)

    def _open(self, name: str, create: bool) -> _Database:
        known = self._databases.get(name)
        if known is not None and not known.dropped:
            return known
        try:
            table = self._db.table(name, create=create)
        except quenchdb.NotFoundError as error:
            raise NotFoundError(str(error)) from error
        self._databases[name] = _Database(self, table)
        return self._databases[name]

    def _check(self) -> None:
        if self._db.closed:
            raise Error(CLOSED)

    def open_db(
        self, key: Any = None, txn: Any = None, create: bool = True, dupsort: Any = False, **_: Any
    ) -> _Database:
        self._check()
        if key is None and dupsort:
            raise ValueError("the main database has no other flags")
        if key is None:
            return self._main
        if dupsort:
            raise Error("dupsort is not supported")
        if not isinstance(key, bytes):
            raise TypeError("a name is bytes")
        name = "sub " + key.decode("latin-1")
        may_create = not self.readonly and (txn is None or txn.write)
        if create and not may_create and name not in self._db:
            raise ReadonlyError("a database cannot be created here")
        return self._open(name, create and may_create)

    def dbs(self, txn: Any = None) -> list[bytes]:
        self._check()
        return [name[4:].encode("latin-1") for name in self._db if name.startswith("sub ")]

    def begin(self, db: Any = None, parent: Any = None, write: bool = False, buffers: bool = False) -> Transaction:
        return Transaction(self, db, parent, write, buffers)

    def path(self) -> str:
        self._check()
        return self._path

    def stat(self) -> dict[str, int]:
        with self.begin() as txn:
            return txn.stat()

    def info(self) -> dict[str, int]:
        self._check()
        return {"last_txnid": self._db.snapshot().csn}

    def flags(self) -> dict[str, bool]:
        self._check()
        return {"readonly": self.readonly}

    def sync(self, force: bool = False) -> None:
        self._check()
        self._db.flush()

    def max_key_size(self) -> int:
        self._check()
        return self._db.max_key_bytes

    def lib_version(self) -> tuple[int, int, int]:
        return (0, 9, 0)

    def close(self) -> None:
        for transaction in list(self._transactions):
            transaction.abort()
        self._db.close()

    def __enter__(self) -> Environment:
        self._check()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


open = Environment


class Transaction:
    """A transaction or, for reading, a snapshot; a nested one is a savepoint."""

    def __init__(
        self, env: Environment, db: Any = None, parent: Any = None, write: bool = False, buffers: bool = False
    ) -> None:
        env._check()
        self.env, self.write, self.buffers, self.parent = env, write, buffers, parent
        self.db = db or env._main
        self.children: list[Transaction] = []
        # Ended, until it has begun.
        self.ended, self.mutations, self._owns = True, 0, False
        if write and env.readonly:
            raise ReadonlyError("the environment is read-only")
        if parent is not None:
            if parent.env is not env or not parent.write or not write:
                raise InvalidParameterError("the parent is of another environment, or read-only")
            self._tx, self._savepoint = parent._tx, parent._tx.savepoint()
            parent.children.append(self)
        elif write:
            if env._writer == threading.get_ident():
                raise Error("this thread has a write transaction")
            env._write.acquire()
            env._writer, self._owns = threading.get_ident(), True
            self._tx = env._db.transaction()
        else:
            self._tx = env._db.snapshot()
        self.ended = False
        env._transactions.add(self)

    def _end(self) -> None:
        if self.ended:
            raise Error(CLOSED)
        for child in self.children:
            child.abort()
        self.ended = True

    def _release(self) -> None:
        if self._owns:
            self.env._writer, self._owns = None, False
            self.env._write.release()

    def commit(self) -> None:
        self._end()
        if self.parent is not None:
            self.parent.mutations += 1
        elif self.write:
            try:
                self._tx.commit()
            finally:
                self._release()
        else:
            self._tx.close()

    def abort(self) -> None:
        if self.ended:
            return
        self._end()
        if self.parent is not None:
            self._tx.rollback_to(self._savepoint)
            self.parent.mutations += 1
        elif self.write:
            self._tx.rollback()
            self._release()
        else:
            self._tx.close()

    def __del__(self) -> None:
        if not getattr(self, "ended", True):
            try:
                self.abort()
            except (Error, quenchdb.Error):
                pass

    def __enter__(self) -> Transaction:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if not self.ended:
            self.abort() if kind else self.commit()

    def _table(self, db: Any) -> Any:
        if self.ended or self.env._db.closed:
            raise Error(CLOSED)
        db = db or self.db
        if db.env is not self.env or db.dropped:
            raise InvalidParameterError("the database was dropped, or is of another environment")
        return db.table

    def _to_write(self, db: Any, key: Any) -> Any:
        table = self._table(db)
        if not self.write:
            raise ReadonlyError("the transaction is read-only")
        self._check_key(key)
        self.mutations += 1
        return table

    def _check_key(self, key: Any) -> None:
        if len(memoryview(key)) == 0 or len(key) > self.env._db.max_key_bytes:
            raise BadValsizeError("a key has from 1 to so many bytes")

    def _out(self, value: Any) -> Any:
        return memoryview(value) if self.buffers and isinstance(value, bytes) else value

    def id(self) -> int:
        """Returns a CSN. LMDB counts transactions from 0, and ours counts created tables, too."""
        self._table(None)
        return getattr(self._tx, "csn", 0)

    def get(self, key: Any, default: Any = None, db: Any = None) -> Any:
        table = self._table(db)
        self._check_key(key)
        return self._out(self._tx.get(table, key, default))

    def put(
        self,
        key: Any,
        value: Any,
        dupdata: bool = True,
        overwrite: bool = True,
        append: bool = False,
        db: Any = None,
    ) -> bool:
        table = self._to_write(db, key)
        if append and (last := self._tx.last(table)) is not None and last[0] >= bytes(key):
            return False
        if overwrite:
            self._tx.put(table, key, value)
            return True
        return self._tx.put_new(table, key, value)

    def replace(self, key: Any, value: Any, db: Any = None) -> Any:
        table = self._to_write(db, key)
        return self._out(self._tx.replace(table, key, value))

    def pop(self, key: Any, db: Any = None) -> Any:
        table = self._to_write(db, key)
        return self._out(self._tx.pop(table, key))

    def delete(self, key: Any, value: Any = b"", db: Any = None) -> bool:
        return self._tx.delete(self._to_write(db, key), key)

    def drop(self, db: _Database, delete: bool = True) -> None:
        table = self._to_write(db, b"x")
        self._tx.delete_range(table)
        # The table itself stays: a drop of ours is a transaction of its own.
        db.dropped = delete

    def stat(self, db: Any = None) -> dict[str, int]:
        entries = self._tx.count(self._table(db))
        return {"psize": 4096, "depth": 1, "branch_pages": 0, "leaf_pages": 1, "overflow_pages": 0, "entries": entries}

    def cursor(self, db: Any = None) -> Cursor:
        return Cursor(self, db)


class Cursor:
    """A position in a table: the row that was read last, by its key."""

    def __init__(self, txn: Transaction, db: Any = None) -> None:
        self.txn, self.db, self._row, self._closed = txn, db, None, False
        self._table()
        self._seen = txn.mutations

    def _table(self) -> Any:
        if self._closed:
            raise Error(CLOSED)
        return self.txn._table(self.db)

    def _move(self, start: Any = None, stop: Any = None, reverse: bool = False, include_start: bool = True) -> bool:
        rows = self.txn._tx.range(self._table(), start, stop, reverse=reverse, include_start=include_start)
        self._row, self._seen = next(rows, None), self.txn.mutations
        return self._row is not None

    def _current(self) -> Any:
        """Returns the row, as it is now; a row behind it if it was deleted."""
        self._table()
        if self._row is not None and self._seen != self.txn.mutations:
            self._move(self._row[0])
        return self._row

    def first(self) -> bool:
        return self._move()

    def last(self) -> bool:
        return self._move(reverse=True)

    def next(self) -> bool:
        return self._move(self._row[0], include_start=False) if self._row else self.first()

    def prev(self) -> bool:
        return self._move(stop=self._row[0], reverse=True) if self._row else self.last()

    def set_key(self, key: Any) -> bool:
        self._table()
        self.txn._check_key(key)
        if self._move(key) and self._row[0] == bytes(key):  # type: ignore[index]
            return True
        self._row = None
        return False

    def set_range(self, key: Any) -> bool:
        return self._move(key)

    def get(self, key: Any, default: Any = None) -> Any:
        return self.value() if self.set_key(key) else default

    def key(self) -> Any:
        return self.txn._out((self._current() or (b"", b""))[0])

    def value(self) -> Any:
        return self.txn._out((self._current() or (b"", b""))[1])

    def item(self) -> Any:
        row = self._current() or (b"", b"")
        return (self.txn._out(row[0]), self.txn._out(row[1]))

    def count(self) -> int:
        if self._current() is None:
            raise InvalidParameterError("the cursor has no position")
        return 1

    def put(self, key: Any, value: Any, **how: Any) -> bool:
        self._table()
        done = self.txn.put(key, value, db=self.db, **how)
        self.set_key(key)
        return done

    def putmulti(self, items: Iterable[Any], dupdata: bool = True, overwrite: bool = True, append: bool = False) -> Any:
        consumed = added = 0
        for item in items:
            if not isinstance(item, tuple) or len(item) != 2:
                raise TypeError("an item is a tuple of key and value")
            consumed += 1
            added += self.txn.put(*item, overwrite=overwrite, append=append, db=self.db)
        return consumed, added

    def getmulti(self, keys: Iterable[Any], dupdata: bool = False, values: bool = True, **_: Any) -> Any:
        found = [(key, self.txn.get(key, db=self.db)) for key in keys]
        return [row if values else row[0] for row in found if row[1] is not None]

    def replace(self, key: Any, value: Any) -> Any:
        before = self.txn.replace(key, value, db=self.db)
        self.set_key(key)
        return before

    def pop(self, key: Any) -> Any:
        value = self.txn.pop(key, db=self.db)
        self.set_range(key)
        return value

    def delete(self, dupdata: bool = False) -> bool:
        row = self._current()
        if row is None:
            return False
        self.txn.delete(row[0], db=self.db)
        self._move(row[0])
        return True

    def _iterate(self, reverse: bool, keys: bool, values: bool) -> Iterator[Any]:
        there = self._current() is not None or (self.last() if reverse else self.first())
        while there:
            row = self.item()
            yield row if keys and values else row[0] if keys else row[1]
            there = self.prev() if reverse else self.next()

    def iternext(self, keys: bool = True, values: bool = True) -> Iterator[Any]:
        self._table()
        return self._iterate(False, keys, values)

    def iterprev(self, keys: bool = True, values: bool = True) -> Iterator[Any]:
        self._table()
        return self._iterate(True, keys, values)

    __iter__ = iternext

    def close(self) -> None:
        self._closed = True

    def __enter__(self) -> Cursor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
