"""The examples of the guide and the tour run as they stand."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import quenchdb

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
TOUR = ROOT / "python" / "examples" / "tour.py"


def examples(page: str) -> str:
    """Returns all examples of a page as one program, whose lines have the numbers of the page."""
    program, inside = [], False
    for line in (GUIDE / page).read_text().splitlines():
        if line.startswith("```"):
            inside = line == "```python"
            program.append("")
        else:
            program.append(line if inside else "")
    return "\n".join(program)


@pytest.mark.parametrize("page", ["python.md"])
def test_examples_of_the_guide_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (GUIDE / page).read_text()
    if "<!-- needs numpy -->" in text:
        pytest.importorskip("numpy")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "backups").mkdir()
    program = examples(page)
    assert len(re.findall(r"\S+", program)) > 100
    exec(compile(program, str(GUIDE / page), "exec"), {"__name__": "guide"})


def test_calls_beside_other_engines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        line.split(" | ", 1) for line in (GUIDE / "coming-from.md").read_text().splitlines() if line.startswith("| ")
    ]
    # Those of C follow.
    rows = rows[:63]
    tables = [[name for name, rest in rows[at : at + 20]] for at in (1, 22, 43)]
    assert tables[0] == tables[1] == tables[2]
    calls = [rest.strip(" |`") for _, rest in rows[1:21]]
    names: dict[str, Any] = {"quenchdb": quenchdb}
    for call in calls:
        exec(call, names)
    assert list(names["snapshot"].range(names["users"])) == [(b"a", b"1"), (b"b", b"2"), (b"k", b"v")]
    names["db"].close()


def test_tour_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(TOUR), run_name="__main__")
