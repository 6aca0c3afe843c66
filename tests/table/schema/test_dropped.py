"""The schema of records where the table's files leave out the partition columns."""

from __future__ import annotations

import json

import pyarrow as pa

from tagstream.table.schema.record_schema import record_schema
from tagstream.table.schema.schema import arrow_to_avro, avro_json, avro_to_arrow

FULL = pa.schema([("day", pa.int32()), pa.field("id", pa.string(), False), ("zone", pa.string()), ("n", pa.int64())])
STORED = avro_json(arrow_to_avro(pa.schema([FULL.field("id"), FULL.field("n")]), "t"))


def test_the_columns_have_the_place_and_type_of_the_given_schema() -> None:
    assert record_schema(STORED, ()) is STORED
    assert avro_to_arrow(record_schema(STORED, ("zone", "day"), FULL)) == FULL


def test_a_column_that_the_table_has_more_stays_where_it_is() -> None:
    given = pa.schema([FULL.field("id"), pa.field("zone", pa.string(), False), FULL.field("day"), ("new", pa.string())])
    found = avro_to_arrow(record_schema(STORED, ("day", "zone"), given))
    assert found.names == ["id", "zone", "day", "n"]
    assert not found.field("zone").nullable


def test_without_a_given_schema_they_are_texts_behind_the_others() -> None:
    found = record_schema(STORED, ("day", "zone"))
    assert avro_to_arrow(found).names == ["id", "n", "day", "zone"]
    assert json.loads(found)["fields"][2:] == [
        {"name": name, "type": ["null", "string"], "default": None} for name in ("day", "zone")
    ]
