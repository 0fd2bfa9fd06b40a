"""Fixtures of all tests."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import quenchdb

# A shell without job control starts its background jobs with SIGINT ignored, and Python leaves that so.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[quenchdb.Database]:
    """An empty database in a directory of its own."""
    with quenchdb.open(tmp_path / "db", memory_bytes=64 << 20) as database:
        yield database


@pytest.fixture
def table(db: quenchdb.Database) -> quenchdb.Table[bytes, bytes]:
    """An empty table of bytes."""
    return db.table("rows")
