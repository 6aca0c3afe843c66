"""Rows in the types of a schema."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tagstream.table.schema.conform import as_schema, as_type, conform

# A nullable record with a list that may not be null: a field of Avro's without "null" in a union that has it.
TEXTS = pa.field("texts", pa.list_(pa.field("element", pa.string(), nullable=False)), nullable=False)
NESTED = pa.struct([pa.field("n", pa.int32()), TEXTS])
ROWS = pa.array([{"n": 1, "texts": ["x"]}, None], NESTED)


@pytest.mark.parametrize(
    "taken", [ROWS, ROWS.take(pa.array([0, None, 1]))], ids=["as written", "with a row of no number"]
)
def test_a_list_that_may_not_be_null_in_a_record_that_is(taken: pa.Array) -> None:
    rows = pa.table({"nest": taken})
    schema = pa.schema([pa.field("nest", NESTED)])
    assert as_type(taken, NESTED).equals(taken)
    assert as_schema(rows, schema).equals(rows)
    assert conform(rows.append_column("more", pa.nulls(len(taken))), schema, "a file").equals(rows)


def test_another_type_is_cast() -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    assert as_schema(pa.table({"n": pa.array([1], pa.int32())}), schema) == pa.table({"n": [1]}, schema=schema)
