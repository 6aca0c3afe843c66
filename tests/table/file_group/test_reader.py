"""Log files that real Hudi wrote, and damaged ones, read block by block."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.log_file import LogBlock, scan_log_file
from tagstream.table.file_group.log_format import I32, BlockType, HeaderKey, encode_block, rollback_block
from tagstream.table.schema.schema import RECORD_KEY
from tests.support import paths
from tests.support.stored import stored

VECTORS: dict[str, Any] = json.loads((paths.VECTORS / "log-blocks.json").read_text())["files"]
SCHEMA = VECTORS["avro"]["header"]["SCHEMA"]


def put(tmp_path: Path, *parts: bytes) -> str:
    path = tmp_path / ".f-0_20250101000000001.log.1_0-1-2"
    path.write_bytes(b"".join(parts))
    return str(path)


def vector(name: str) -> bytes:
    return bytes.fromhex(VECTORS[name]["hex"])


def only_block(tmp_path: Path, name: str) -> LogBlock:
    (block,) = scan_log_file(*stored(put(tmp_path, vector(name))))
    return block


@pytest.mark.parametrize("name", ["avro", "delete", "command", "parquet"])
def test_headers_and_places(tmp_path: Path, name: str) -> None:
    expected = VECTORS[name]
    block = only_block(tmp_path, name)
    assert block.type.name.startswith(name.upper())
    assert block.header == expected["header"]
    assert (block.content_offset, block.content_length) == (expected["content_offset"], expected["content_length"])
    assert block.instant == expected["header"]["INSTANT_TIME"]


def test_avro_rows(tmp_path: Path) -> None:
    block = only_block(tmp_path, "avro")
    assert block.read_table().to_pylist() == VECTORS["avro"]["records"]
    wanted = pa.schema([("v", pa.float64()), ("new", pa.string())])
    rows = block.read_table(wanted)
    assert rows.schema.equals(wanted)
    assert rows.to_pylist() == [{"v": 7.0, "new": None}, {"v": None, "new": None}]


def test_parquet_rows(tmp_path: Path) -> None:
    block = only_block(tmp_path, "parquet")
    rows = block.read_table()
    assert rows.to_pylist() == VECTORS["avro"]["records"]
    wanted = pa.schema([("v", pa.int64()), ("new", pa.string())])
    assert block.read_table(wanted).equals(
        rows.select(["v"]).append_column("new", pa.nulls(rows.num_rows, pa.string()))
    )


@pytest.mark.parametrize("name", ["command", "real_v6_rollback"])
def test_rollback_commands(tmp_path: Path, name: str) -> None:
    block = only_block(tmp_path, name)
    assert block.type is BlockType.COMMAND
    assert block.target_instant == VECTORS[name]["header"]["TARGET_INSTANT_TIME"]


def test_a_corrupt_block_is_skipped_like_the_real_reader_does(tmp_path: Path) -> None:
    found = list(scan_log_file(*stored(put(tmp_path, vector("corrupt")))))
    assert [(b.type.name.removesuffix("_DATA"), b.instant, b.content_offset, b.content_length) for b in found] == [
        (kind, instant, at["content_at"], at["content_len"])
        for kind, instant, at in VECTORS["corrupt"]["expected_reader_output"]
    ]
    assert found[2].type is BlockType.COMMAND


def test_an_empty_file_and_a_partial_magic_hold_no_block(tmp_path: Path) -> None:
    assert list(scan_log_file(*stored(put(tmp_path, b"")))) == []
    assert [b.type for b in scan_log_file(*stored(put(tmp_path, vector("avro"), b"#HU")))] == [BlockType.AVRO_DATA]


@pytest.mark.parametrize("cut", [7, 14, 15, 40, 300, 357])
def test_a_last_block_cut_short_is_corrupt(tmp_path: Path, cut: int) -> None:
    path = put(tmp_path, vector("command"), vector("avro")[:cut])
    assert [b.type for b in scan_log_file(*stored(path))] == [BlockType.COMMAND, BlockType.CORRUPT]


def test_a_wrong_size_and_a_wrong_end_are_corrupt(tmp_path: Path) -> None:
    good = vector("avro")
    for bad in (
        good[:6] + (10**15).to_bytes(8, "big") + good[14:],
        good[:6] + (-5).to_bytes(8, "big", signed=True) + good[14:],
        good[:-1] + b"\x00",
        good + b"x",
    ):
        found = [b.type for b in scan_log_file(*stored(put(tmp_path, bad, good)))]
        assert found == [BlockType.CORRUPT, BlockType.AVRO_DATA]


def test_a_magic_across_two_reads_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tagstream.table.file_group.log_file._SCAN_CHUNK", 16)
    for filler in range(16):
        path = put(tmp_path, b"#HUDI#", b"x" * (20 + filler), vector("command"))
        assert [b.type for b in scan_log_file(*stored(path))] == [BlockType.CORRUPT, BlockType.COMMAND]


def test_other_files_are_no_log_files(tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match="no block begins at byte 0"):
        list(scan_log_file(*stored(put(tmp_path, b"PAR1PAR1"))))


def test_long_headers_are_read_whole(tmp_path: Path) -> None:
    header = {HeaderKey.RECORD_POSITIONS: "é" * 70_000, HeaderKey.INSTANT_TIME: "20250101000000002"}
    path = put(tmp_path, encode_block(BlockType.DELETE, header, b"abc"), vector("command"))
    first, second = scan_log_file(*stored(path))
    assert first.header["RECORD_POSITIONS"] == "é" * 70_000
    assert first.content() == b"abc" and second.type is BlockType.COMMAND


def test_broken_headers_and_unknown_blocks_are_named(tmp_path: Path) -> None:
    good = rollback_block("20250101000000003", "20250101000000002")
    cases = [
        (14, (2).to_bytes(4, "big"), UnsupportedTableError, "version 2"),
        (18, (77).to_bytes(4, "big"), UnsupportedTableError, "type 77"),
        (22, (900).to_bytes(4, "big"), CorruptFileError, "broken header"),
    ]
    for at, value, error, message in cases:
        bad = good[:at] + value + good[at + 4 :]
        with pytest.raises(error, match=f"byte 0 of .*{message}"):
            list(scan_log_file(*stored(put(tmp_path, bad))))


@pytest.mark.parametrize("kind", [BlockType.HFILE_DATA, BlockType.CDC_DATA, BlockType.COMMAND])
def test_kinds_without_rows_are_refused_when_read(tmp_path: Path, kind: BlockType) -> None:
    (block,) = scan_log_file(*stored(put(tmp_path, encode_block(kind, {HeaderKey.INSTANT_TIME: "1"}, b""))))
    with pytest.raises(UnsupportedTableError, match=kind.name):
        block.read_table()
    with pytest.raises(ValueError, match="not a delete block"):
        block.deletes()


def test_a_partial_update_says_which_columns_it_has(tmp_path: Path) -> None:
    whole = only_block(tmp_path, "avro")
    header = {HeaderKey.SCHEMA: SCHEMA, HeaderKey.IS_PARTIAL: "true"}
    (block,) = scan_log_file(*stored(put(tmp_path, encode_block(BlockType.AVRO_DATA, header, whole.content()))))
    assert (whole.is_partial, block.is_partial) == (False, True)
    assert block.columns == {field["name"] for field in json.loads(SCHEMA)["fields"]}
    more = block.read_table(pa.schema([pa.field(RECORD_KEY, pa.string()), pa.field("more", pa.int64())]))
    assert more["more"].null_count == more.num_rows > 0


def avro_block_of(tmp_path: Path, content: bytes, schema: str | None = SCHEMA) -> LogBlock:
    header = {HeaderKey.INSTANT_TIME: "1"} | ({HeaderKey.SCHEMA: schema} if schema else {})
    (block,) = scan_log_file(*stored(put(tmp_path, encode_block(BlockType.AVRO_DATA, header, content))))
    return block


def test_many_avro_records_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tagstream.table.file_group.log_file._CHUNK", 3)
    content = only_block(tmp_path, "avro").content()
    for times in (0, 1, 2, 3, 5):
        block = avro_block_of(tmp_path, I32.pack(3) + I32.pack(2 * times) + content[8:] * times)
        assert block.read_table().to_pylist() == VECTORS["avro"]["records"] * times


def test_garbled_avro_content_is_named(tmp_path: Path) -> None:
    good = only_block(tmp_path, "avro").content()
    for bad in (b"", good[:-1], good[:8] + (10**6).to_bytes(4, "big") + good[12:], good[:11] + b"\x09" + good[12:]):
        with pytest.raises(CorruptFileError, match="AVRO_DATA block at byte 0"):
            avro_block_of(tmp_path, bad).read_table()
    with pytest.raises(UnsupportedTableError, match="version 2"):
        avro_block_of(tmp_path, I32.pack(2) + good[4:]).read_table()
    with pytest.raises(CorruptFileError, match="no SCHEMA"):
        avro_block_of(tmp_path, good, schema=None).read_table()


def test_garbled_parquet_content_is_named(tmp_path: Path) -> None:
    header = {HeaderKey.SCHEMA: SCHEMA, HeaderKey.INSTANT_TIME: "1"}
    (block,) = scan_log_file(*stored(put(tmp_path, encode_block(BlockType.PARQUET_DATA, header, b"PAR1 nothing PAR1"))))
    with pytest.raises(CorruptFileError, match="no readable Parquet content"):
        block.read_table()


def test_a_file_that_shrinks_under_the_reader_is_named(tmp_path: Path) -> None:
    path = put(tmp_path, vector("avro"))
    (block,) = scan_log_file(*stored(path))
    Path(path).write_bytes(vector("avro")[:320])
    with pytest.raises(CorruptFileError, match="shorter"):
        block.read_table()


NUMBERS = {
    "ts": {"type": "long", "logicalType": "timestamp-micros"},
    "local": {"type": "long", "logicalType": "local-timestamp-millis"},
    "day": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
}
OTHERS = {
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 3},
    "tags": {"type": "array", "items": ["null", "string"]},
    "attrs": {"type": "map", "values": ["null", "int"]},
    "nested": {"type": "record", "name": "nested", "fields": [{"name": "at", "type": ["null", "long"]}]},
    "raw": "bytes",
}


def record_of(types: dict[str, Any]) -> dict[str, Any]:
    fields = [{"name": name, "type": ["null", avro]} for name, avro in types.items()]
    return {"type": "record", "name": "r", "fields": fields}


def test_avro_values_of_every_type(tmp_path: Path) -> None:
    row = {
        "ts": 253_402_300_800_000_000,  # the year 10000, which Python's datetime does not have
        "local": -1,
        "day": -719_529,
        "time": 1,
        "price": Decimal("12345678901234567890123456789012345.678"),
        "tags": ["a", None],
        "attrs": {"k": 3},
        "nested": {"at": 5},
        "raw": b"\x00\xff",
    }
    out = io.BytesIO()
    plain = {name: avro["type"] for name, avro in NUMBERS.items()}
    fastavro.schemaless_writer(out, fastavro.parse_schema(record_of(plain | OTHERS)), row)
    content = I32.pack(3) + I32.pack(1) + I32.pack(len(out.getvalue())) + out.getvalue()
    rows = avro_block_of(tmp_path, content, json.dumps(record_of(NUMBERS | OTHERS))).read_table()
    numbers = {name: pa.int32() if name == "day" else pa.int64() for name in NUMBERS}
    found = [rows.column(name).cast(arrow)[0].as_py() for name, arrow in numbers.items()]
    assert found == [row[name] for name in NUMBERS]
    (others,) = rows.select(list(OTHERS)).to_pylist(maps_as_pydicts="strict")
    assert others == {name: row[name] for name in OTHERS}
