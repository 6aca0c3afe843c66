"""A null record whose fields may not be null, in all forms of records: rows with it can be written to a Parquet file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tagstream.streaming.source.decode.connect_json import finished
from tagstream.streaming.source.decode.encodings import PLAIN
from tagstream.streaming.source.decode.file_values import typed
from tagstream.streaming.source.decode.json_decoder import JsonDecoder
from tagstream.streaming.source.decode.record_format import STRICT
from tagstream.table.schema.schema import avro_to_arrow

POINT: dict[str, Any] = {"type": "record", "name": "point", "fields": [
    {"name": "x", "type": "int"}, {"name": "names", "type": {"type": "array", "items": "string"}},
    {"name": "inner", "type": {"type": "record", "name": "inner", "fields": [{"name": "t", "type": "string"}]}},
]}  # fmt: skip
SCHEMA = avro_to_arrow(json.dumps({"type": "record", "name": "r", "fields": [{"name": "at", "type": ["null", POINT]}]}))
ROWS = [{"at": None}, {"at": {"x": 1, "names": ["a"], "inner": {"t": "t"}}}, {"at": None}]
FREE = pa.struct([
    pa.field("x", pa.int64()), pa.field("names", pa.list_(pa.string())),
    pa.field("inner", pa.struct([pa.field("t", pa.string())])),
])  # fmt: skip


def written(column: pa.Array, tmp_path: Path) -> list[Any]:
    table = pa.Table.from_arrays([column.cast(SCHEMA.field("at").type)], schema=SCHEMA)
    pq.write_table(table, tmp_path / "f.parquet")
    return pq.read_table(tmp_path / "f.parquet").to_pylist()


def wire() -> pa.Array:
    """The column as a reader returns it: everything may be null."""
    array = pa.array([row["at"] for row in ROWS], FREE)
    members = [array.field(i).take(pa.array([None, 1, None], pa.int64())) for i in range(3)]
    return pa.StructArray.from_arrays(members, fields=list(FREE), mask=pa.array([True, False, True]))


def test_columns_of_parquet_files(tmp_path: Path) -> None:
    column, reason = typed(wire(), SCHEMA.field("at"), STRICT)
    assert reason is None
    assert written(column, tmp_path) == ROWS


def test_columns_of_avro(tmp_path: Path) -> None:
    schema = pa.schema([SCHEMA.field("at")])
    rows, reason = finished(pa.table({"at": wire()}), pa.nulls(3, pa.string()), schema, {"at": PLAIN}, "raw")
    assert reason.null_count == 3
    assert written(rows.column("at").combine_chunks(), tmp_path) == ROWS


def test_json(tmp_path: Path) -> None:
    lines = [json.dumps(row).encode() for row in ROWS]
    rows, reason = JsonDecoder(SCHEMA, None, STRICT).decode(pa.array(lines))
    assert reason.null_count == 3
    assert written(rows.column("at").combine_chunks(), tmp_path) == ROWS
