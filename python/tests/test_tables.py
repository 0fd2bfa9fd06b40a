"""Tables as mappings, codecs, names."""

from __future__ import annotations

import array
import shelve
from collections.abc import Mapping, MutableMapping
from typing import Any

import pytest

import quenchdb

Bytes = quenchdb.Table[bytes, bytes]


@pytest.fixture(params=["database", "transaction"])
def mapping(request: pytest.FixtureRequest, db: quenchdb.Database, table: Bytes) -> Any:
    """A table as a mapping: of the database, and of a transaction."""
    return table if request.param == "database" else db.transaction()[table]


def test_mapping_does_what_a_dict_does(mapping: MutableMapping[bytes, bytes]) -> None:
    assert isinstance(mapping, MutableMapping) and not mapping and len(mapping) == 0
    model: dict[bytes, bytes] = {}
    for number in [3, 1, 2, 1]:
        mapping[b"k%d" % number] = model[b"k%d" % number] = b"v%d" % number
    model = dict(sorted(model.items()))
    assert mapping and len(mapping) == 3 and dict(mapping) == model
    assert list(mapping) == list(model) and list(reversed(mapping)) == list(reversed(model))  # type: ignore[call-overload]
    assert list(mapping.items()) == list(model.items())
    assert list(mapping.values()) == list(model.values())
    assert list(reversed(mapping.items())) == list(reversed(model.items()))
    assert list(reversed(mapping.values())) == list(reversed(model.values()))
    assert mapping.keys() == model.keys() and mapping.items() == model.items()
    assert mapping.keys() & {b"k1", b"x"} == {b"k1"}
    assert b"v1" in mapping.values() and b"x" not in mapping.values()
    assert (b"k1", b"v1") in mapping.items() and (b"k1", b"x") not in mapping.items()
    assert b"k1" in mapping and b"x" not in mapping and 7 not in mapping
    assert mapping.get(b"k1") == b"v1" and mapping.get(b"x") is None and mapping.get(b"x", b"?") == b"?"
    assert mapping.setdefault(b"k1", b"?") == b"v1" and mapping.setdefault(b"k9", b"new") == b"new"
    assert mapping.pop(b"k9") == b"new" and mapping.pop(b"k9", None) is None
    assert mapping.popitem() == (b"k3", b"v3")
    mapping.update({b"a": b"1"})
    mapping.update([(b"b", b"2")])
    del mapping[b"a"]
    assert list(mapping) == [b"b", b"k1", b"k2"]
    mapping.clear()
    assert not mapping


def test_missing_keys_are_key_errors(mapping: MutableMapping[bytes, bytes]) -> None:
    for call in [
        lambda: mapping[b"x"],
        lambda: mapping.pop(b"x"),
        lambda: mapping.popitem(),
        lambda: mapping.__delitem__(b"x"),
    ]:
        with pytest.raises(KeyError):
            call()


def test_mapping_of_a_snapshot_is_read_only(db: quenchdb.Database, table: Bytes) -> None:
    table[b"a"] = b"1"
    mapping = db.snapshot()[table]
    assert isinstance(mapping, Mapping) and not isinstance(mapping, MutableMapping)
    assert dict(mapping) == {b"a": b"1"} and mapping.name == "rows"


def test_update_is_one_transaction(db: quenchdb.Database, table: Bytes) -> None:
    with pytest.raises(TypeError):
        table.update([(b"a", b"1"), (b"b", 2)])  # type: ignore[list-item]
    assert not table


def test_iteration_reads_one_snapshot(table: Bytes) -> None:
    table.update((b"%04d" % number, b"v") for number in range(5000))
    count = 0
    for key in table:
        del table[key]
        count += 1
        if count == 100:
            table.clear()
            break
    rows = table.items()
    assert count == 100 and len(list(rows)) == 0


def test_buffers_are_keys_and_values(db: quenchdb.Database, table: Bytes) -> None:
    buffers: list[Any] = [
        b"abcd",
        bytearray(b"abcd"),
        memoryview(b"abcd"),
        memoryview(b"xabcd")[1:],
        array.array("b", b"abcd"),
    ]
    for buffer in buffers:
        with db.transaction() as tx:
            tx.put(table, buffer, buffer)
            assert tx.get(table, buffer) == b"abcd" == tx.pop(table, b"abcd")
    assert table.get(memoryview(b"abcdefgh")[::2]) is None  # type: ignore[call-overload]


@pytest.mark.parametrize("wrong", ["text", 7, None, [1, 2], object()])
def test_other_objects_are_type_errors(table: Bytes, wrong: Any) -> None:
    with pytest.raises(TypeError, match="a key or value is bytes, bytearray, memoryview or another buffer"):
        table[wrong] = b""
    with pytest.raises(TypeError, match="for str open the table with key=str"):
        table[b"a"] = wrong


def test_tables_of_text(db: quenchdb.Database) -> None:
    table = db.table("text", key=str, value=str)
    table["Wien"] = "Österreich"
    assert table["Wien"] == "Österreich" and db["text"][b"Wien"] == "Österreich".encode()
    assert list(table.range(prefix="W")) == [("Wien", "Österreich")]
    with pytest.raises(TypeError, match="the table was opened for str, and this is bytes"):
        table[b"Wien"] = "x"  # type: ignore[index]
    with pytest.raises(UnicodeEncodeError):
        table["\ud800"] = "x"
    db["text"][b"raw"] = b"\xff"
    with pytest.raises(quenchdb.InvalidArgumentError, match="a row is no UTF-8"):
        table["raw"]


def test_codecs(db: quenchdb.Database) -> None:
    table = db.table("coded", key=quenchdb.INTEGER, value=quenchdb.JSON)
    numbers = [-(1 << 63), -1, 0, 1, (1 << 63) - 1]
    table.update((number, {"n": [number, None, "ä"]}) for number in reversed(numbers))
    assert list(table) == numbers and table[-1] == {"n": [-1, None, "ä"]}
    with pytest.raises(OverflowError):
        table[1 << 63] = None
    pickled = db.table("pickled", key=str, value=quenchdb.PICKLE)
    pickled["a"] = {1, 2}
    assert pickled["a"] == {1, 2}


def test_codec_of_a_program(db: quenchdb.Database) -> None:
    class Upper:
        def encode(self, object: str) -> bytes:
            return object.upper().encode()

        def decode(self, data: bytes) -> str:
            if data == b"BAD":
                raise ArithmeticError("bad")
            return data.decode().lower()

    table = db.table("upper", key=Upper(), value=Upper())
    table["a"] = "b"
    assert dict(table) == {"a": "b"} and dict(db["upper"]) == {b"A": b"B"}
    table["bad"] = "x"
    with pytest.raises(ArithmeticError):
        list(table)
    with pytest.raises(TypeError, match="a codec is bytes, str, or an object"):
        db.table("t", key=7)  # type: ignore[call-overload]


def test_names_of_tables(db: quenchdb.Database, table: Bytes) -> None:
    db.table("other")
    assert list(db) == ["other", "rows"] == db.tables() and "rows" in db and "x" not in db
    assert db["rows"].name == "rows"
    with pytest.raises(quenchdb.NotFoundError) as caught:
        db["row"]
    assert isinstance(caught.value, LookupError) and caught.value.code == "not-found"
    table[b"a"] = b"1"
    db.rename_table("rows", "lines")
    assert table.name == "lines" and table[b"a"] == b"1"
    db.clear_table("lines")
    assert not db["lines"]
    with pytest.raises(quenchdb.NotFoundError):
        table[b"a"]
    db.drop_table("lines")
    assert list(db) == ["other"]
    with pytest.raises(quenchdb.InvalidArgumentError):
        db.table("")


def test_key_bounds_are_said(db: quenchdb.Database, table: Bytes) -> None:
    table[b"k" * db.max_key_bytes] = b""
    with pytest.raises(quenchdb.InvalidArgumentError, match="key"):
        table[b"k" * (db.max_key_bytes + 1)] = b""


def test_shelve_works_on_a_table(db: quenchdb.Database) -> None:
    with shelve.Shelf(db.table("shelf"), writeback=True) as shelf:
        shelf["list"] = [1]
        shelf["list"].append(2)
        shelf["dict"] = {"a": 1}
    with shelve.Shelf(db.table("shelf")) as shelf:
        assert shelf["list"] == [1, 2] and dict(shelf)["dict"] == {"a": 1}
        assert sorted(shelf) == ["dict", "list"] and len(shelf) == 2
        del shelf["list"]
        assert "list" not in shelf
