"""Column types, as HiveSyncTool 1.2.0 writes them for a table of all types."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tagstream.catalog.entry import spark_parameters
from tagstream.catalog.options import SyncOptions
from tagstream.catalog.types import hive_type, spark_schema
from tagstream.table.errors import UnsupportedTableError


def logical(base: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": kind, **more}


@pytest.mark.parametrize(
    ("avro", "hive", "spark"),
    [
        ("string", "string", '"string"'),
        (["null", "long"], "bigint", '"long"'),
        ("int", "int", '"integer"'),
        ("boolean", "boolean", '"boolean"'),
        ("float", "float", '"float"'),
        ("double", "double", '"double"'),
        ("bytes", "binary", '"binary"'),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, "string", '"string"'),
        ({"type": "fixed", "name": "f", "size": 4}, "binary", '"binary"'),
        (logical("bytes", "decimal", precision=12, scale=3), "decimal(12,3)", '"decimal(12,3)"'),
        (logical("fixed", "decimal", precision=30, scale=6, size=13, name="d"), "decimal(30,6)", '"decimal(30,6)"'),
        (logical("int", "date"), "date", '"date"'),
        (logical("long", "timestamp-micros"), "bigint", '"timestamp"'),
        (logical("long", "timestamp-millis"), "bigint", '"timestamp"'),
        (
            {"type": "array", "items": ["null", "string"]},
            "array<string>",
            '{"type":"array", "elementType":"string","containsNull":true}',
        ),
        (
            {"type": "map", "values": "int"},
            "map<string,int>",
            '{"type":"map", "keyType":"string","valueType":"integer","valueContainsNull":true}',
        ),
        (
            {"type": "record", "name": "r", "fields": [{"name": "a-b", "type": "int"}, {"name": "c", "type": "bytes"}]},
            "struct<a_b:int,c:binary>",
            '{"type":"struct","fields":[{"name":"a-b","type":"integer","nullable":true,"metadata":{}},'
            '{"name":"c","type":"binary","nullable":true,"metadata":{}}]}',
        ),
    ],
    ids=str,
)
def test_a_type(avro: Any, hive: str, spark: str) -> None:
    assert hive_type(avro, timestamps=False) == hive
    made = spark_schema([{"name": "x", "type": avro}])
    assert made == f'{{"type":"struct","fields":[{{"name":"x","type":{spark},"nullable":true,"metadata":{{}}}}]}}'
    json.loads(made)


def test_timestamps_when_they_are_wanted() -> None:
    assert hive_type(logical("long", "timestamp-micros"), timestamps=True) == "timestamp"
    nested = {"type": "array", "items": logical("long", "timestamp-millis")}
    assert hive_type(nested, timestamps=True) == "array<timestamp>"


@pytest.mark.parametrize("avro", [["null", "int", "string"], "unknown"], ids=str)
def test_what_no_catalogue_has(avro: Any) -> None:
    with pytest.raises(UnsupportedTableError, match="a catalogue has no such type"):
        hive_type(avro, timestamps=False)


def test_partition_columns_are_last() -> None:
    fields = [{"name": name, "type": "string"} for name in ("b", "id", "a")]
    found = spark_parameters(fields, ("a", "b"), SyncOptions())
    names = [f["name"] for f in json.loads(found["spark.sql.sources.schema.part.0"])["fields"]]
    assert names == ["id", "a", "b"]
    assert found["spark.sql.sources.schema.numPartCols"] == "2"
    assert (found["spark.sql.sources.schema.partCol.0"], found["spark.sql.sources.schema.partCol.1"]) == ("a", "b")
