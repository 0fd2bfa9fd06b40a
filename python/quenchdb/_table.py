"""Tables as mappings: of a database, of a transaction, of a snapshot."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from typing import TYPE_CHECKING, Any, TypeVar, overload

from . import _native

if TYPE_CHECKING:
    from _typeshed import SupportsKeysAndGetItem

    from ._codecs import Codec
    from ._database import Database, Reads, Transaction

__all__ = ["ReadTable", "Table", "WriteTable"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

_MISSING: Any = object()


def pairs_of(rows: Any, more: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Returns the pairs that ``dict.update`` would take from its arguments."""
    if isinstance(rows, Mapping):
        yield from rows.items()
    elif hasattr(rows, "keys"):
        for key in rows.keys():
            yield key, rows[key]
    else:
        yield from rows
    yield from more.items()


class _Keys(KeysView[K]):
    _mapping: Any

    def __iter__(self) -> Iterator[K]:
        return iter(self._mapping)

    def __reversed__(self) -> Iterator[K]:
        return reversed(self._mapping)  # type: ignore[no-any-return]


class _Values(ValuesView[V]):
    _mapping: Any

    def __iter__(self) -> Iterator[V]:
        return self._mapping._reads().values(self._mapping._handle)  # type: ignore[no-any-return]

    def __reversed__(self) -> Iterator[V]:
        return self._mapping._reads().values(self._mapping._handle, reverse=True)  # type: ignore[no-any-return]

    def __contains__(self, value: object) -> bool:
        return any(value is other or value == other for other in self)


class _Items(ItemsView[K, V]):
    _mapping: Any

    def __iter__(self) -> Iterator[tuple[K, V]]:
        return self._mapping._reads().range(self._mapping._handle)  # type: ignore[no-any-return]

    def __reversed__(self) -> Iterator[tuple[K, V]]:
        return self._mapping._reads().range(self._mapping._handle, reverse=True)  # type: ignore[no-any-return]


class ReadTable(Mapping[K, V]):
    """A table as a mapping of a snapshot or transaction, in the order of the keys."""

    _handle: Table[K, V]
    _reader: Reads

    def __init__(self, reader: Reads, handle: Table[K, V]) -> None:
        self._reader = reader
        self._handle = handle

    def _reads(self) -> Reads:
        return self._reader

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._handle.name

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | T, /) -> V | T: ...
    def get(self, key: K, default: Any = None, /) -> Any:
        """Returns the value of a key, or ``default``."""
        return self._reader.get(self._handle, key, default)

    def __getitem__(self, key: K) -> V:
        value: V = self._reader.get(self._handle, key, _MISSING)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        try:
            return self._reader.contains(self._handle, key)
        except (TypeError, AttributeError):
            return False  # no key of this table

    def __iter__(self) -> Iterator[K]:
        return self._reader.keys(self._handle)

    def __reversed__(self) -> Iterator[K]:
        return self._reader.keys(self._handle, reverse=True)

    def __len__(self) -> int:
        """Counts the rows: reads the keys of the whole table."""
        return self._reader.count(self._handle)

    def __bool__(self) -> bool:
        return self._reader.first(self._handle) is not None

    def keys(self) -> KeysView[K]:
        """Returns a view of the keys, in order. Iterating reads keys only, as it goes."""
        return _Keys(self)

    def values(self) -> ValuesView[V]:
        """Returns a view of the values, in the order of the keys."""
        return _Values(self)

    def items(self) -> ItemsView[K, V]:
        """Returns a view of the rows, in the order of the keys."""
        return _Items(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"


class WriteTable(ReadTable[K, V], MutableMapping[K, V]):
    """A table as a mapping of a transaction."""

    _reader: Transaction

    def __setitem__(self, key: K, value: V) -> None:
        self._reader.put(self._handle, key, value)

    def __delitem__(self, key: K) -> None:
        if not self._reader.delete(self._handle, key):
            raise KeyError(key)

    def pop(self, key: K, default: Any = _MISSING) -> Any:
        """Deletes a row and returns its value."""
        value = self._reader.pop(self._handle, key, default)
        if value is _MISSING:
            raise KeyError(key)
        return value

    def popitem(self) -> tuple[K, V]:
        """Deletes the last row and returns it."""
        row = self._reader.pop_last(self._handle)
        if row is None:
            raise KeyError("the table is empty")
        return row

    def setdefault(self, key: K, default: V = None) -> V:  # type: ignore[assignment]
        """Returns the value of a key, and sets it first if the key is missing."""
        if self._reader.put_new(self._handle, key, default):
            return default
        return self[key]

    def update(self, rows: Any = (), /, **more: V) -> None:
        self._reader.put_many(self._handle, pairs_of(rows, more))

    def clear(self) -> None:
        """Deletes all rows."""
        self._reader.delete_range(self._handle)


class Table(_native.Table, MutableMapping[K, V]):
    """A table of a database: pass it to transactions and snapshots, or use it as a mapping.

    As a mapping, each call is a transaction of its own, durable when it returns; each iteration reads
    one snapshot. Rows are in the order of the bytes of their keys.
    """

    _database: Database

    def __init__(
        self, database: Database, name: str, create: bool, key: type[K] | Codec[K], value: type[V] | Codec[V]
    ) -> None:
        self._database = database

    @property
    def _handle(self) -> Table[K, V]:
        return self

    def _reads(self) -> Reads:
        return self._database.snapshot()

    @property
    def database(self) -> Database:
        """The database of the table."""
        return self._database

    def __getitem__(self, key: K) -> V:
        value: V = self._database._get(self, key, _MISSING)
        if value is _MISSING:
            raise KeyError(key)
        return value

    @overload
    def get(self, key: K, default: None = None, /) -> V | None: ...
    @overload
    def get(self, key: K, default: V | T, /) -> V | T: ...
    def get(self, key: K, default: Any = None, /) -> Any:
        """Returns the value of a key, or ``default``."""
        return self._database._get(self, key, default)

    def __setitem__(self, key: K, value: V) -> None:
        self._database.transact(lambda tx: tx.put(self, key, value))

    def __delitem__(self, key: K) -> None:
        if not self._database.transact(lambda tx: tx.delete(self, key)):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        try:
            return self._database._contains(self, key)
        except (TypeError, AttributeError):
            return False  # no key of this table

    def __iter__(self) -> Iterator[K]:
        return self._reads().keys(self)

    def __reversed__(self) -> Iterator[K]:
        return self._reads().keys(self, reverse=True)

    def __len__(self) -> int:
        """Counts the rows: reads the keys of the whole table."""
        return self._reads().count(self)

    def __bool__(self) -> bool:
        return self._reads().first(self) is not None

    def keys(self) -> KeysView[K]:
        """Returns a view of the keys, in order. Iterating reads keys only, as it goes."""
        return _Keys(self)

    def values(self) -> ValuesView[V]:
        """Returns a view of the values, in the order of the keys."""
        return _Values(self)

    def items(self) -> ItemsView[K, V]:
        """Returns a view of the rows, in the order of the keys."""
        return _Items(self)

    def range(
        self,
        start: K | None = None,
        stop: K | None = None,
        *,
        prefix: K | None = None,
        include_start: bool = True,
        include_stop: bool = False,
        reverse: bool = False,
    ) -> Iterator[tuple[K, V]]:
        """Returns the rows from ``start`` to before ``stop``, of a snapshot of this moment."""
        return self._reads().range(
            self,
            start,
            stop,
            prefix=prefix,
            include_start=include_start,
            include_stop=include_stop,
            reverse=reverse,
        )

    def pop(self, key: K, default: Any = _MISSING) -> Any:
        """Deletes a row and returns its value."""
        value = self._database.transact(lambda tx: tx.pop(self, key, default))
        if value is _MISSING:
            raise KeyError(key)
        return value

    def popitem(self) -> tuple[K, V]:
        """Deletes the last row and returns it."""
        row = self._database.transact(lambda tx: tx.pop_last(self))
        if row is None:
            raise KeyError("the table is empty")
        return row

    def pop_first(self) -> tuple[K, V] | None:
        """Deletes the first row and returns it; None if the table is empty."""
        return self._database.transact(lambda tx: tx.pop_first(self))

    def setdefault(self, key: K, default: V = None) -> V:  # type: ignore[assignment]
        """Returns the value of a key, and sets it first if the key is missing."""
        return self._database.transact(lambda tx: tx[self].setdefault(key, default))

    @overload
    def update(self, rows: SupportsKeysAndGetItem[K, V], /, **more: V) -> None: ...
    @overload
    def update(self, rows: Iterable[tuple[K, V]], /, **more: V) -> None: ...
    @overload
    def update(self, **more: V) -> None: ...
    def update(self, rows: Any = (), /, **more: Any) -> None:  # type: ignore[misc]
        """Sets all rows in one transaction."""
        # A conflict runs the transaction again, and an iterator cannot be read twice.
        rows = list(pairs_of(rows, more))
        self._database.transact(lambda tx: tx.put_many(self, rows))

    def clear(self) -> None:
        """Deletes all rows in one transaction."""
        self._database.transact(lambda tx: tx.delete_range(self))

    def __repr__(self) -> str:
        return f"<Table {self.name!r}>"
