"""Blocks of Avro files in every codec: rows, bytes behind the records, damage, and which block it is."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import polars as pl
import polars_avro
import pytest

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.avro_blocks import AvroBlock, AvroDecoder, avro_decoder
from tagstream.streaming.source.file_avro import AvroFiles, read_header
from tagstream.streaming.source.source_file import DamagedFileError, FilePart
from tagstream.table.file_group.log_format import zigzag
from tagstream.table.storage.posix import PosixStorage

ROWS = [{"id": f"k{n}", "n": None if n % 5 == 0 else n, "tags": ["a"] * (n % 3)} for n in range(500)]
SCHEMA: dict[str, Any] = {"type": "record", "name": "r", "fields": [
    {"name": "id", "type": "string"}, {"name": "n", "type": ["null", "long"]},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
]}  # fmt: skip
SYNC = b"0123456789abcdef"


def encoded(rows: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    for row in rows:
        fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), row)
    return out.getvalue()


def block(start: int, count: int, content: bytes) -> AvroBlock:
    head = zigzag(count) + zigzag(len(content))
    return AvroBlock(start, count, head + content + SYNC, len(head))


def decoder(codec: str = "null") -> AvroDecoder:
    return AvroDecoder(json.dumps(SCHEMA), codec, "in/a")


def rows_of(blocks: list[AvroBlock]) -> list[tuple[list[int], list[Any]]]:
    return [([b.start for b in part], rows.to_pylist()) for part, rows in decoder().decode(blocks)]


@pytest.mark.parametrize("codec", [None, "Deflate", "Snappy", "Zstandard", "Bzip2", "Xz"])
def test_every_codec(tmp_path: Path, codec: str | None) -> None:
    path = tmp_path / "a"
    kind = getattr(polars_avro.Codec, codec) if codec else None
    columns = {"id": pl.String, "n": pl.Int64, "tags": pl.List(pl.String)}
    polars_avro.write_avro(pl.DataFrame(ROWS, schema=columns), path, codec=kind)
    storage, size = PosixStorage(str(tmp_path)), path.stat().st_size
    header = read_header(storage, "a", size)
    assert header is not None
    assert header.codec == (codec or "null").lower()
    found = list(AvroFiles().records(storage, FilePart("a", 0, size), {}))
    assert [row for batch, _ in found for row in batch.column(0).to_pylist()] == ROWS


def test_blocks_are_decoded_together_and_an_empty_one_has_no_rows() -> None:
    blocks = [block(0, 2, encoded(ROWS[:2])), block(1, 0, b""), block(2, 3, encoded(ROWS[2:5]))]
    assert rows_of(blocks) == [([0, 1, 2], ROWS[:5])]


@pytest.mark.parametrize("extra", [b"\0", b"\2", b"\0" * 9, b"\2\4xy\0", bytes.fromhex("009e3779b97f4a1c05")])
def test_bytes_behind_the_records_of_one_block(extra: bytes) -> None:
    """The last of these is what the reader expects behind a block. It changes nothing in a file's last block."""
    blocks = [block(0, 2, encoded(ROWS[:2])), block(1, 1, encoded(ROWS[2:3]) + extra), block(2, 2, encoded(ROWS[3:5]))]
    assert [row for _, rows in rows_of(blocks) for row in rows] == ROWS[:5]
    assert [row for _, rows in rows_of(blocks[:2]) for row in rows] == ROWS[:3]


def test_a_damaged_block_is_named_after_those_before_it() -> None:
    good = block(0, 2, encoded(ROWS[:2]))
    for bad in (encoded(ROWS[:1]), encoded(ROWS[:3])[:-1], b"", b"\xff" * 30):
        found = decoder().decode([good, block(77, 3, bad)])
        assert next(found)[1].to_pylist() == ROWS[:2]
        with pytest.raises(DamagedFileError, match=r"the block at byte 77 cannot be decoded \(.*; codec null\)"):
            next(found)


@pytest.mark.parametrize("codec", ["deflate", "snappy", "zstandard", "lz4"])
def test_content_that_is_not_of_its_codec(codec: str) -> None:
    with pytest.raises(DamagedFileError, match=f"byte 5 cannot be decoded .*; codec {codec}"):
        list(decoder(codec).decode([block(5, 2, encoded(ROWS[:2]))]))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([{"name": "u", "type": ["int", "string"]}], "field r.u is a union of several types"),
        ([{"name": "next", "type": ["null", "r"]}], "type r contains itself.*; remove it from the source folder"),
    ],
)
def test_schemas_without_columns_are_refused_with_the_file(fields: list[Any], words: str) -> None:
    with pytest.raises(SourceError, match=f"source file in/b: .*{words}"):
        avro_decoder(json.dumps({**SCHEMA, "fields": fields}), "null", "in/b")
