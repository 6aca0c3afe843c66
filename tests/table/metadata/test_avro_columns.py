"""Records decoded side by side are those the Avro library decodes one by one."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tagstream.table.metadata.record_index import AvroColumns

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Outer",
    "fields": [
        {"name": "file", "type": ["null", "string"]},
        {"name": "ratio", "type": ["double", "boolean", "float"]},
        {"name": "key", "type": {"type": "string", "avro.java.string": "String"}},
        {"name": "inner", "type": ["null", {"type": "record", "name": "Inner", "fields": [
            {"name": "high", "type": "long"},
            {"name": "index", "type": ["null", "int"]},
            {"name": "name", "type": "string"},
        ]}]},
        {"name": "raw", "type": "bytes"},
    ],
}  # fmt: skip
PARSED = fastavro.parse_schema(SCHEMA)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
LONGS = st.integers(-(2**63), 2**63 - 1)
INNER = st.none() | st.fixed_dictionaries(
    {"high": LONGS, "index": st.none() | st.integers(-(2**31), 2**31 - 1), "name": TEXTS}
)
RECORDS = st.fixed_dictionaries({
    "file": st.none() | TEXTS, "ratio": st.booleans() | st.just(0.5), "key": TEXTS, "inner": INNER,
    "raw": st.binary(max_size=70),
})  # fmt: skip


def encoded(record: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, PARSED, record)
    return out.getvalue()


@given(st.lists(RECORDS, max_size=12), st.integers(0, 3))
def test_columns_are_those_of_the_records(records: list[dict[str, Any]], start: int) -> None:
    values = pa.array([encoded(record) for record in records], pa.binary()).slice(start)
    records = records[start:]
    found = AvroColumns(values, SCHEMA)
    inner = [record["inner"] or {} for record in records]
    assert found.numbers("inner.high", 7).tolist() == [each.get("high", 7) for each in inner]
    indexes = [each.get("index") for each in inner]
    assert found.numbers("inner.index", -1).tolist() == [-1 if index is None else index for index in indexes]
    assert found.texts("inner.name").to_pylist() == [each.get("name", "") for each in inner]
    assert found.texts("file").to_pylist() == [record["file"] or "" for record in records]
    assert found.texts("key").to_pylist() == [record["key"] for record in records]
    assert found.texts("no such field").to_pylist() == [""] * len(records)


@given(st.lists(RECORDS, min_size=1, max_size=4), st.data())
def test_damage_is_a_value_error(records: list[dict[str, Any]], data: st.DataObject) -> None:
    values = [bytearray(encoded(record)) for record in records]
    broken = data.draw(st.sampled_from(values))
    broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    del broken[data.draw(st.integers(0, len(broken))) :]
    try:
        found = AvroColumns(pa.array([bytes(value) for value in values], pa.binary()), SCHEMA)
        found.texts("key")
    except (ValueError, pa.ArrowInvalid):
        return
    assert len(found.numbers("inner.high")) == len(records)


@pytest.mark.parametrize(
    "avro", [{"type": "map", "values": "long"}, "elsewhere.Named", {"type": "array", "items": "int"}, None]
)
def test_other_types_are_refused(avro: Any) -> None:
    with pytest.raises(ValueError, match="not supported"):
        AvroColumns(pa.array([b"\0"]), {"type": "record", "name": "R", "fields": [{"name": "x", "type": avro}]})
