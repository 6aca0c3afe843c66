"""Arrow and Avro schemas, and rows brought from one schema into another."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.schema import schema
from tagstream.table.schema.conform import conform
from tagstream.table.schema.schema import decimal_size

# The schema text of a footer that Hudi's Spark writer wrote, for a table with every column type.
HUDI_NS = "hoodie.trips.trips_record"
HUDI_FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": ["null", "string"], "default": None},
    {"name": "ver", "type": ["null", "long"], "default": None},
    {"name": "amount", "type": ["null", "double"], "default": None},
    {"name": "qty", "type": ["null", "int"], "default": None},
    {"name": "flag", "type": ["null", "boolean"], "default": None},
    {"name": "ts", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}], "default": None},
    {"name": "dt", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
    {
        "name": "price",
        "type": [
            "null",
            {
                "type": "fixed",
                "name": "fixed",
                "namespace": f"{HUDI_NS}.price",
                "size": 6,
                "logicalType": "decimal",
                "precision": 12,
                "scale": 3,
            },
        ],
        "default": None,
    },
    {"name": "ratio", "type": ["null", "float"], "default": None},
    {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}], "default": None},
    {"name": "attrs", "type": ["null", {"type": "map", "values": ["null", "int"]}], "default": None},
    {
        "name": "nested",
        "type": [
            "null",
            {
                "type": "record",
                "name": "nested",
                "namespace": HUDI_NS,
                "fields": [
                    {"name": "a", "type": ["null", "int"], "default": None},
                    {
                        "name": "c",
                        "type": ["null", {"type": "array", "items": ["null", "long"]}],
                        "default": None,
                    },
                ],
            },
        ],
        "default": None,
    },
    {"name": "raw", "type": ["null", "bytes"], "default": None},
]
HUDI_AVRO = {"type": "record", "name": "trips_record", "namespace": "hoodie.trips", "fields": HUDI_FIELDS}
ARROW = pa.schema(
    [
        ("id", pa.string()),
        ("ver", pa.int64()),
        ("amount", pa.float64()),
        ("qty", pa.int32()),
        ("flag", pa.bool_()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("dt", pa.date32()),
        ("price", pa.decimal128(12, 3)),
        ("ratio", pa.float32()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("attrs", pa.map_(pa.string(), pa.int32())),
        ("nested", pa.struct([("a", pa.int32()), ("c", pa.list_(pa.field("element", pa.int64())))])),
        ("raw", pa.binary()),
    ]
)


def test_avro_to_arrow() -> None:
    assert schema.avro_to_arrow(HUDI_AVRO).equals(ARROW)
    assert schema.avro_to_arrow(json.dumps(HUDI_AVRO)).equals(ARROW)


def test_arrow_to_avro_has_hudis_names_and_text() -> None:
    assert schema.avro_json(schema.arrow_to_avro(ARROW, "trips")) == json.dumps(HUDI_AVRO, separators=(",", ":"))


def test_meta_columns() -> None:
    avro = schema.with_meta_avro(HUDI_AVRO)
    assert avro["fields"][0] == {
        "name": "_hoodie_commit_time",
        "type": ["null", "string"],
        "doc": "",
        "default": None,
    }
    assert schema.with_meta_avro(avro) == avro
    assert schema.with_meta(ARROW).names[:5] == list(schema.META_COLUMNS)
    assert schema.with_meta(schema.with_meta(ARROW)).equals(schema.with_meta(ARROW))
    assert schema.avro_to_arrow(avro).equals(ARROW)
    assert schema.avro_to_arrow(avro, keep_meta=True).equals(schema.with_meta(ARROW))
    assert schema.user_schema(schema.with_meta(ARROW)).equals(ARROW)


def test_small_types_are_written_as_the_types_readers_know() -> None:
    odd = pa.schema(
        [
            ("b", pa.int8()),
            ("s", pa.int16()),
            ("u", pa.uint32()),
            ("text", pa.large_string()),
            ("code", pa.dictionary(pa.int32(), pa.string())),
            ("sec", pa.timestamp("s")),
            ("when", pa.timestamp("us", tz="Europe/Berlin")),
        ]
    )
    assert schema.storage_schema(odd).types == [
        pa.int32(),
        pa.int32(),
        pa.int64(),
        pa.string(),
        pa.string(),
        pa.timestamp("ms"),
        pa.timestamp("us", tz="UTC"),
    ]


def test_required_fields_stay_required() -> None:
    avro = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "string"}]}
    arrow = schema.avro_to_arrow(avro)
    assert not arrow.field("id").nullable
    assert schema.arrow_to_avro(arrow, "t")["fields"] == [{"name": "id", "type": "string"}]


@pytest.mark.parametrize(
    ("avro", "arrow"),
    [
        ({"type": "int", "logicalType": "time-millis"}, pa.time32("ms")),
        ({"type": "long", "logicalType": "time-micros"}, pa.time64("us")),
        ({"type": "long", "logicalType": "timestamp-millis"}, pa.timestamp("ms", tz="UTC")),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, pa.timestamp("us")),
        ({"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}, pa.decimal128(20, 4)),
        ({"type": "string", "logicalType": "uuid"}, pa.string()),
        ({"type": "long", "logicalType": "made-up"}, pa.int64()),
        ({"type": "string", "avro.java.string": "String"}, pa.string()),
        ({"type": "enum", "name": "e", "symbols": ["A"]}, pa.string()),
        ({"type": "fixed", "name": "f", "size": 3}, pa.binary(3)),
        (["string", "null"], pa.string()),
    ],
)
def test_other_avro_types(avro: Any, arrow: pa.DataType) -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": "x", "type": avro}]}
    assert schema.avro_to_arrow(record).field("x").type == arrow


def test_named_types_are_found_again() -> None:
    point = {"type": "record", "name": "point", "fields": [{"name": "x", "type": "int"}]}
    fields = [{"name": "a", "type": point}, {"name": "b", "type": "point"}, {"name": "c", "type": ["null", "n.point"]}]
    arrow = schema.avro_to_arrow({"type": "record", "name": "r", "namespace": "n", "fields": fields})
    assert arrow.field("a").type == arrow.field("b").type == arrow.field("c").type


@pytest.mark.parametrize(
    ("avro", "message"),
    [
        (["int", "string"], "column 'x' has a union of 2 types"),
        ("r", "unknown or recursive"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 0}, "precision must be 1 to 38"),
        ({"type": "array", "items": ["int", "string"]}, "column 'x.element'"),
        (7, "not an Avro type"),
    ],
)
def test_what_no_column_can_be_is_refused_by_name(avro: Any, message: str) -> None:
    record = {"type": "record", "name": "r", "fields": [{"name": "x", "type": avro}]}
    with pytest.raises(UnsupportedTableError, match=message):
        schema.avro_to_arrow(record)


@pytest.mark.parametrize("text", ['"string"', "{", "[]"])
def test_a_schema_that_is_no_record_is_refused(text: str) -> None:
    with pytest.raises(UnsupportedTableError):
        schema.avro_to_arrow(text)


@pytest.mark.parametrize(
    ("arrow", "message"),
    [
        (pa.schema([("bad name", pa.int32())]), "bad name"),
        (pa.schema([("x", pa.timestamp("ns"))]), "timestamp"),
        (pa.schema([("x", pa.map_(pa.int32(), pa.int32()))]), "map"),
        (pa.schema([("x", pa.int32()), ("x", pa.int32())]), "twice"),
    ],
)
def test_arrow_types_without_a_form_are_refused(arrow: pa.Schema, message: str) -> None:
    with pytest.raises(UnsupportedTableError, match=message):
        schema.arrow_to_avro(arrow, "t")


def test_table_names_become_avro_names() -> None:
    assert schema.avro_name("my-table.v2") == "my__table__v2"
    assert schema.avro_name("2nd") == "__nd"
    with pytest.raises(ValueError, match="empty"):
        schema.avro_name("")


@given(st.integers(1, 38))
def test_decimal_size_is_the_smallest(precision: int) -> None:
    size = decimal_size(precision)
    assert 2 ** (8 * size - 1) > 10**precision
    assert size == 1 or 2 ** (8 * (size - 1) - 1) <= 10**precision


def test_conform_matches_by_name_and_widens() -> None:
    rows = pa.table(
        {
            "b": pa.array([[1], None], pa.list_(pa.field("array", pa.int32(), nullable=False))),
            "gone": [1, 2],
            "a": pa.array([1, None], pa.int32()),
            "n": pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())])),
        }
    )
    wanted = pa.schema(
        [
            ("a", pa.int64()),
            ("new", pa.string()),
            ("b", pa.list_(pa.field("element", pa.int64()))),
            ("n", pa.struct([("y", pa.string()), ("x", pa.int64())])),
        ]
    )
    out = conform(rows, wanted, "a test")
    assert out.schema.equals(wanted)
    assert out.to_pylist() == [
        {"a": 1, "new": None, "b": [1], "n": {"y": None, "x": 1}},
        {"a": None, "new": None, "b": None, "n": None},
    ]


def test_conform_refuses_values_that_do_not_fit() -> None:
    with pytest.raises(UnsupportedTableError, match="'a' of file f"):
        conform(pa.table({"a": [2**40]}), pa.schema([("a", pa.int32())]), "file f")
