"""The names and types of settings and options, for type checkers."""

from __future__ import annotations

import datetime
import os
from typing import Literal, TypedDict

__all__ = ["Options", "Settings"]

Duration = float | datetime.timedelta
Isolation = Literal["read-committed", "snapshot", "serializable"]
Durability = Literal["durable", "written", "bounded-loss", "lazy"]


class Settings(TypedDict, total=False):
    """Settings of a database. Sizes are in bytes, durations in seconds."""

    create: bool
    read_only: bool
    memory_bytes: int
    page_bytes: int
    compression: Literal["none", "lz4", "zstd"]
    preset: str
    recovery_seconds: int
    log_bytes_max: int
    loss_window: Duration
    lock_wait: Duration
    transact_wait: Duration
    slow_commit_log: Duration
    monitor: bool
    version_bytes: int
    logs: int
    segment_bytes: int
    trim_log: bool
    change_history_bytes: int
    write_deadline: Duration
    device_trust: Literal["auto", "flush", "device"]
    io_uring: bool
    object_cache: str | os.PathLike[str]
    object_cache_bytes: int
    acknowledge: Literal["majority", "all"]
    log_memory: str | os.PathLike[str]


class Options(TypedDict, total=False):
    """Options of a transaction."""

    isolation: Isolation
    locking: Literal["optimistic", "pessimistic"]
    durability: Durability
    lock_release: Literal["pre-commit", "commit"]
    lock_timeout: Duration
    no_wait: bool
    read_only: bool
    priority: int
