# The native module. Programs use the classes of `quenchdb`, which are subclasses of these.

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar, overload

from ._options import Options, Settings
from ._table import Table as TableOf

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
Path: TypeAlias = str | os.PathLike[str]
Progress: TypeAlias = Callable[[str, int, int], object]
Fields: TypeAlias = tuple[str, str, bytes | None, bytes | None, int | None]

VALUE_BYTES_MAX: int

class Database:
    def __new__(
        cls, place: Path | Standby, how: str, settings: Settings, progress: Progress | None = None
    ) -> Database: ...
    @property
    def closed(self) -> bool:
        """True after ``close``."""
    def close(self) -> None:
        """Makes everything durable and closes the database, so that the next open replays nothing.

        Open transactions count as aborted. Further calls of all objects are errors.
        """
    def tables(self) -> list[str]:
        """Returns the names of all tables, in order."""
    def drop_table(self, name: str) -> None:
        """Drops a table and its rows, durably."""
    def rename_table(self, name: str, new_name: str) -> None:
        """Gives a table another name, durably."""
    def clear_table(self, name: str) -> None:
        """Makes a table empty in one step, durably. Handles of the old table are errors from then on."""
    def flush(self) -> None:
        """Makes everything committed so far durable, of all levels and threads."""
    def prometheus(self) -> str:
        """Returns the statistics in the format of Prometheus."""
    def reset_statistics(self) -> None:
        """Resets latencies and some counters, between a warm-up and a measurement."""
    def _get(self, table: TableOf[K, V], key: Any, default: Any) -> Any: ...
    def _contains(self, table: TableOf[K, V], key: Any) -> bool: ...
    def _report(self, what: str, progress: Progress | None) -> str: ...
    def _backup(self, target: Path, base: Path | None, newest_checkpoint: bool, progress: Progress | None) -> str: ...

class Table:
    def __new__(cls, of: Database | Snapshot, name: str, create: bool, key: Any, value: Any) -> Table: ...
    @property
    def name(self) -> str:
        """The name of the table."""

class Reader:
    @overload
    def get(self, table: TableOf[K, V], key: K, default: None = None) -> V | None:
        """Returns the value of a key, or ``default``."""
    @overload
    def get(self, table: TableOf[K, V], key: K, default: T) -> V | T: ...
    def contains(self, table: TableOf[K, V], key: Any) -> bool:
        """Returns whether a key exists."""
    def first(self, table: TableOf[K, V]) -> tuple[K, V] | None:
        """Returns the row with the lowest key."""
    def last(self, table: TableOf[K, V]) -> tuple[K, V] | None:
        """Returns the row with the highest key."""
    def prefetch(self, table: TableOf[K, V], keys: Iterable[K]) -> None:
        """Brings the pages of rows into memory, many at once."""
    def rows(
        self,
        table: TableOf[K, V],
        what: int,
        start: K | None,
        stop: K | None,
        prefix: K | None,
        include_start: bool,
        include_stop: bool,
        reverse: bool,
    ) -> Rows[Any]: ...
    def _count(
        self,
        table: TableOf[K, V],
        start: K | None,
        stop: K | None,
        prefix: K | None,
        include_start: bool,
        include_stop: bool,
    ) -> int: ...

class Rows(Iterator[T_co], Generic[T_co]):
    def __iter__(self) -> Rows[T_co]: ...
    def __next__(self) -> T_co: ...
    def columns(self, rows_max: int) -> tuple[int, bytes, bytes, bytes, bytes]: ...

class Snapshot(Reader):
    def __new__(cls, of: Database | Standby) -> Snapshot: ...
    @property
    def csn(self) -> int:
        """The CSN of the newest transaction that the snapshot sees."""
    @property
    def closed(self) -> bool:
        """True after ``close``."""
    def close(self) -> None:
        """Releases the snapshot. Its iterators and further reads are errors."""
    def _tables(self) -> list[str]: ...

class Savepoint: ...

class Transaction(Reader):
    def __new__(cls, database: Database, options: Options | None = None) -> Transaction: ...
    @property
    def closed(self) -> bool:
        """True after a commit or rollback."""
    def put(self, table: TableOf[K, V], key: K, value: V) -> None:
        """Sets a row, whether it exists or not."""
    def put_many(self, table: TableOf[K, V], rows: Any) -> int: ...
    def put_new(self, table: TableOf[K, V], key: K, value: V) -> bool:
        """Sets a row if the key does not exist. Returns whether it did."""
    def replace(self, table: TableOf[K, V], key: K, value: V) -> V | None:
        """Sets a row and returns the value before."""
    def delete(self, table: TableOf[K, V], key: K) -> bool:
        """Deletes a row. Returns whether it existed."""
    @overload
    def pop(self, table: TableOf[K, V], key: K, default: None = None) -> V | None:
        """Deletes a row and returns its value, or ``default``."""
    @overload
    def pop(self, table: TableOf[K, V], key: K, default: T) -> V | T: ...
    def pop_end(self, table: TableOf[K, V], last: bool) -> tuple[K, V] | None: ...
    @overload
    def get_for_update(self, table: TableOf[K, V], key: K, default: None = None) -> V | None:
        """Reads a row and locks it against other writers until the transaction ends."""
    @overload
    def get_for_update(self, table: TableOf[K, V], key: K, default: T) -> V | T: ...
    @overload
    def get_for_share(self, table: TableOf[K, V], key: K, default: None = None) -> V | None:
        """Reads a row and locks it against changes until the transaction ends."""
    @overload
    def get_for_share(self, table: TableOf[K, V], key: K, default: T) -> V | T: ...
    def compare_and_set(self, table: TableOf[K, V], key: K, expected: V | None, new: V | None) -> bool: ...
    def add(self, table: TableOf[K, V], key: K, delta: int) -> int:
        """Adds to a counter, a big-endian number of 64 bits, and returns the sum."""
    def _delete_range(
        self,
        table: TableOf[K, V],
        start: K | None,
        stop: K | None,
        prefix: K | None,
        include_start: bool,
        include_stop: bool,
    ) -> int: ...
    def lock_table(self, table: TableOf[K, V], mode: str) -> None:
        """Locks all rows of a table, ``shared`` or ``exclusive``, until the transaction ends."""
    def savepoint(self) -> Savepoint:
        """Returns a point to roll back to."""
    def rollback_to(self, savepoint: Savepoint) -> None:
        """Takes back every change since a savepoint, which stays valid."""
    def has_to_retry(self) -> bool:
        """Returns whether the transaction met another one, so that running it again may succeed."""
    def commit(self) -> int:
        """Commits, and returns the CSN; 0 if nothing was written."""
    def submit(self) -> Commit: ...
    def rollback(self) -> None:
        """Takes everything back. Does nothing if the transaction has ended."""
    def rollback_acknowledging(self) -> None:
        """Takes everything back, and returns once everything that the transaction read is durable."""

class Commit:
    @property
    def csn(self) -> int: ...
    def done(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...
    def poll(self, callback: Callable[[], object]) -> bool: ...

class Changes:
    def __new__(
        cls, database: Database, after: int, table: TableOf[K, V] | None = None, prefix: Any = None
    ) -> Changes: ...
    @property
    def csn(self) -> int:
        """Where a later feed continues: pass it to ``Database.changes``. 0 for a feed of rows."""
    def fetch(self, timeout: float | None) -> tuple[int, list[Fields]] | None: ...

class Standby:
    def __new__(cls, path: Path, settings: Settings) -> Standby: ...
    @property
    def csn(self) -> int:
        """New snapshots show every transaction up to this CSN."""
    @property
    def closed(self) -> bool:
        """True after ``close`` and ``promote``."""
    def wait_for(self, csn: int, timeout: float | None = None) -> bool:
        """Waits until new snapshots show every transaction up to a CSN, at most ``timeout`` seconds.

        Returns whether they do. Raises the reason if the standby cannot follow.
        """
    def close(self) -> None:
        """Ends the standby. Its snapshots can still be read."""
    def _statistics(self) -> str: ...

def verify(path: Path, settings: Settings, progress: Progress | None = None) -> str: ...
def restore(
    backups: list[Path],
    target: Path,
    log: Path | None,
    to: int | None,
    settings: Settings,
    progress: Progress | None = None,
) -> str: ...
def ask_statistics(path: Path) -> str: ...
