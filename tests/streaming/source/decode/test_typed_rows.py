"""Typed rows brought to a table's types: what fits, what is refused, and what makes a row bad."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tagstream.streaming.source.decode.key_decoder import FLAG_BAD, KeyDecoder
from tagstream.streaming.source.decode.typed_rows import TypedRows, fits, in_table_types, rows_avro, with_row
from tagstream.table.errors import ConfigError
from tagstream.table.keys.keys import KeyGenerator
from tagstream.table.schema.schema import avro_to_arrow

TABLE = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("day", pa.string()),
        pa.field("ts", pa.timestamp("us", tz="UTC")),
        pa.field("price", pa.decimal128(20, 4)),
        pa.field("born", pa.date32()),
        pa.field("tags", pa.list_(pa.field("element", pa.string(), nullable=False))),
        pa.field("more", pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.float64())])),
        pa.field("by", pa.map_(pa.string(), pa.field("value", pa.int64()))),
    ]
)
AT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


def columns(**given: list[Any]) -> pa.RecordBatch:
    """Two rows as Spark gives them: other widths, other names inside lists and maps, the session's time zone."""
    rows = {
        "id": pa.array([1, 2], pa.int32()),
        "day": pa.array(["x", "y"]),
        "ts": pa.array([AT, AT], pa.timestamp("us", tz="Europe/Berlin")),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "born": pa.array([date(2000, 2, 29), None]),
        "tags": pa.array([["p", "q"], []], pa.list_(pa.field("element", pa.string()))),
        "more": pa.array([{"b": 0.5, "a": 7}, None], pa.struct([("b", pa.float32()), ("a", pa.int32())])),
        "by": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
        "gone": pa.array([False, True]),
    }
    for name, values in given.items():
        rows[name] = pa.array(values, rows[name].type)
    return pa.RecordBatch.from_pydict(rows)


def keyed(batch: pa.RecordBatch, schema: pa.Schema = TABLE) -> list[dict[str, Any]]:
    decoder = KeyDecoder(
        schema, KeyGenerator.create(None, ("id",), ("day",)), ("ts",), True, record_format=TypedRows(schema, "gone")
    )
    raw = with_row(batch, 10, 3, "gone")
    out: list[dict[str, Any]] = decoder.keys(raw).to_pylist()
    return out


def test_rows_of_other_widths_and_names_become_the_tables() -> None:
    good, deleted = keyed(columns())
    assert good["row"] == {
        "id": 1, "day": "x", "ts": AT, "price": Decimal("1.5000"), "born": date(2000, 2, 29), "tags": ["p", "q"],
        "more": {"a": 7, "b": 0.5}, "by": [("k", 1)],
    }  # fmt: skip
    assert (good["skey"], good["part"], good["flags"], good["reason"], good["value"]) == (b"\x011", "x", 0, None, None)
    assert (good["pos_hi"], good["pos_lo"], deleted["pos_lo"]) == (3, 10, 11)
    assert good["ord"] == int(AT.timestamp() * 1_000_000)
    assert deleted["flags"] == 1


def test_the_rows_of_a_slice_are_its_own() -> None:
    both = columns()
    assert keyed(both.slice(1))[0]["row"]["id"] == 2
    assert keyed(both.slice(0, 0)) == []


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"id": [None, 2]}, "field id is null, and the table asks for a value"),
        ({"tags": [["p", None], []]}, "field tags is null, and the table asks for a value"),
        ({"more": [{"a": None, "b": 1.0}, None]}, "field more.a is null, and the table asks for a value"),
        ({"ts": [None, None]}, "ordering field ts is null"),
    ],
)
def test_a_row_that_lacks_a_value_is_bad_and_kept_as_text(given: dict[str, list[Any]], reason: str) -> None:
    bad, other = keyed(columns(**given))
    assert (bad["flags"], bad["reason"]) == (FLAG_BAD, reason)
    assert other["flags"] & FLAG_BAD == 0 and other["value"] is None
    kept = json.loads(bad["value"])
    assert set(kept) == set(columns().schema.names)
    assert kept["price"] == "1.50" and kept["born"] == "2000-02-29"


def test_a_delete_needs_no_values_but_its_key() -> None:
    nothing = {name: [None, None] for name in ("day", "ts", "price", "tags", "more")}
    good, deleted = keyed(columns(**nothing, gone=[None, True]))
    assert good["flags"] == FLAG_BAD
    assert deleted["flags"] == 1 | 2 | 4  # a delete, without an ordering value, in the partition that the index knows


def test_a_column_that_no_longer_fits_is_told() -> None:
    narrow = TABLE.set(0, pa.field("id", pa.int32(), nullable=False))
    wide = columns().set_column(0, "id", pa.array([1, 2], pa.int64()))
    with pytest.raises(ConfigError, match="column 'id' has type int64, but the table has int32"):
        keyed(wide, narrow)


def test_what_fits_without_losing_a_digit() -> None:
    assert fits(pa.int32(), pa.int64()) and fits(pa.int32(), pa.float64()) and fits(pa.float32(), pa.float64())
    assert not fits(pa.int64(), pa.float64()) and not fits(pa.int64(), pa.int32())
    assert fits(pa.decimal128(10, 2), pa.decimal128(12, 4)) and not fits(pa.decimal128(10, 2), pa.decimal128(11, 4))
    assert not fits(pa.timestamp("us", tz="UTC"), pa.timestamp("ms", tz="UTC"))
    table = pa.schema([("a", pa.int64()), ("b", pa.int32())])
    merged = in_table_types(pa.schema([("a", pa.int32()), ("b", pa.int64()), ("c", pa.string())]), table)
    assert merged == pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string())])


def test_a_schema_without_the_mark_and_without_hudis_columns() -> None:
    given = pa.schema(
        [
            ("_hoodie_commit_time", pa.string()),
            ("id", pa.int16()),
            ("gone", pa.bool_()),
            ("m", pa.map_(pa.string(), pa.int8())),
        ]
    )
    assert avro_to_arrow(rows_avro(given, "gone", "rows")).names == ["id", "m"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([("a", pa.int32()), ("a", pa.int32())], "more than one column 'a'"),
        ([("count(1)", pa.int64())], "column 'count\\(1\\)' of rows: Hudi stores a table's schema in Avro"),
        ([("s", pa.struct([("x y", pa.int32())]))], "column 's.x y' of rows"),
        ([("i", pa.duration("us"))], "cast the column"),
        ([("gone", pa.int32())], "it marks deletes and must be boolean"),
    ],
)
def test_columns_that_no_table_has_are_refused(fields: list[tuple[str, pa.DataType]], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        rows_avro(pa.schema(fields), "gone", "rows")


def test_many_bad_rows_keep_their_places() -> None:
    ids = np.arange(100)
    batch = pa.RecordBatch.from_pydict({"id": pa.array(ids), "day": pa.array(["d"] * 100), "ts": pa.array(
        [AT if i % 7 else None for i in ids], pa.timestamp("us", tz="UTC"))})  # fmt: skip
    found = keyed(batch)
    assert [json.loads(r["value"])["id"] for r in found if r["flags"] & FLAG_BAD] == [
        i for i in range(100) if i % 7 == 0
    ]
    assert all(r["value"] is None for r in found if not r["flags"] & FLAG_BAD)
