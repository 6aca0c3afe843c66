"""Defaults of a schema file in the schema that is written: all that Avro allows, and in a form its readers accept."""

from __future__ import annotations

import json
from typing import Any

import fastavro
import pytest

from tagstream.streaming.source.decode.record_format import avro_facts
from tagstream.table.schema.record_schema import default_of, keep_defaults
from tagstream.table.schema.schema import arrow_to_avro, avro_to_arrow


def written(*fields: dict[str, Any], table: str | None = None) -> dict[str, Any]:
    """The written schema of a file with these fields, by field."""
    text = json.dumps({"type": "record", "name": "r", "namespace": "n", "fields": list(fields)})
    schema = keep_defaults(arrow_to_avro(avro_to_arrow(text), "t"), text, *([] if table is None else [table]))
    fastavro.parse_schema(schema)  # looks at the defaults, too
    assert avro_to_arrow(schema) == avro_to_arrow(text)
    return {f["name"]: f for f in schema["fields"]}


@pytest.mark.parametrize(
    ("avro", "default"),
    [
        ("int", 5),
        ("long", -(2**63)),
        ("boolean", False),
        ("double", 1.5),
        ("float", 2),
        ("string", ""),
        ("bytes", "\u00ff"),
        ({"type": "long", "logicalType": "timestamp-micros"}, 0),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "A"),
        ({"type": "array", "items": "string"}, []),
        ({"type": "array", "items": ["null", "int"]}, [None]),
        ({"type": "map", "values": "long"}, {"a": 1}),
        ({"type": "record", "name": "R", "fields": [{"name": "q", "type": "int"}]}, {"q": 7}),
    ],
)
def test_a_default_is_kept(avro: Any, default: Any) -> None:
    assert written({"name": "a", "type": avro, "default": default})["a"]["default"] == default


def test_a_column_that_may_be_null_has_null_as_avro_default_and_its_own_beside_it() -> None:
    found = written(
        {"name": "a", "type": ["int", "null"], "default": 5},
        {"name": "b", "type": ["null", "int"], "default": None},
        {"name": "c", "type": ["null", "int"]},
        {"name": "d", "type": ["int", "null"], "default": "x"},
    )
    for field in found.values():
        assert (field["type"], field["default"]) == (["null", "int"], None)
    assert [default_of(found[name]) for name in "abcd"] == [5, None, None, None]
    again = written(found["a"])
    assert again["a"] == found["a"], "a schema that was written is written the same"
    assert avro_facts(json.dumps({"type": "record", "name": "r", "fields": [found["a"]]}))["a"].default == 5


def test_nested_fields_keep_theirs_also_in_arrays_and_by_name() -> None:
    inner = {"type": "record", "name": "In", "fields": [{"name": "q", "type": "int", "default": 7}]}
    found = written(
        {"name": "one", "type": inner},
        {"name": "many", "type": {"type": "array", "items": "In"}},
        {"name": "maybe", "type": ["null", {"type": "map", "values": ["null", "n.In"]}], "default": None},
        {"name": "own", "type": {"type": "record", "name": "Own", "fields": [
            {"name": "q", "type": ["int", "null"], "default": 7}]}},
    )  # fmt: skip
    (own,) = found["own"]["type"]["fields"]
    assert (own["default"], default_of(own)) == (None, 7)
    assert found["one"]["type"]["fields"][0]["default"] == 7
    assert found["many"]["type"]["items"]["fields"][0]["default"] == 7
    assert found["maybe"]["type"][1]["values"][1]["fields"][0]["default"] == 7


@pytest.mark.parametrize(
    ("avro", "default"),
    [
        ("int", "x"),
        ("int", 2**31),
        ("int", True),
        ("string", 1),
        ("bytes", "\u0100"),
        ({"type": "array", "items": "int"}, ["x"]),
        ({"type": "record", "name": "R", "fields": [{"name": "q", "type": "int"}]}, {}),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "1.25"),
    ],
)
def test_one_that_avro_does_not_allow_is_left_out(avro: Any, default: Any) -> None:
    assert "default" not in written({"name": "a", "type": avro, "default": default})["a"]


def test_the_table_has_it_where_the_file_lacks_the_column() -> None:
    own = json.dumps({"type": "record", "name": "r", "fields": [
        {"name": "a", "type": "int", "default": 1}, {"name": "b", "type": "int", "default": 2}]})  # fmt: skip
    file = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int", "default": 9}]})
    found = keep_defaults(arrow_to_avro(avro_to_arrow(own), "t"), file, own)["fields"]
    assert [f["default"] for f in found] == [9, 2]
    dropped = json.dumps({"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]})
    assert "default" not in keep_defaults(arrow_to_avro(avro_to_arrow(own), "t"), dropped, own)["fields"][0]
