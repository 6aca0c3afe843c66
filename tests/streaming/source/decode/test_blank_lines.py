"""Blank lines of files are no records in any format; an empty message of a topic is one."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from tagstream.streaming.source.decode.make_format import FormatRules
from tests.streaming.source.decode.decoding import decoder

SCHEMA = {
    "type": "record", "name": "r",
    "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": ["null", "string"], "default": None}],
}  # fmt: skip
ROW = {"id": 1, "v": "a"}
RECORDS = {
    "debezium-json": {"op": "c", "before": None, "after": ROW, "source": {"db": "d", "table": "t", "lsn": 1}},
    "debezium-flat-json": {**ROW, "__op": "c", "__table": "t"},
    "maxwell-json": {"database": "d", "table": "t", "type": "insert", "ts": 1, "data": ROW},
    "canal-json": {"database": "d", "table": "t", "type": "INSERT", "isDdl": False, "data": [ROW], "old": None},
}


def batch(values: list[bytes], src: str | None) -> pa.RecordBatch:
    n = len(values)
    return pa.RecordBatch.from_pydict({
        "key": pa.nulls(n, pa.binary()), "value": pa.array(values, pa.binary()), "src": pa.array([src] * n, pa.string()),
        "pos_hi": pa.array([0] * n, pa.int64()), "pos_lo": pa.array(range(n), pa.int64()),
    })  # fmt: skip


@pytest.mark.parametrize("name", RECORDS)
def test_only_the_record_is_read(name: str) -> None:
    decode = decoder(SCHEMA, ["id"], rules=FormatRules(name), files=True)
    lines = [b"", json.dumps(RECORDS[name]).encode(), b" \t\r", b""]
    (found,) = decode.keys(batch(lines, "file:///a.json")).to_pylist()
    assert (found["reason"], found["pos_lo"]) == (None, 1)
    assert decode.keys(batch(lines, None)).num_rows == 4
