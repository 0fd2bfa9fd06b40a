"""Databases, transactions, snapshots, commits, change feeds."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, overload

from . import _native
from ._errors import Error, LockTimeoutError
from ._table import ReadTable, Table, WriteTable, pairs_of

if TYPE_CHECKING:
    import asyncio
    import datetime
    from types import TracebackType

    from typing_extensions import Self, Unpack

    from ._changes import Changes, Watch
    from ._codecs import Codec
    from ._columns import Columns
    from ._options import Options, Settings
    from ._reports import BackupReport, CheckpointReport, CompactReport, Health, Statistics, VerifyReport
    from ._standby import Standby

    Path = str | os.PathLike[str]
    Progress = Callable[[str, int, int], object]

__all__ = ["Commit", "Database", "Reads", "Savepoint", "Snapshot", "Transaction"]

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

Savepoint = _native.Savepoint

# The rules of the engine's own `transact`.
_ATTEMPTS = 100
_ATTEMPTS_SECONDS = 5.0
_LOCK_WAITS = 3
_PATIENCE_MIN = 0.1

_open_databases: weakref.WeakSet[Database] = weakref.WeakSet()


def _close_all() -> None:
    """Closes what is still open when the interpreter ends, before threads are lost."""
    for database in list(_open_databases):
        try:
            database.close()
        except Error:
            pass  # the next open recovers


def _forget_all() -> None:
    """In a forked child: the databases are the parent's."""
    _open_databases.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_all)


def _seconds(duration: float | datetime.timedelta) -> float:
    return duration if isinstance(duration, (int, float)) else duration.total_seconds()


class Reads(_native.Reader):
    """The reads that transactions and snapshots have in common."""

    def range(
        self,
        table: Table[K, V],
        start: K | None = None,
        stop: K | None = None,
        *,
        prefix: K | None = None,
        include_start: bool = True,
        include_stop: bool = False,
        reverse: bool = False,
    ) -> Iterator[tuple[K, V]]:
        """Returns an iterator over the rows from ``start`` to before ``stop``, or with a prefix.

        The iterator reads as it goes, and is valid until the transaction or snapshot ends.
        """
        return self.rows(table, 0, start, stop, prefix, include_start, include_stop, reverse)

    def keys(
        self,
        table: Table[K, V],
        start: K | None = None,
        stop: K | None = None,
        *,
        prefix: K | None = None,
        include_start: bool = True,
        include_stop: bool = False,
        reverse: bool = False,
    ) -> Iterator[K]:
        """Returns an iterator over keys, as ``range``."""
        return self.rows(table, 1, start, stop, prefix, include_start, include_stop, reverse)

    def values(
        self,
        table: Table[K, V],
        start: K | None = None,
        stop: K | None = None,
        *,
        prefix: K | None = None,
        include_start: bool = True,
        include_stop: bool = False,
        reverse: bool = False,
    ) -> Iterator[V]:
        """Returns an iterator over values, as ``range``."""
        return self.rows(table, 2, start, stop, prefix, include_start, include_stop, reverse)

    def count(
        self,
        table: Table[K, V],
        start: K | None = None,
        stop: K | None = None,
        *,
        prefix: K | None = None,
        include_start: bool = True,
        include_stop: bool = False,
    ) -> int:
        """Returns the number of rows of a range. Reads all of them."""
        return self._count(table, start, stop, prefix, include_start, include_stop)

    def scan_into(self, columns: Columns[Any, Any]) -> int:
        """Reads the next rows of the range of ``columns`` into it, without an object for each row.

        Returns their number, 0 at the end.
        """
        return columns._fill(self)


class Snapshot(_native.Snapshot, Reads):
    """A consistent view of the database. Blocks no writer; what it returns no crash takes back."""

    @overload
    def __getitem__(self, table: Table[K, V]) -> ReadTable[K, V]: ...
    @overload
    def __getitem__(self, table: str) -> ReadTable[bytes, bytes]: ...
    def __getitem__(self, table: Any) -> Any:
        """Returns a table as a mapping of this snapshot."""
        return ReadTable(self, self._database[table] if isinstance(table, str) else table)

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Transaction(_native.Transaction, Reads):
    """A read-write transaction. ``with`` commits it at the end, and takes it back on an exception.

    Calls of several threads come one after the other. An error of a call changes nothing, so that the
    transaction can continue.
    """

    def __init__(self, database: Database, options: Options | None = None) -> None:
        self._database = database

    @overload
    def __getitem__(self, table: Table[K, V]) -> WriteTable[K, V]: ...
    @overload
    def __getitem__(self, table: str) -> WriteTable[bytes, bytes]: ...
    def __getitem__(self, table: Any) -> Any:
        """Returns a table as a mapping of this transaction."""
        return WriteTable(self, self._database[table] if isinstance(table, str) else table)

    def put_many(self, table: Table[K, V], rows: Any) -> int:
        """Sets each row of a mapping or of an iterable of pairs. Returns their number."""
        if hasattr(rows, "keys"):
            rows = pairs_of(rows, {})
        return super().put_many(table, rows)

    def pop_first(self, table: Table[K, V]) -> tuple[K, V] | None:
        """Deletes the row with the lowest key and returns it; None if the table is empty."""
        return self.pop_end(table, False)

    def pop_last(self, table: Table[K, V]) -> tuple[K, V] | None:
        """Deletes the row with the highest key and returns it; None if the table is empty."""
        return self.pop_end(table, True)

    def update(self, table: Table[K, V], key: K, function: Callable[[V | None], V | None]) -> V | None:
        """Sets a row to what ``function`` makes of its value, and returns that.

        The function gets None if there is no row, and returns None to delete it. No other
        transaction changes the row in between. An exception of the function changes nothing.
        """
        before = self.get_for_update(table, key)
        after = function(before)
        if after is not None:
            self.put(table, key, after)
        elif before is not None:
            self.delete(table, key)
        return after

    def compare_and_set(self, table: Table[K, V], key: K, expected: V | None, new: V | None) -> bool:
        """Sets a row to ``new`` if its value is ``expected``; None stands for no row."""
        return super().compare_and_set(table, key, expected, new)

    def delete_range(
        self,
        table: Table[K, V],
        start: K | None = None,
        stop: K | None = None,
        *,
        prefix: K | None = None,
        include_start: bool = True,
        include_stop: bool = False,
    ) -> int:
        """Deletes the rows of a range, and returns their number. Without limits: all rows."""
        return self._delete_range(table, start, stop, prefix, include_start, include_stop)

    def commit_async(self) -> Commit:
        """Commits and returns at once: the changes are visible. Await the result, or call ``wait``."""
        return Commit(self.submit())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.closed:
            return
        if kind is None:
            self.commit()
        else:
            self.rollback()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.closed:
            return
        if kind is None:
            await self.commit_async()
        else:
            self.rollback()


class Commit:
    """A commit that was submitted without waiting. ``await`` it, or ``wait``: then it is durable."""

    def __init__(self, commit: _native.Commit) -> None:
        self._commit = commit
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    @property
    def csn(self) -> int:
        """The commit sequence number; 0 if the transaction wrote nothing."""
        return self._commit.csn

    def done(self) -> bool:
        """Returns whether the transaction is durable."""
        return self._commit.done()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until the transaction is durable, at most ``timeout`` seconds. False if it is not yet."""
        return self._commit.wait(timeout)

    def _wake(self) -> None:
        """Called by a thread of the engine."""
        waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            try:
                loop.call_soon_threadsafe(_resolve, future)
            except RuntimeError:
                pass  # the loop was closed

    def __await__(self) -> Generator[Any, None, int]:
        import asyncio

        loop = asyncio.get_running_loop()
        while True:
            future = loop.create_future()
            # Before the poll, which may call `_wake` at once.
            self._waiting.append((loop, future))
            if self._commit.poll(self._wake):
                self._wake()
                return self.csn
            yield from future.__await__()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Database(_native.Database):
    """An open database. ``with`` closes it. All methods may be called from any thread."""

    def __init__(self, place: Path | Standby, how: str, settings: Settings, progress: Progress | None = None) -> None:
        self._path: Path = place if isinstance(place, (str, os.PathLike)) else place._path
        self._settings = settings
        _open_databases.add(self)

    def __repr__(self) -> str:
        return f"<Database {os.fspath(self._path)!r}{' (closed)' if self.closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Tables

    @overload
    def table(self, name: str, *, create: bool = True) -> Table[bytes, bytes]: ...
    @overload
    def table(self, name: str, *, key: type[K] | Codec[K], create: bool = True) -> Table[K, bytes]: ...
    @overload
    def table(self, name: str, *, value: type[V] | Codec[V], create: bool = True) -> Table[bytes, V]: ...
    @overload
    def table(
        self, name: str, *, key: type[K] | Codec[K], value: type[V] | Codec[V], create: bool = True
    ) -> Table[K, V]: ...
    def table(self, name: str, *, key: Any = bytes, value: Any = bytes, create: bool = True) -> Any:
        """Opens a table; creates it, durably, if it is missing.

        ``key`` and ``value`` say what is in it: ``bytes``, ``str`` (as UTF-8) or a codec, such as
        ``quenchdb.INTEGER`` and ``quenchdb.JSON``. The database does not store them.
        """
        return Table(self, name, create, key, value)

    def __getitem__(self, name: str) -> Table[bytes, bytes]:
        """Opens a table of bytes that exists."""
        return self.table(name, create=False)

    def __contains__(self, name: object) -> bool:
        return name in self.tables()

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names of the tables."""
        return iter(self.tables())

    # Transactions

    def transaction(self, **options: Unpack[Options]) -> Transaction:
        """Begins a transaction, for ``with``: committed at the end, taken back on an exception.

        Options: ``isolation`` ("read-committed", "snapshot", "serializable"), ``locking``
        ("optimistic", "pessimistic"), ``durability`` ("durable", "written", "bounded-loss", "lazy"),
        ``lock_timeout`` (seconds), ``no_wait``, ``read_only``, ``priority``, ``lock_release``.
        """
        return Transaction(self, options or None)

    def snapshot(self) -> Snapshot:
        """Returns a consistent view of this moment, to read from."""
        return Snapshot(self)

    def transact(self, function: Callable[[Transaction], T], **options: Unpack[Options]) -> T:
        """Runs ``function`` in a transaction, commits it, and returns what the function returned.

        If the transaction meets a conflict, a deadlock or a lock timeout, takes it back and runs the
        function again, so it must have no other effects that may not be repeated. Gives up as the
        engine does: after 100 attempts, 5 seconds, or, for lock timeouts, ``transact_wait``.
        """
        attempts = _Attempts(self, options)
        while True:
            tx = Transaction(self, options or None)
            try:
                result = function(tx)
                if not tx.closed:
                    tx.commit()
                return result
            except BaseException as error:
                attempts.end(tx, error)

    async def transact_async(self, function: Callable[[Transaction], T], **options: Unpack[Options]) -> T:
        """Does the same as ``transact``: the function runs in the loop's executor, and no thread
        waits while the commit becomes durable.
        """
        import asyncio

        loop = asyncio.get_running_loop()

        def run() -> tuple[T, Commit | None]:
            attempts = _Attempts(self, options)
            while True:
                tx = Transaction(self, options or None)
                try:
                    result = function(tx)
                    return result, None if tx.closed else tx.commit_async()
                except BaseException as error:
                    attempts.end(tx, error)

        result, commit = await loop.run_in_executor(None, run)
        if commit is not None:
            await commit
        return result

    # Change feeds

    def changes(self, after: int = 0) -> Changes:
        """Returns the transactions that committed after the CSN ``after``, in order; waits for more."""
        from ._changes import Changes

        return Changes(self, after)

    def watch(self, table: Table[K, V], prefix: K | None = None) -> Watch:
        """Returns the changes of rows of a table, from now on; waits for more."""
        from ._changes import Watch

        return Watch(self, 0, table, prefix)

    # Reports

    def checkpoint(self) -> CheckpointReport:
        """Makes a checkpoint now: the next recovery starts there."""
        from ._reports import CheckpointReport

        return CheckpointReport(**self._json("checkpoint"))

    def compact(self, progress: Progress | None = None) -> CompactReport:
        """Gives space of the file of pages back."""
        from ._reports import CompactReport

        return CompactReport(**self._json("compact", progress))

    def backup(
        self,
        target: Path,
        *,
        base: Path | None = None,
        newest_checkpoint: bool = False,
        progress: Progress | None = None,
    ) -> BackupReport:
        """Copies the database to an empty directory, while transactions continue.

        With ``base``, an earlier backup, copies only what has changed since.
        """
        from ._reports import BackupReport, report_of

        return BackupReport(**report_of(self._backup(target, base, newest_checkpoint, progress)))

    def verify(self, progress: Progress | None = None) -> VerifyReport:
        """Checks the whole database, while transactions continue."""
        from ._reports import VerifyReport

        return VerifyReport(**self._json("verify", progress))

    def statistics(self) -> Statistics:
        """Returns the numbers of this moment."""
        from ._reports import statistics_of

        return statistics_of(self._json("statistics"))

    def health(self) -> Health:
        """Returns whether the database works, and why not."""
        from ._reports import Health

        return Health(**self._json("health"))

    @property
    def checkpoint_csn(self) -> int:
        """The newest checkpoint contains every transaction up to this CSN."""
        return int(self._json("facts")["checkpoint_csn"])

    @property
    def max_key_bytes(self) -> int:
        """The length of the longest key."""
        return int(self._json("facts")["max_key_bytes"])

    def open_line(self) -> str:
        """Returns one line that says what was opened: device, durability method, preset, logs."""
        return str(self._json("facts")["open_line"])

    def _json(self, what: str, progress: Progress | None = None) -> dict[str, Any]:
        from ._reports import report_of

        return report_of(self._report(what, progress))


class _Attempts:
    """When `transact` gives up: the rules of the engine's own."""

    def __init__(self, database: Database, options: Options) -> None:
        lock_wait = _seconds(options.get("lock_timeout", database._settings.get("lock_wait", 1.0)))
        usual = max(_LOCK_WAITS * lock_wait, _PATIENCE_MIN)
        self._patience = _seconds(database._settings.get("transact_wait", usual))
        self._begun = time.monotonic()
        self._count = 0

    def end(self, tx: Transaction, error: BaseException) -> None:
        """Ends a transaction whose function or commit raised an exception. Raises it, unless the
        transaction should run again.
        """
        self._count += 1
        retryable = getattr(error, "code", None) in ("conflict", "deadlock", "lock-timeout")
        if not tx.closed:
            retryable = isinstance(error, Exception) and tx.has_to_retry()
            if retryable or not isinstance(error, Exception):
                tx.rollback()
            else:
                tx.rollback_acknowledging()
        if not retryable or self._count >= _ATTEMPTS:
            raise error
        timed_out = isinstance(error, LockTimeoutError)
        most = self._patience if timed_out else max(self._patience, _ATTEMPTS_SECONDS)
        if time.monotonic() - self._begun >= most:
            raise error
        # Some part of it, so that transactions that met do not meet again.
        most_us = 10 << min(self._count, 10)
        time.sleep(time.monotonic_ns() % 1000 * most_us / 1e9)
