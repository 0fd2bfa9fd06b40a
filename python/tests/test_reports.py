"""Settings, opening, backups, verification, statistics, errors."""

from __future__ import annotations

import ast
import datetime
import inspect
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import quenchdb
from quenchdb import _errors, _options

Bytes = quenchdb.Table[bytes, bytes]


def test_reopened_database_has_its_rows(tmp_path: Path) -> None:
    with quenchdb.open(tmp_path / "db", page_bytes=8192) as db:
        db.table("t")[b"a"] = b"1"
        assert repr(db) == f"<Database {str(tmp_path / 'db')!r}>"
    assert db.closed and "(closed)" in repr(db)
    progress: list[tuple[str, int, int]] = []
    with quenchdb.open(str(tmp_path / "db"), create=False, progress=lambda *args: progress.append(args)) as db:
        assert db["t"][b"a"] == b"1"


def test_url_of_a_store_opens(tmp_path: Path) -> None:
    with quenchdb.open(f"file://{tmp_path}/store") as db:
        db.table("t")[b"a"] = b"1"
    with quenchdb.open(f"file://{tmp_path}/store", read_only=True) as db:
        assert db["t"][b"a"] == b"1"


def test_database_in_memory() -> None:
    with quenchdb.open_in_memory() as db:
        db.table("t")[b"a"] = b"1"
        assert db["t"][b"a"] == b"1"


def test_closed_database_refuses_every_call(db: quenchdb.Database, table: Bytes) -> None:
    tx, snapshot = db.transaction(), db.snapshot()
    rows = snapshot.range(table)
    tx.put(table, b"a", b"lost")
    db.close()
    db.close()
    for call in [
        lambda: table[b"a"],
        lambda: db.transaction(),
        lambda: db.snapshot(),
        lambda: tx.put(table, b"a", b""),
        lambda: tx.commit(),
        lambda: snapshot.get(table, b"a"),
        lambda: next(rows),
        lambda: db.checkpoint(),
        lambda: db.changes(),
    ]:
        with pytest.raises(quenchdb.InvalidArgumentError, match="clos"):
            call()


def test_second_open_is_busy(db: quenchdb.Database, tmp_path: Path) -> None:
    with pytest.raises(quenchdb.BusyError):
        quenchdb.open(tmp_path / "db")


def test_missing_database_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(quenchdb.NotFoundError, match="cannot open the directory"):
        quenchdb.open(tmp_path / "none", create=False)


def test_wrong_settings_are_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no setting is called `memory`; there are create, read_only, memory_bytes"):
        quenchdb.open(tmp_path / "db", memory=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="memory_bytes: "):
        quenchdb.open(tmp_path / "db", memory_bytes="1")  # type: ignore[arg-type]
    with pytest.raises(quenchdb.InvalidArgumentError) as caught:
        quenchdb.open(tmp_path / "db", memory_bytes=1)
    assert caught.value.location == "setting `memory_bytes`"
    with pytest.raises(quenchdb.InvalidArgumentError, match="no compression is called `zip`"):
        quenchdb.open(tmp_path / "db", compression="zip")  # type: ignore[arg-type]
    assert not (tmp_path / "db").exists()


EXAMPLES: dict[str, Any] = {
    "compression": "none",
    "preset": "auto",
    "device_trust": "flush",
    "acknowledge": "all",
    "create": True,
    "read_only": False,
    "monitor": False,
    "trim_log": False,
    "io_uring": False,
    "memory_bytes": 32 << 20,
    "page_bytes": 4096,
    "recovery_seconds": 3,
    "log_bytes_max": 1 << 30,
    "loss_window": datetime.timedelta(milliseconds=5),
    "lock_wait": 0.5,
    "transact_wait": 1,
    "slow_commit_log": 2.5,
    "version_bytes": 1 << 20,
    "logs": 1,
    "segment_bytes": 1 << 20,
    "change_history_bytes": 1 << 20,
    "write_deadline": 10,
    "object_cache_bytes": 1 << 20,
}


def test_every_setting_is_accepted(tmp_path: Path) -> None:
    names = set(get_type_hints(_options.Settings))
    assert names - set(EXAMPLES) == {"object_cache", "log_memory"}
    with quenchdb.open(tmp_path / "db", **EXAMPLES) as db:
        db.table("t")[b"a"] = b"1"
    with pytest.raises(TypeError) as caught:
        quenchdb.open(tmp_path / "db", wrong=1)  # type: ignore[call-arg]
    assert set(str(caught.value).split("there are ")[1].split(", ")) == names
    with pytest.raises(TypeError) as caught, quenchdb.open_in_memory() as db:
        db.transaction(wrong=1)  # type: ignore[call-arg]
    assert set(str(caught.value).split("there are ")[1].split(", ")) == set(get_type_hints(_options.Options))


def test_backup_increment_restore(db: quenchdb.Database, table: Bytes, tmp_path: Path) -> None:
    table.update((b"%05d" % number, b"v" * 100) for number in range(2000))
    progress: list[tuple[str, int, int]] = []
    full = db.backup(tmp_path / "full", progress=lambda *args: progress.append(args))
    table[b"later"] = b"x"
    more = db.backup(tmp_path / "more", base=tmp_path / "full")
    assert full.base_csn is None and more.base_csn == full.csn < more.csn
    assert more.pages_copied < full.pages_copied == full.pages and progress
    report = quenchdb.restore([tmp_path / "full", tmp_path / "more"], tmp_path / "new")
    assert report.csn == more.csn and report.pages >= full.pages
    with quenchdb.open(tmp_path / "new") as restored:
        assert len(restored["rows"]) == 2001
    with quenchdb.open_checkpoint(tmp_path / "full") as copy:
        assert len(copy["rows"]) == 2000
    with pytest.raises(quenchdb.Error):
        db.backup(tmp_path / "full")
    with pytest.raises(TypeError, match="give a list of backups"):
        quenchdb.restore(str(tmp_path / "full"), tmp_path / "new2")


def test_exception_of_a_progress_callback_is_raised(db: quenchdb.Database, table: Bytes, tmp_path: Path) -> None:
    table[b"a"] = b"1"

    def fail(what: str, done: int, all: int) -> None:
        raise ArithmeticError(what)

    with pytest.raises(ArithmeticError):
        db.verify(fail)


def test_verify_reports(db: quenchdb.Database, table: Bytes, tmp_path: Path) -> None:
    table.update((b"%05d" % number, b"v" * 100) for number in range(2000))
    report = db.verify()
    assert report.ok and report.result in ("sound", "degraded") and report.entries >= 2000
    db.close()
    assert quenchdb.verify(tmp_path / "db").result == "sound"
    pages = tmp_path / "db" / "pages" / "data"
    data = bytearray(pages.read_bytes())
    for at in range(8192, len(data), 512):
        data[at] ^= 0xFF
    pages.write_bytes(data)
    report = quenchdb.verify(tmp_path / "db")
    assert report.result == "damaged" and not report.ok and report.problems and report.advice


def test_checkpoint_and_compact(db: quenchdb.Database, table: Bytes) -> None:
    table.update((b"%05d" % number, b"v" * 1000) for number in range(5000))
    report = db.checkpoint()
    assert report.pages_written > 100 and report.csn == db.checkpoint_csn
    table.clear()
    db.checkpoint()
    assert db.compact().bytes_after > 0


def test_checkpoint_opens_beside_the_writer(db: quenchdb.Database, table: Bytes, tmp_path: Path) -> None:
    table[b"a"] = b"1"
    db.checkpoint()
    table[b"a"] = b"2"
    with quenchdb.open_checkpoint(tmp_path / "db") as reader:
        assert reader["rows"][b"a"] == b"1"
        with pytest.raises(quenchdb.InvalidArgumentError, match="read-only"):
            reader.transaction()


def test_statistics(db: quenchdb.Database, table: Bytes, tmp_path: Path) -> None:
    for number in range(10):
        table[b"%d" % number] = b""
    numbers = db.statistics()
    assert numbers.committed >= 10 and numbers.tables == 1 and numbers.total.count >= 10
    assert numbers.total.p50_us <= numbers.total.p99_us <= numbers.total.max_us
    assert numbers.everything["newest_csn"] == numbers.newest_csn
    db.reset_statistics()
    assert db.statistics().total.count == 0
    assert "quenchdb_committed_total" in db.prometheus()
    assert "quenchdb_committed_total" in quenchdb.ask_statistics(tmp_path / "db")
    assert "preset" in db.open_line() or "auto" in db.open_line()
    with pytest.raises(quenchdb.NotFoundError):
        quenchdb.ask_statistics(tmp_path)


def test_health(db: quenchdb.Database) -> None:
    assert db.health() == quenchdb.Health("healthy", [], 0)
    db.close()
    assert db.health().state == "failed"


def test_errors_have_code_advice_and_survive_pickle(db: quenchdb.Database) -> None:
    with pytest.raises(quenchdb.Error) as caught:
        db["none"]
    error = caught.value
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error) is quenchdb.NotFoundError and str(copy) == str(error)
    assert (copy.code, copy.advice, copy.location) == (error.code, error.advice, error.location)
    assert str(error).endswith("; " + error.advice)
    for code, kind in _errors._CLASSES.items():
        assert _errors.class_of(code) is kind and issubclass(kind, quenchdb.Error) and kind.__doc__


def test_codes_are_those_of_the_engine() -> None:
    source = Path(__file__).parents[2] / "engine" / "src" / "base" / "error.rs"
    if not source.exists():
        pytest.skip("not in the repository")
    lines = [line for line in source.read_text().splitlines() if "ErrorKind::" in line and '=> "' in line]
    codes = {line.split('"')[1] for line in lines if " " not in line.split('"')[1]}
    assert codes == set(_errors._CLASSES) - {"forked", "panic"} | {"timeout", "interrupted"}


def test_everything_public_has_a_docstring() -> None:
    missing = []
    for name in quenchdb.__all__:
        thing = getattr(quenchdb, name)
        if inspect.isclass(thing):
            members = {part: member for part, member in inspect.getmembers(thing) if not part.startswith("_")}
            ours = {
                part: member for part, member in members.items() if callable(member) or isinstance(member, property)
            }
            missing += [f"{name}.{part}" for part, member in ours.items() if not inspect.getdoc(member)]
        if (inspect.isclass(thing) or inspect.isfunction(thing)) and not inspect.getdoc(thing):
            missing.append(name)
    assert missing == []


def test_stubs_have_what_the_native_module_has() -> None:
    from quenchdb import _native

    stubs = Path(quenchdb.__file__).with_name("_native.pyi").read_text()
    declared: dict[str, set[str]] = {}
    for node in ast.parse(stubs).body:
        if isinstance(node, ast.ClassDef):
            declared[node.name] = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            declared[node.name] = set()
    for name, thing in vars(_native).items():
        if name.startswith("_") or name == "VALUE_BYTES_MAX":
            continue
        actual = (
            {part for part in vars(thing) if part not in ("__doc__", "__module__")} if inspect.isclass(thing) else set()
        )
        assert declared.pop(name) - {"__new__"} == actual - {"__new__"}, name
    assert declared == {}


def test_import_is_fast_and_lean() -> None:
    code = "import sys; import quenchdb; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"asyncio", "dataclasses", "numpy", "inspect", "json", "quenchdb._reports"} & set(loaded)


def test_handles_are_used_from_many_threads(db: quenchdb.Database) -> None:
    tables = []
    threads = [threading.Thread(target=lambda: tables.append(db.table("same"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {table.name for table in tables} == {"same"} and len(tables) == 8
