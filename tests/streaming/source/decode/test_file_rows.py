"""Rows of Parquet and Avro files in the table's types: what their logical types mean, or why a value does not fit."""

from __future__ import annotations

import io
import json
import uuid
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tagstream.streaming.source.decode.file_rows import FileRows
from tagstream.streaming.source.decode.file_values import typed
from tagstream.streaming.source.decode.plain_json import with_delete_mark
from tagstream.streaming.source.decode.record_format import STRICT, DecodeRules, Events, avro_facts
from tagstream.streaming.source.file_avro import AvroFiles
from tagstream.streaming.source.file_parquet import ParquetFiles
from tagstream.streaming.source.file_plans import Split
from tagstream.streaming.source.file_reader import FilesSpec, split_lines
from tagstream.streaming.source.source_file import FileForm
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.storage.posix import PosixStorage

MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123456, UTC)
ID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def nullable(kind: Any) -> Any:
    return ["null", kind]


INNER = {"type": "record", "name": "inner", "fields": [{"name": "n", "type": nullable("int"), "default": None}]}
FIELDS: dict[str, tuple[Any, Any, Any]] = {  # name: (Avro type, value in a file, value in the table)
    "a_decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
                  Decimal("-123456.789"), Decimal("-123456.789")),
    "a_date": ({"type": "int", "logicalType": "date"}, date(1969, 12, 31), date(1969, 12, 31)),
    "millis": ({"type": "long", "logicalType": "timestamp-millis"},
               MOMENT.replace(microsecond=123000), MOMENT.replace(microsecond=123000)),
    "micros": ({"type": "long", "logicalType": "timestamp-micros"}, MOMENT, MOMENT),
    "local": ({"type": "long", "logicalType": "local-timestamp-micros"},
              MOMENT.replace(tzinfo=None), MOMENT.replace(tzinfo=None)),
    "clock": ({"type": "long", "logicalType": "time-micros"}, time(1, 2, 3, 4), time(1, 2, 3, 4)),
    "a_uuid": ({"type": "string", "logicalType": "uuid"}, ID, str(ID)),
    "raw": ("bytes", b"\x00\xff", b"\x00\xff"),
    "a_list": ({"type": "array", "items": nullable("long")}, [1, None], [1, None]),
    "a_map": ({"type": "map", "values": nullable("double")}, {"k": 0.5}, [("k", 0.5)]),
    "a_struct": (INNER, {"n": 7}, {"n": 7}),
    "flag": ("boolean", True, True),
    "single": ("float", 0.5, 0.5),
}  # fmt: skip
SCHEMA = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "id", "type": "long"},
        *({"name": n, "type": nullable(t), "default": None} for n, (t, _, _) in FIELDS.items()),
    ],
}
TABLE = avro_to_arrow(json.dumps(SCHEMA))
WANTED = {"id": 1, **{name: value for name, (_, _, value) in FIELDS.items()}}


def read(
    folder: Path,
    form: FileForm,
    data: bytes,
    schema: dict[str, Any] = SCHEMA,
    rules: DecodeRules = STRICT,
    operation: str | None = None,
) -> list[Events]:
    """The events of a file."""
    (folder / "f").write_bytes(data)
    text = json.dumps(schema)
    columns = with_delete_mark(avro_to_arrow(text))
    rows = FileRows(columns, avro_facts(text), rules, operation=operation)
    spec = FilesSpec(PosixStorage(str(folder)), "fail", form=form)
    found = split_lines(spec, Split("f", 0, len(data), 1), {f.name: f.type for f in columns} | {"old": pa.int64()})
    return [rows.read(batch) for batch in found]


def parquet(table: pa.Table, **more: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **more)
    return out.getvalue()


def avro(rows: list[dict[str, Any]], schema: dict[str, Any] = SCHEMA, **more: Any) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, schema, rows, **more)
    return out.getvalue()


def good(events: list[Events]) -> list[dict[str, Any]]:
    for each in events:
        assert each.reason.null_count == len(each.reason), each.reason.to_pylist()
    return [row for each in events for row in each.rows.to_pylist()]


def without_mark(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not name.startswith("_hoodie")}


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_avros_logical_types(tmp_path: Path, codec: str) -> None:
    row = {"id": 1, **{name: value for name, (_, value, _) in FIELDS.items()}}
    rows = good(read(tmp_path, AvroFiles(), avro([row, {"id": 2}], codec=codec)))
    assert without_mark(rows[0]) == WANTED
    assert without_mark(rows[1]) == {"id": 2, **dict.fromkeys(FIELDS)}


@pytest.mark.parametrize("int96", [False, True])
def test_parquets_types(tmp_path: Path, int96: bool) -> None:
    table = pa.Table.from_pylist([WANTED, {"id": 2}], TABLE)
    if int96:  # the form in which Spark writes timestamps
        at = [i for i, f in enumerate(table.schema) if pa.types.is_timestamp(f.type)]
        for i in at:
            table = table.set_column(i, table.schema.names[i], table.column(i).cast(pa.timestamp("ns")))
    data = parquet(table, use_deprecated_int96_timestamps=int96, store_schema=False)
    rows = good(read(tmp_path, ParquetFiles(), data))
    assert without_mark(rows[0]) == WANTED
    assert without_mark(rows[1]) == {"id": 2, **dict.fromkeys(FIELDS)}


def test_parquets_uuids_and_small_numbers(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": pa.array([1], pa.uint16()),
            "a_uuid": pa.array([ID.bytes], pa.uuid()),
            "micros": pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("ns")),
            "single": pa.array([0.5], pa.float16()),
            "a_list": pa.array([[3]], pa.large_list(pa.int32())),
            "text": pa.array(["x"]).dictionary_encode(),
        }
    )
    schema = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "text", "type": nullable("string")}]}  # type: ignore[misc]
    (row,) = good(read(tmp_path, ParquetFiles(), parquet(table), schema))
    assert {name: row[name] for name in table.column_names} == {
        "id": 1, "a_uuid": str(ID), "micros": MOMENT, "single": 0.5, "a_list": [3], "text": "x",
    }  # fmt: skip


def bad(column: pa.Array, kind: pa.DataType, rules: DecodeRules = STRICT) -> list[str | None]:
    array, reason = typed(column, pa.field("f", kind), rules)
    assert array.type == kind
    return [None] * len(column) if reason is None else reason.to_pylist()


NS = pa.array([1_000, 1_001, None], pa.timestamp("ns"))


@pytest.mark.parametrize(
    ("column", "kind", "wrong"),
    [
        (pa.array([1, 2**40]), pa.int32(), {1: "does not fit int32"}),
        (pa.array([1.0, 1.5]), pa.int64(), {1: "does not fit int64"}),
        (pa.array([0.5, 0.125]), pa.decimal128(5, 2), {1: "loses digits in decimal128"}),
        (pa.array([Decimal("1.5"), Decimal("1.0000000000000000000000001")]), pa.float64(), {1: "loses digits in double"}),
        (pa.array([Decimal("1.00"), Decimal("1.23")]), pa.decimal128(5, 1), {1: "does not fit decimal128"}),
        (pa.array([0.5, 1e300]), pa.float32(), {1: "does not fit float"}),
        (NS, pa.timestamp("us"), {1: "does not fit timestamp"}),
        (pa.array(["7", "x"]), pa.int64(), {1: "is not a number"}),
        (pa.array(["2024-01-02", "02.01.2024"]), pa.date32(), {1: "f: "}),
        (pa.array(["true", "yes"]), pa.bool_(), {1: "true or false"}),
        (pa.array([b"a", b"\xff"]), pa.string(), {1: "does not fit string"}),
        (pa.array([b"ab", b"abc"]), pa.binary(2), {1: "does not fit fixed_size_binary"}),
        (pa.array([True]), pa.int64(), {0: "is a bool, and the column has type int64"}),
        (pa.array([MOMENT]), pa.int64(), {0: "is a timestamp"}),
        (pa.array([[1]]), pa.string(), {0: "is a nested value"}),
        (pa.array([1, 3_000_000]), pa.date32(), {1: "not in the years 1 to 9999"}),
        (pa.array([[1], [2, 2**40]]), pa.list_(pa.int32()), {1: "does not fit int32"}),
        (pa.array([{"a": 1}, {"a": 2**40}]), pa.struct([("a", pa.int32())]), {1: "f.a: "}),
        (pa.array([[("k", 1)], [("k", 2**40)]], pa.map_(pa.string(), pa.int64())), pa.map_(pa.string(), pa.int32()),
         {1: "does not fit int32"}),
    ],
)  # fmt: skip
def test_values_that_would_lose_something_are_bad_alone(
    column: pa.Array, kind: pa.DataType, wrong: dict[int, str]
) -> None:
    found = bad(column, kind)
    assert {i for i, reason in enumerate(found) if reason is not None} == set(wrong)
    for i, text in wrong.items():
        assert text in str(found[i])


def test_rules_that_accept_a_loss() -> None:
    loose = DecodeRules(round_numbers=True, truncate_times=True)
    assert bad(pa.array([Decimal("1.25")]), pa.decimal128(3, 1), loose) == [None]
    assert typed(pa.array([Decimal("1.25")]), pa.field("f", pa.decimal128(3, 1)), loose)[0].to_pylist() == [
        Decimal("1.3")
    ]
    assert bad(NS, pa.timestamp("us"), loose) == [None] * 3
    assert bad(pa.array([MOMENT.replace(tzinfo=None)]), pa.date32(), loose) == [None]


def test_a_file_with_other_columns(tmp_path: Path) -> None:
    """A column less is the default or null, a further one is not read, a renamed one is found by its alias."""
    fields = [
        {"name": "id", "type": "long"},
        {"name": "kind", "type": "string", "default": "none"},
        {"name": "new", "type": nullable("long"), "default": None, "aliases": ["old"]},
        {"name": "must", "type": "string"},
    ]
    schema = {"type": "record", "name": "r", "fields": fields}
    written = {"type": "record", "name": "r", "fields": [{"name": n, "type": "int"} for n in ("id", "old", "more")]}
    for form, data in (
        (AvroFiles(), avro([{"id": 1, "old": 5, "more": 0}], written)),
        (ParquetFiles(), parquet(pa.table({"id": [1], "old": [5], "more": [0]}))),
    ):
        (events,) = read(tmp_path, form, data, schema)
        assert events.rows.to_pylist() == [
            {"id": 1, "kind": "none", "new": 5, "must": None, "_hoodie_is_deleted": None}
        ]
        assert events.reason.to_pylist() == ["field must is null, and the table asks for a value"]
        assert events.lines is not None
        line = json.loads(events.lines(pa.array([True]).to_numpy(zero_copy_only=False))[0].as_py())
        assert line["old"] == 5


def test_deletes_by_their_mark_and_by_the_operation_of_dms(tmp_path: Path) -> None:
    table = pa.table(
        {
            "id": [1, 2, 3, 4, 5],
            "Op": ["I", "D", "d", None, ""],
            "_hoodie_is_deleted": [True, False, None, None, False],
        }
    )
    schema = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "Op", "type": nullable("string")}]}  # type: ignore[misc]
    (events,) = read(tmp_path, ParquetFiles(), parquet(table), schema, operation="Op")
    assert events.deleted.tolist() == [True, True, True, False, False]
    (events,) = read(tmp_path, ParquetFiles(), parquet(table), schema)
    assert events.deleted.tolist() == [True, False, False, False, False]


def test_texts_of_enums_and_uuids_are_checked(tmp_path: Path) -> None:
    fields = [
        {"name": "id", "type": "long"},
        {"name": "e", "type": {"type": "enum", "name": "e", "symbols": ["A", "B"]}},
        {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
    ]
    table = pa.table({"id": [1, 2, 3], "e": ["A", "C", "B"], "u": [str(ID), str(ID), "x"]})
    data = parquet(table)
    (events,) = read(tmp_path, ParquetFiles(), data, {"type": "record", "name": "r", "fields": fields})
    assert events.reason.to_pylist() == [
        None,
        "field e: the text is not a symbol of the enum (A, B)",
        "field u: the text is not a uuid",
    ]
