"""The exceptions of the package: one class for each code of the engine."""

from __future__ import annotations

__all__ = [
    "AlreadyExistsError",
    "BusyError",
    "ConflictError",
    "CorruptionError",
    "DeadlockError",
    "Error",
    "FellBehindError",
    "FencedError",
    "ForkedError",
    "InvalidArgumentError",
    "IoError",
    "LockTimeoutError",
    "NotFoundError",
    "OutOfMemoryError",
    "OutOfSpaceError",
    "OutcomeUnknownError",
    "PanicError",
    "PoisonedError",
    "RetryableError",
    "UnsupportedError",
]


class Error(Exception):
    """An error of the engine: what happened, where, and what to do.

    Match on the class, or on ``code``, a short word that does not change from version to version.
    """

    #: A short word for programs and logs, such as ``lock-timeout``.
    code: str
    #: What to do, in one sentence.
    advice: str
    #: Where it happened, if that is known.
    location: str | None

    def __init__(self, message: str, code: str = "", advice: str = "", location: str | None = None) -> None:
        super().__init__(message, code, advice, location)
        self.code = code
        self.advice = advice
        self.location = location

    def __str__(self) -> str:
        return str(self.args[0])


class RetryableError(Error):
    """The transaction met another one: run it again, as ``transact`` does."""


class ConflictError(RetryableError):
    """Another transaction changed or holds the same row."""


class DeadlockError(RetryableError):
    """Transactions waited for one another, and this one was chosen to abort."""


class LockTimeoutError(RetryableError):
    """Other transactions held a row or a lock for too long."""


class InvalidArgumentError(Error, ValueError):
    """The call or a setting is wrong, or what it uses has ended. Nothing was changed."""


class ForkedError(InvalidArgumentError):
    """The database was opened before a fork, by the parent of this process."""


class NotFoundError(Error, LookupError):
    """There is no table or database of this name."""


class AlreadyExistsError(Error):
    """The name is taken."""


class BusyError(Error):
    """Another process has the database open, or open objects are at a limit."""


class OutOfSpaceError(Error):
    """The disk or the log is full. Nothing acknowledged is lost."""


class OutOfMemoryError(Error, MemoryError):
    """A bound of the database is reached, not of the machine."""


class IoError(Error):
    """The device failed to read or write."""


class PoisonedError(Error):
    """An earlier write of the log failed: reads still work; close and open again to recover."""


class OutcomeUnknownError(Error):
    """The commit may or may not survive. Open again and look."""


class FencedError(Error):
    """Another process has taken the database, which lies in a store of objects."""


class FellBehindError(Error):
    """A change feed needs transactions that the log no longer has."""


class CorruptionError(Error):
    """Bytes on storage are not what was written there. Restore from a backup."""


class UnsupportedError(Error):
    """A newer format, or something that this build or machine cannot do."""


class PanicError(Error):
    """The engine has a bug, and stopped the call. Report it; close and open the database again."""


_CLASSES: dict[str, type[Error]] = {
    "conflict": ConflictError,
    "deadlock": DeadlockError,
    "lock-timeout": LockTimeoutError,
    "invalid-argument": InvalidArgumentError,
    "forked": ForkedError,
    "not-found": NotFoundError,
    "already-exists": AlreadyExistsError,
    "busy": BusyError,
    "out-of-space": OutOfSpaceError,
    "out-of-memory": OutOfMemoryError,
    "io": IoError,
    "poisoned": PoisonedError,
    "outcome-unknown": OutcomeUnknownError,
    "fenced": FencedError,
    "fell-behind": FellBehindError,
    "corruption": CorruptionError,
    "unsupported": UnsupportedError,
    "panic": PanicError,
}

for _class in (Error, RetryableError, *_CLASSES.values()):
    _class.__module__ = "quenchdb"


def class_of(code: str) -> type[Error]:
    """Returns the class of exceptions for a code of the engine."""
    return _CLASSES.get(code, Error)
