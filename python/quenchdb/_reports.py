"""What a database reports, as dataclasses."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

__all__ = [
    "BackupReport",
    "CheckpointReport",
    "CompactReport",
    "Health",
    "Latency",
    "RestoreReport",
    "StandbyStatistics",
    "Statistics",
    "VerifyReport",
]


@dataclass(frozen=True)
class CheckpointReport:
    """What a checkpoint wrote."""

    #: The checkpoint contains every transaction up to this one.
    csn: int
    pages_written: int
    #: Pages among them that the checkpoint before had written, too.
    pages_rewritten: int
    bytes_written: int
    seconds: float


@dataclass(frozen=True)
class CompactReport:
    """What a compaction gave back."""

    #: Length of the file of pages before and after, and the used bytes of it.
    bytes_before: int
    bytes_after: int
    bytes_used: int
    pages_moved: int
    seconds: float


@dataclass(frozen=True)
class BackupReport:
    """What a backup contains."""

    #: The backup contains every transaction up to this one.
    csn: int
    #: Pages of the database, and those that were copied.
    pages: int
    pages_copied: int
    bytes: int
    #: The CSN of the base; None for a full backup.
    base_csn: int | None
    seconds: float


@dataclass(frozen=True)
class RestoreReport:
    """What was restored."""

    #: The database contains every transaction up to this one.
    csn: int
    pages: int
    bytes: int
    #: Transactions that were replayed from the log.
    replayed: int
    seconds: float


@dataclass(frozen=True)
class VerifyReport:
    """What a verification checked and found."""

    #: ``sound``, ``degraded`` (only spare copies are damaged) or ``damaged``.
    result: str
    #: What to do; None if nothing is wrong.
    advice: str | None
    tables: int
    pages: int
    large_values: int
    #: Rows, and deleted rows that are not purged yet.
    entries: int
    stored_pages: int
    log_blocks: int
    log_records: int
    #: Damaged spare copies.
    weaknesses: list[str]
    #: Each damage with its place.
    problems: list[str]

    @property
    def ok(self) -> bool:
        """True if no data is damaged."""
        return not self.problems


@dataclass(frozen=True)
class Health:
    """Whether a database works, and why not."""

    #: ``healthy``, ``degraded`` or ``failed``.
    state: str
    #: Each says what is wrong and what to do.
    reasons: list[str]
    #: Whole seconds since the oldest of the reasons began.
    seconds: int


@dataclass(frozen=True)
class Latency:
    """A distribution of times, in microseconds."""

    count: int
    mean_us: float
    p50_us: float
    p90_us: float
    p99_us: float
    p999_us: float
    max_us: float


@dataclass(frozen=True)
class Statistics:
    """Numbers of a database at one moment. ``everything`` has all that the engine counts."""

    preset: str
    logs: int
    durability_method: str
    #: The newest CSN, and the CSN of the newest checkpoint.
    newest_csn: int
    checkpoint_csn: int
    tables: int
    #: Transactions since the open.
    committed: int
    aborted: int
    conflicts: int
    deadlocks: int
    lock_timeouts: int
    #: Pages in memory, and reads from the device.
    pages: int
    page_faults: int
    #: Memory in use for old versions, and its snapshots.
    version_bytes: int
    open_snapshots: int
    #: Log since the open, and what is in use of it.
    log_bytes: int
    log_bytes_in_use: int
    device_writes: int
    device_flushes: int
    checkpoints: int
    #: Length of the file of pages, and what is free in it.
    store_bytes: int
    store_free_bytes: int
    #: The time that a recovery would take now.
    replay_seconds_estimate: float
    #: From the record of a commit to its acknowledgment, and the whole transaction.
    commit: Latency
    total: Latency
    #: Everything that the engine reports, by name.
    everything: dict[str, Any]


@dataclass(frozen=True)
class StandbyStatistics:
    """How far a standby is."""

    #: Snapshots show every transaction up to this CSN.
    csn: int
    #: The highest CSN that was found in the log, and how many are not visible yet.
    newest_csn: int
    lag_csns: int
    #: Seconds since which something is known that is not visible yet.
    lag: float
    #: Transactions that were applied.
    transactions: int
    #: How often a newer checkpoint was taken, and the CSN of the present one.
    new_bases: int
    base_csn: int
    #: Why the standby cannot follow at the moment. It tries again by itself.
    failure: str | None


def report_of(text: str) -> dict[str, Any]:
    """Returns the fields of a report that the engine wrote as JSON."""
    fields: dict[str, Any] = json.loads(text)
    return fields


def statistics_of(everything: dict[str, Any]) -> Statistics:
    """Returns the statistics of a report."""
    values: dict[str, Any] = {}
    for field in fields(Statistics):
        if field.name == "everything":
            values[field.name] = everything
        elif field.name in ("commit", "total"):
            measured = everything[field.name]
            values[field.name] = Latency(**{part.name: measured[part.name] for part in fields(Latency)})
        else:
            values[field.name] = everything[field.name]
    return Statistics(**values)
