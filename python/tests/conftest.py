"""Fixtures of all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import quenchdb


@pytest.fixture
def db(tmp_path: Path) -> Iterator[quenchdb.Database]:
    """An empty database in a directory of its own."""
    with quenchdb.open(tmp_path / "db", memory_bytes=64 << 20) as database:
        yield database


@pytest.fixture
def table(db: quenchdb.Database) -> quenchdb.Table[bytes, bytes]:
    """An empty table of bytes."""
    return db.table("rows")
