"""Change feeds as iterators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import _native

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Change", "Changes", "CommittedTransaction", "Watch"]


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a row or of a table."""

    #: ``put``, ``patch``, ``delete``, ``create-table``, ``drop-table``, ``rename-table``, ``set-types``.
    kind: str
    #: The name of the table.
    table: str
    #: None if the change is about the table.
    key: bytes | None
    #: The new value of a ``put``; the new bytes of a ``patch``.
    value: bytes | None
    #: Where the bytes of a ``patch`` begin.
    offset: int | None


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """A transaction that no crash takes back, with its changes in order."""

    csn: int
    changes: list[Change]


class Changes(_native.Changes):
    """The committed transactions of a database, in the order of their CSNs.

    Iterating waits for further ones, and ends when the database is closed.
    """

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> CommittedTransaction:
        found = self.next(None)
        if found is None:
            raise StopIteration
        return found

    def next(self, timeout: float | None = None) -> CommittedTransaction | None:
        """Waits at most ``timeout`` seconds. None if there was no transaction, or at the end."""
        found = self.fetch(timeout)
        return found and CommittedTransaction(found[0], [Change(*fields) for fields in found[1]])


class Watch(_native.Changes):
    """The changes of some rows, each with the CSN of its transaction. Iterates as ``Changes``."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[int, Change]:
        found = self.next(None)
        if found is None:
            raise StopIteration
        return found

    def next(self, timeout: float | None = None) -> tuple[int, Change] | None:
        """Waits at most ``timeout`` seconds. None if there was no change, or at the end."""
        found = self.fetch(timeout)
        return found and (found[0], Change(*found[1][0]))
