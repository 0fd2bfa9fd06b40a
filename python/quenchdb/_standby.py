"""Standbys: copies that follow the process that writes, for reading, and for taking over."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeVar, overload

from . import _native
from ._database import Database, Snapshot
from ._errors import InvalidArgumentError
from ._table import ReadTable, Table

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._codecs import Codec
    from ._database import Path
    from ._options import Settings
    from ._reports import StandbyStatistics

__all__ = ["Standby", "StandbySnapshot"]

K = TypeVar("K")
V = TypeVar("V")


class StandbySnapshot(Snapshot):
    """A snapshot of a standby. It has tables of its own, and may outlive the standby."""

    def __init__(self, standby: Standby) -> None:
        pass

    @overload
    def table(self, name: str) -> Table[bytes, bytes]: ...
    @overload
    def table(self, name: str, *, key: type[K] | Codec[K]) -> Table[K, bytes]: ...
    @overload
    def table(self, name: str, *, value: type[V] | Codec[V]) -> Table[bytes, V]: ...
    @overload
    def table(self, name: str, *, key: type[K] | Codec[K], value: type[V] | Codec[V]) -> Table[K, V]: ...
    def table(self, name: str, *, key: Any = bytes, value: Any = bytes) -> Any:
        """Returns the table of this name, to read from this snapshot; as a mapping, too."""
        of: Any = self
        return Table(of, name, False, key, value)

    def tables(self) -> list[str]:
        """Returns the names of all tables, in order."""
        return self._tables()

    def __getitem__(self, table: Any) -> Any:
        """Returns a table as a mapping of this snapshot."""
        return ReadTable(self, self.table(table) if isinstance(table, str) else table)

    # What a table calls of its database.

    def snapshot(self) -> Self:
        """Returns the snapshot itself."""
        return self

    def _get(self, table: Table[Any, Any], key: Any, default: Any) -> Any:
        return self.get(table, key, default)

    def _contains(self, table: Table[Any, Any], key: Any) -> bool:
        return self.contains(table, key)

    def transact(self, *_: Any, **__: Any) -> Any:
        """Refuses a change."""
        advice = "promote the standby"
        raise InvalidArgumentError(f"a standby can only be read; {advice}", "invalid-argument", advice)


class Standby(_native.Standby):
    """A copy of a database in a store of objects that follows the process that writes.

    Its snapshots show each transaction soon after it is durable; what they show is never taken back.
    All methods may be called from any thread. ``with`` closes it.
    """

    def __init__(self, path: Path, settings: Settings) -> None:
        self._path = path
        self._settings = settings

    def __repr__(self) -> str:
        return f"<Standby {os.fspath(self._path)!r}{' (closed)' if self.closed else ''}>"

    def snapshot(self) -> StandbySnapshot:
        """Returns a consistent view of everything that the standby has applied."""
        return StandbySnapshot(self)

    def statistics(self) -> StandbyStatistics:
        """Returns how far the standby is."""
        from ._reports import StandbyStatistics, report_of

        return StandbyStatistics(**report_of(self._statistics()))

    def promote(self) -> Database:
        """Ends the standby, and opens the database for writing. The writer before is ended.

        The writer's next commit fails. Everything that it has acknowledged is there, and everything
        that the standby has shown. After an exception the standby has ended, too.
        """
        return Database(self, "promote", self._settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
