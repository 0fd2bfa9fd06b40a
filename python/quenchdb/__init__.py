"""QuenchDB: an embeddable transactional storage engine.

Ordered tables, ACID transactions from many threads, durable commits that cost one device write::

    import quenchdb

    with quenchdb.open("shop") as db:
        users = db.table("users", key=str, value=quenchdb.JSON)
        with db.transaction() as tx:
            tx.put(users, "alice", {"city": "Vienna"})
        print(users["alice"])
"""

from __future__ import annotations

import os
import sys as _sys
import typing as _typing

if not getattr(_sys, "_is_gil_enabled", lambda: True)():
    raise ImportError(
        "quenchdb does not support an interpreter without the interpreter lock (free-threaded CPython); "
        "start it with PYTHON_GIL=1 or -X gil=1, or use the ordinary build"
    )

from . import _native
from ._codecs import INTEGER, JSON, PICKLE, Codec
from ._database import Commit, Database, Reads, Savepoint, Snapshot, Transaction
from ._errors import (
    AlreadyExistsError,
    BusyError,
    ConflictError,
    CorruptionError,
    DeadlockError,
    Error,
    FellBehindError,
    FencedError,
    ForkedError,
    InvalidArgumentError,
    IoError,
    LockTimeoutError,
    NotFoundError,
    OutcomeUnknownError,
    OutOfMemoryError,
    OutOfSpaceError,
    PanicError,
    PoisonedError,
    RetryableError,
    UnsupportedError,
)
from ._table import ReadTable, Table, WriteTable

if _typing.TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Unpack

    from ._changes import Change, Changes, CommittedTransaction, Watch
    from ._columns import Columns
    from ._database import Path, Progress
    from ._options import Settings
    from ._reports import (
        BackupReport,
        CheckpointReport,
        CompactReport,
        Health,
        Latency,
        RestoreReport,
        StandbyStatistics,
        Statistics,
        VerifyReport,
    )
    from ._standby import Standby, StandbySnapshot

# Modules that `import quenchdb` does not need.
_LATER = {
    "_changes": ("Change", "Changes", "CommittedTransaction", "Watch"),
    "_columns": ("Columns",),
    "_reports": (
        "BackupReport",
        "CheckpointReport",
        "CompactReport",
        "Health",
        "Latency",
        "RestoreReport",
        "StandbyStatistics",
        "Statistics",
        "VerifyReport",
    ),
    "_standby": ("Standby", "StandbySnapshot"),
}

__all__ = [
    "INTEGER",
    "JSON",
    "PICKLE",
    "VALUE_BYTES_MAX",
    "AlreadyExistsError",
    "BackupReport",
    "BusyError",
    "Change",
    "Changes",
    "CheckpointReport",
    "Codec",
    "Columns",
    "Commit",
    "CommittedTransaction",
    "CompactReport",
    "ConflictError",
    "CorruptionError",
    "Database",
    "DeadlockError",
    "Error",
    "FellBehindError",
    "FencedError",
    "ForkedError",
    "Health",
    "InvalidArgumentError",
    "IoError",
    "Latency",
    "LockTimeoutError",
    "NotFoundError",
    "OutOfMemoryError",
    "OutOfSpaceError",
    "OutcomeUnknownError",
    "PanicError",
    "PoisonedError",
    "ReadTable",
    "Reads",
    "RestoreReport",
    "RetryableError",
    "Savepoint",
    "Snapshot",
    "Standby",
    "StandbySnapshot",
    "StandbyStatistics",
    "Statistics",
    "Table",
    "Transaction",
    "UnsupportedError",
    "VerifyReport",
    "Watch",
    "WriteTable",
    "ask_statistics",
    "open",
    "open_checkpoint",
    "open_in_memory",
    "open_standby",
    "restore",
    "verify",
]

#: The longest value, in bytes.
VALUE_BYTES_MAX: int = _native.VALUE_BYTES_MAX


def __getattr__(name: str) -> _typing.Any:
    for module, names in _LATER.items():
        if name in names:
            import importlib

            found = getattr(importlib.import_module(f".{module}", __name__), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open(path: Path, *, progress: Progress | None = None, **settings: Unpack[Settings]) -> Database:
    """Opens the database in a directory, and creates it if it is missing.

    ``path`` may be a URL, such as ``file:///path``. ``progress(what, done, all)`` is called now and
    then while a database that was not closed is recovered. The guide lists the settings.
    """
    return Database(path, "open", settings, progress)


def open_checkpoint(path: Path, **settings: Unpack[Settings]) -> Database:
    """Opens the newest checkpoint of a database for reading, while another process may write to it."""
    return Database(path, "checkpoint", settings)


def open_in_memory(**settings: Unpack[Settings]) -> Database:
    """Opens a new database in memory, which is gone when it is closed."""
    return Database("memory", "memory", settings)


def open_standby(path: Path, **settings: Unpack[Settings]) -> Standby:
    """Opens a standby: a copy for reading that follows the process that writes, and can take its place.

    ``path`` is a directory, the URL of a store of objects, or a list of URLs with commas. The settings
    are those of the copy, and of ``Standby.promote``, which raises ``BusyError`` while another process
    has the directory open.
    """
    from ._standby import Standby

    return Standby(path, settings)


def verify(path: Path, *, progress: Progress | None = None, **settings: Unpack[Settings]) -> VerifyReport:
    """Checks a database that no process has open for writing, and changes nothing."""
    from ._reports import VerifyReport, report_of

    return VerifyReport(**report_of(_native.verify(path, settings, progress)))


def restore(
    backups: Iterable[Path],
    target: Path,
    *,
    log: Path | None = None,
    to: int | None = None,
    progress: Progress | None = None,
    **settings: Unpack[Settings],
) -> RestoreReport:
    """Makes a database in an empty directory: of a full backup and the increments that follow it.

    With ``log``, the directory of the original or a copy of it, replays what came after the last
    backup, up to the CSN ``to``.
    """
    from ._reports import RestoreReport, report_of

    if isinstance(backups, (str, os.PathLike)):
        raise TypeError("backups: give a list of backups, the full one first")
    return RestoreReport(**report_of(_native.restore(list(backups), target, log, to, settings, progress)))


def ask_statistics(path: Path) -> str:
    """Asks the process that has a database open for its statistics, in the format of Prometheus."""
    return _native.ask_statistics(path)
