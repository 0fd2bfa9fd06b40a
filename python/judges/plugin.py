"""A plugin of pytest: skips the tests of another package that do not apply, and prints why."""

from __future__ import annotations

import os
from collections import Counter
from fnmatch import fnmatch
from typing import Any

import pytest
from excluded import EXCLUDED

_reasons: Counter[str] = Counter()
_unused: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    excluded = EXCLUDED[os.environ["QUENCH_JUDGE"]]
    used = set()
    for item in items:
        name = item.nodeid.rpartition("/")[2].replace(".py::", "::")
        for pattern, reason in excluded.items():
            if fnmatch(name, pattern):
                used.add(pattern)
                _reasons[reason] += 1
                item.add_marker(pytest.mark.skip(reason=reason))
                break
    _unused.extend(set(excluded) - used)


def pytest_sessionfinish(session: Any) -> None:
    if _unused:
        session.exitstatus = 1


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for reason, count in _reasons.most_common():
        terminalreporter.write_line(f"{count:5} do not apply: {reason}")
    for pattern in _unused:
        terminalreporter.write_line(f"excluded.py names a test that does not exist: {pattern}")
