"""Base files: footer, physical form, row groups."""

from __future__ import annotations

import errno
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tagstream.table.errors import ConfigError, CorruptFileError, InvalidKeyError
from tagstream.table.file_group.base_file import BaseFileResult, BaseFileWriter, read_footer, read_keys
from tagstream.table.file_group.bloom import SIMPLE, BloomBuilder, BloomParams
from tagstream.table.schema import schema
from tests.support.stored import stored

USER = pa.schema(
    [
        ("id", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("price", pa.decimal128(12, 3)),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("attrs", pa.map_(pa.string(), pa.int32())),
    ]
)
SCHEMA = schema.with_meta(USER)
AVRO = schema.avro_json(schema.with_meta_avro(schema.arrow_to_avro(USER, "t")))
SMALL = BloomParams(num_entries=10, fpp=0.01, dynamic_max_entries=30)


def rows(*keys: str | None) -> pa.Table:
    columns = {name: pa.nulls(len(keys), SCHEMA.field(name).type) for name in SCHEMA.names}
    columns["_hoodie_record_key"] = columns["id"] = pa.array(keys, pa.string())
    return pa.table(columns, schema=SCHEMA)


def write(path: Path, *batches: pa.Table, bloom: BloomParams = SMALL, size: int = 1 << 20) -> BaseFileResult:
    with (
        path.open("wb") as out,
        BaseFileWriter(out, str(path), SCHEMA, AVRO, bloom=bloom, row_group_bytes=size) as writer,
    ):
        for batch in batches:
            writer.append(batch)
        return writer.close()


class Full(io.BytesIO):
    """A disk with room for so many bytes."""

    room = 0

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(data)


def test_a_full_disk_is_what_is_told_wherever_it_is_full(tmp_path: Path) -> None:
    whole, failed = write(tmp_path / "f", rows("a"), rows("b"), size=1).bytes, 0
    for room in range(0, whole, max(1, whole // 200)):
        out = Full()
        out.room = room
        try:
            with BaseFileWriter(out, "f", SCHEMA, AVRO, bloom=SMALL, row_group_bytes=1) as writer:
                writer.append(rows("a"))
                writer.append(rows("b"))
                writer.close()
        except OSError as error:
            assert error.errno == errno.ENOSPC, room
            failed += 1
    assert failed > 150


def test_rows_and_footer(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    result = write(path, rows("m", "é"), rows("b"), rows())
    assert (result.rows, result.bytes, result.min_key, result.max_key) == (3, path.stat().st_size, "b", "é")
    footer = read_footer(*stored(path))
    assert (footer.rows, footer.min_key, footer.max_key, footer.avro_schema) == (3, "b", "é", AVRO)
    assert footer.bloom is not None and footer.bloom.might_contain(pa.array(["m", "é", "b"])).all()
    assert read_keys(*stored(path)).to_pylist() == ["m", "é", "b"]
    assert pq.read_table(path).cast(SCHEMA).equals(pa.concat_tables([rows("m", "é"), rows("b")]))


def test_footer_entries_are_hudis(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    write(path, rows("b", "a"))
    builder = BloomBuilder(SMALL)
    builder.add(pa.array(["b", "a"]))
    assert pq.read_metadata(path).metadata == {
        b"org.apache.hudi.bloomfilter": builder.to_base64().encode(),
        b"hoodie_bloom_filter_type_code": b"DYNAMIC_V0",
        b"hoodie_min_record_key": b"a",
        b"hoodie_max_record_key": b"b",
        b"parquet.avro.schema": AVRO.encode(),
        b"writer.model.name": b"avro",
        b"tagstream.bloom.keys": b'{"added": 2, "gone": 0}',
    }


def test_a_simple_filter_has_no_type_code(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    write(path, rows("a"), bloom=BloomParams(SIMPLE, 10, 0.01))
    assert b"hoodie_bloom_filter_type_code" not in pq.read_metadata(path).metadata
    bloom = read_footer(*stored(path)).bloom
    assert bloom is not None and bloom.kind == SIMPLE and bloom.might_contain(pa.array(["a"])).all()


def test_a_file_without_rows_has_no_key_range(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    result = write(path)
    assert (result.rows, result.bytes, result.min_key, result.max_key) == (0, path.stat().st_size, None, None)
    footer = read_footer(*stored(path))
    assert (footer.rows, footer.min_key, footer.max_key) == (0, None, None)
    assert b"hoodie_min_record_key" not in pq.read_metadata(path).metadata
    assert read_keys(*stored(path)).to_pylist() == []


def test_physical_form(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    write(path, rows("a"))
    metadata = pq.read_metadata(path)
    assert metadata.format_version == "1.0"
    assert metadata.row_group(0).column(0).compression == "GZIP"
    columns = {metadata.schema.column(i).path: metadata.schema.column(i) for i in range(len(metadata.schema))}
    assert columns["price"].physical_type == "FIXED_LEN_BYTE_ARRAY" and columns["price"].length == 6
    assert columns["day"].physical_type == "INT32"
    assert json.loads(columns["ts"].logical_type.to_json())["isAdjustedToUTC"] is True
    assert json.loads(columns["local"].logical_type.to_json())["isAdjustedToUTC"] is False
    assert "tags.list.element" in columns and "attrs.key_value.value" in columns


def test_row_groups_do_not_depend_on_the_batches(tmp_path: Path) -> None:
    one = rows(*[f"k{i:05d}" for i in range(4000)])
    size = one.nbytes // 4 + 1
    write(tmp_path / "one.parquet", one, size=size)
    write(tmp_path / "many.parquet", *[one.slice(i, 100) for i in range(0, 4000, 100)], size=size)
    for name in ("one.parquet", "many.parquet"):
        metadata = pq.read_metadata(tmp_path / name)
        assert 4 <= metadata.num_row_groups <= 5 and metadata.num_rows == 4000
    assert pq.read_table(tmp_path / "one.parquet").equals(pq.read_table(tmp_path / "many.parquet"))


def test_written_bytes_grow_with_the_row_groups() -> None:
    with BaseFileWriter(io.BytesIO(), "f.parquet", SCHEMA, AVRO, bloom=SMALL, row_group_bytes=1) as writer:
        before = writer.written_bytes
        writer.append(rows("a").to_batches()[0])
        assert writer.written_bytes > before
        writer.close()


@pytest.mark.parametrize("key", [None, ""])
def test_rows_without_a_key_are_refused(tmp_path: Path, key: str | None) -> None:
    with pytest.raises(InvalidKeyError, match=r"f\.parquet"):
        write(tmp_path / "f.parquet", rows("a", key))


def test_unknown_codecs_are_refused_before_anything_is_written() -> None:
    out = io.BytesIO()
    with pytest.raises(ConfigError, match="'lzo'"):
        BaseFileWriter(out, "f.parquet", SCHEMA, AVRO, codec="lzo")
    assert not out.getvalue()


@pytest.mark.parametrize("codec", ["GZIP", "snappy", "zstd", "uncompressed"])
def test_codecs(tmp_path: Path, codec: str) -> None:
    path = tmp_path / "f.parquet"
    with path.open("wb") as out, BaseFileWriter(out, str(path), SCHEMA, AVRO, codec=codec, bloom=SMALL) as writer:
        writer.append(rows("a"))
        writer.close()
    assert pq.read_metadata(path).row_group(0).column(0).compression == codec.upper()
    assert read_keys(*stored(path)).to_pylist() == ["a"]


def test_files_cut_short_are_named(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    write(path, rows("a"))
    path.write_bytes(path.read_bytes()[:-20])
    for read in (read_footer, read_keys):
        with pytest.raises(CorruptFileError, match=r"f\.parquet"):
            read(*stored(path))


def test_files_that_are_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        read_footer(*stored(tmp_path / "f.parquet"))
    assert caught.value.filename == str(tmp_path / "f.parquet")


def test_foreign_parquet_has_no_keys(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(CorruptFileError, match="not written by Hudi"):
        read_keys(*stored(path))
    footer = read_footer(*stored(path))
    assert footer.bloom is None and footer.min_key is None
