"""Avro blocks read as columns are what the reader of records makes of them; damage is named as before."""

from __future__ import annotations

import decimal
import io
import json
import random
import struct
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group import avro_columns
from tagstream.table.file_group.avro_columns import columns_of
from tagstream.table.file_group.change_file import LoggingMode, change_block, change_schema, changes_of
from tagstream.table.file_group.log_file import decode, encode
from tagstream.table.schema.schema import arrow_to_avro, avro_to_arrow
from tests.table.file_group.avro_rows import SCHEMA, random_rows

DECIMAL = {"logicalType": "decimal", "precision": 9, "scale": 2}
MILLIS = {"type": "long", "logicalType": "timestamp-millis"}


def framed(records: list[Any], avro: Any) -> bytes:
    """A block's content by the Avro library."""
    parsed, out = fastavro.parse_schema(avro), [struct.pack(">ii", 3, len(records))]
    for record in records:
        one = io.BytesIO()
        fastavro.schemaless_writer(one, parsed, record)
        out += [struct.pack(">i", len(one.getvalue())), one.getvalue()]
    return b"".join(out)


def record(*types: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "r",
        "fields": [{"name": f"v{n}", "type": t} for n, t in enumerate(types)],
        **more,
    }


def fast(content: bytes, avro: Any) -> pa.Table | None:
    text = json.dumps(avro)
    (count,) = struct.unpack_from(">i", content, 4)
    return columns_of(memoryview(content)[8:], count, text, avro_to_arrow(text, keep_meta=True))


def slow(content: bytes, avro: Any, patch: pytest.MonkeyPatch) -> pa.Table:
    with patch.context() as without:
        without.setattr(avro_columns, "_reader", lambda: None)
        return decode(content, json.dumps(avro), "here")


def test_random_rows_of_every_kind_of_type(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, avro = random_rows(500, seed=2), arrow_to_avro(SCHEMA, "t")
    content = encode(rows, json.dumps(avro))
    found = fast(content, avro)
    assert found is not None
    assert found.equals(rows)
    assert found.schema.equals(avro_to_arrow(avro))
    assert slow(content, avro, monkeypatch).equals(rows)
    some = decode(content, json.dumps(avro), "here", ["m", "i"])
    assert some.equals(rows.select(["i", "m"]))


@pytest.mark.parametrize(
    ("avro", "values"),
    [
        (record(["int"], "null"), [1, None]),
        (record(["int", "null"], ["null", "int"]), [None, 3]),
        (record({"type": "bytes", **DECIMAL}, {"type": "fixed", "name": "d", "size": 6, **DECIMAL}, ["null", "d"]),
         ["-12.50", "1.01", "0.00"]),
        (record(MILLIS, ["null", {**MILLIS, "logicalType": "local-timestamp-micros"}],
                {**MILLIS, "logicalType": "time-micros"}),
         [253402300800000, -1, 5]),
        (record({"type": "int", "logicalType": "date"}, {"type": "int", "logicalType": "time-millis"}), [-1, 7]),
        (record({"type": "string", "logicalType": "uuid"}, "bytes", {"type": "fixed", "name": "f", "size": 2}, "float"),
         ["ec4b1c4e-52b0-4b6a-b0bc-8d5cd0c9a1f4", b"", b"ab", 1.5]),
        (record({"type": "enum", "name": "e", "symbols": ["A", "B"]}, ["null", "n.e"], namespace="n"), ["B", "A"]),
        (record({"type": "array", "items": ["null", {"type": "map", "values": ["null", "long"]}]}),
         [[{"a": 1, "b": None}, None]]),
        (record(["null", {**record("int", {"type": "array", "items": record("string", name="s")}), "name": "q"}], "boolean"),
         [{"v0": 1, "v1": [{"v0": "x"}, {"v0": ""}]}, True]),
    ],
)  # fmt: skip
def test_types_as_the_reader_of_records_reads_them(
    avro: dict[str, Any], values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [decimal.Decimal(v) if isinstance(v, str) and v[-3:-2] == "." else v for v in values]
    bare = json.loads(json.dumps(avro).replace("timestamp-", "x-").replace("time-", "x-").replace("date", "x"))
    content = framed([{f"v{n}": v for n, v in enumerate(values)}] * 3, bare)
    found = fast(content, avro)
    assert found is not None
    assert found.num_rows == 3
    assert found.equals(slow(content, avro, monkeypatch))


@pytest.mark.parametrize("mode", list(LoggingMode))
def test_changes_with_and_without_images(mode: LoggingMode, monkeypatch: pytest.MonkeyPatch) -> None:
    """The content of a change file: structs that are null as a whole."""
    rows = pa.table({"id": pa.array(["a", "b"]), "n": pa.array([None, 2], pa.int32())})
    avro = json.dumps(arrow_to_avro(rows.schema, "t"))
    keys = rows.column("id").combine_chunks()
    changes = pa.concat_tables([changes_of("i", keys, None, rows, avro), changes_of("d", keys, rows, None, avro)])
    block = change_block(mode, changes, avro, "20250101000000000")
    content = block[block.index(struct.pack(">ii", 3, 4)) :]
    schema = change_schema(mode, avro)
    content = content[: -8 - 4]  # without the block's footer and size
    found = fast(content, schema)
    assert found is not None
    assert found.equals(slow(content, schema, monkeypatch))
    for name in found.column_names:
        if name != "ts_ms":
            assert found.column(name).to_pylist() == changes.column(name).to_pylist()


def test_few_records_need_no_reader_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        "tagstream.table.file_group.log_file.columns_of", lambda _records, count, *_: asked.append(count)
    )
    avro = record("int")
    for count in (499, 500):
        content = framed([{"v0": n} for n in range(count)], avro)
        assert decode(content, json.dumps(avro), "here").num_rows == count
    assert asked == [500]


def test_unions_of_several_types_are_left_to_the_reader_of_records(capfd: pytest.CaptureFixture[str]) -> None:
    """The reader of columns would end in a panic, and print it."""
    avro = record("int", ["null", "int", "string"])
    content = framed([{"v0": 1, "v1": "x"}], avro)
    assert columns_of(memoryview(content)[8:], 1, json.dumps(avro), pa.schema([("v0", pa.int32())])) is None
    assert capfd.readouterr().err == ""


def test_lengths_that_are_not_those_of_the_records() -> None:
    avro = record("string", "int")
    content = bytearray(framed([{"v0": "abc", "v1": n} for n in range(5)], avro))
    assert fast(bytes(content), avro) is not None
    content[8:12] = struct.pack(">i", 6)
    assert fast(bytes(content), avro) is None
    with pytest.raises(CorruptFileError, match="no readable Avro records"):
        decode(bytes(content), json.dumps(avro), "here")


def test_damaged_bytes_are_no_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader of columns takes a number of a branch that a union lacks for the one of its type; nothing else differs."""
    rnd = random.Random(4)
    fields = [SCHEMA.field(name) for name in ("i", "s", "d", "b", "l")]
    rows = random_rows(20, seed=3).select([f.name for f in fields])
    avro = arrow_to_avro(pa.schema(fields), "t")
    good = encode(rows, json.dumps(avro))
    both = 0
    for _ in range(300):
        bad = bytearray(good)
        bad[rnd.randrange(8, len(bad))] = rnd.randrange(256)
        found = fast(bytes(bad), avro)
        try:
            expected = slow(bytes(bad), avro, monkeypatch)
        except CorruptFileError as error:
            assert found is None or "list index out of range" in str(error)
            continue
        if found is not None:
            assert str(found.to_pylist()) == str(expected.to_pylist())
            both += 1
    assert both > 100


def test_bytes_behind_the_last_record_end_the_reader_of_columns() -> None:
    """The functions of the library never return from such a block."""
    avro = record("int")
    content = framed([{"v0": n} for n in range(3)], avro) + b"\0\0\0"
    assert fast(content, avro) is None
    assert decode(content, json.dumps(avro), "here").column("v0").to_pylist() == [0, 1, 2]
