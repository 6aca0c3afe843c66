"""Every base file and log block of tables that real Hudi (Spark and Flink) wrote."""

from __future__ import annotations

import base64
import json
import struct
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tagstream.table.file_group import log_file as avro_block
from tagstream.table.file_group.base_file import AVRO_SCHEMA_KEY, BLOOM_KEY, BaseFileWriter, read_footer, read_keys
from tagstream.table.file_group.bloom import SIMPLE, BloomBuilder, BloomParams
from tagstream.table.file_group.delete_block import delete_blocks
from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.file_group.names import parse_base_file_name, parse_log_file_name
from tagstream.table.file_group.parquet_options import float_columns, float_entries
from tagstream.table.schema import schema
from tagstream.table.schema.conform import conform
from tests.support import paths
from tests.support.stored import stored

TABLES = sorted(paths.TABLES.glob("*.tar.gz"))
ROW_BLOCKS = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA)
# Of tables that do not tell it themselves.
BLOCKS = {
    "flink_mor": {"AVRO_DATA": 30, "DELETE": 17},
    "flink_mor_moves": {"AVRO_DATA": 31, "DELETE": 14},
    "mor_v9_partitioned_record_index": {"AVRO_DATA": 2, "DELETE": 3},
}


@pytest.fixture(params=TABLES, ids=lambda path: path.name.removesuffix(".tar.gz"))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with tarfile.open(request.param) as archive:
        archive.extractall(tmp_path, filter="data")
    (found,) = tmp_path.iterdir()
    return found


def test_the_tables_are_here() -> None:
    assert len(TABLES) == 23


def data_files(folder: Path) -> Iterator[Path]:
    root = folder / "table"
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.suffix != ".crc" and path.relative_to(root).parts[0] != ".hoodie":
            yield path


def params_of(text: bytes, kind: str) -> BloomParams:
    """Parameters of a footer's filter; the tables with SIMPLE ones were written for 1000 entries."""
    if kind == SIMPLE:
        return BloomParams(SIMPLE, 1000)
    (entries,) = struct.unpack_from(">i", base64.b64decode(text), 13)
    return BloomParams(kind, entries, dynamic_max_entries=2 * entries)


@pytest.mark.extended(
    "more tables that real Hudi wrote",
    first=("cow_v6_global_bloom_moves", "mor_v6_compaction_pending", "cow_v9_record_index", "mor_v9_services"),
)
def test_footers_are_rebuilt_from_the_keys(folder: Path, tmp_path: Path) -> None:
    found = 0
    for path in data_files(folder):
        if parse_base_file_name(path.name) is None:
            continue
        found += 1
        entries = pq.read_metadata(path).metadata
        footer, keys = read_footer(*stored(path)), read_keys(*stored(path)).combine_chunks()
        assert footer.bloom is not None and footer.bloom.might_contain(keys).all()
        params = params_of(entries[BLOOM_KEY], footer.bloom.kind)
        builder = BloomBuilder(params)
        builder.add(keys)
        assert builder.to_base64().encode() == entries[BLOOM_KEY]
        texts = keys.to_pylist()
        assert (footer.rows, footer.min_key, footer.max_key) == (len(texts), min(texts), max(texts))
        if AVRO_SCHEMA_KEY in entries:
            rewrite(path, tmp_path / path.name, params)
    assert found or folder.name == "mor_v6_bucket"


def rewrite(path: Path, target: Path, params: BloomParams) -> None:
    """The same rows through our writer: the same footer but for what names the writer, and the same rows back."""
    entries = pq.read_metadata(path).metadata
    avro = entries[AVRO_SCHEMA_KEY].decode()
    arrow = schema.avro_to_arrow(avro, keep_meta=True)
    rows = conform(pq.read_table(path, partitioning=None), arrow, str(path))
    with target.open("wb") as out, BaseFileWriter(out, str(target), arrow, avro, bloom=params) as writer:
        writer.append(rows)
        writer.close()
    nulls = {name: rows.column(name).null_count for name in float_columns(arrow)}
    own = float_entries(arrow, nulls)  # what the name of Hudi's writer says of its files
    own[b"tagstream.bloom.keys"] = json.dumps({"added": rows.num_rows, "gone": 0}).encode()
    assert pq.read_metadata(target).metadata == {**entries, **own}
    assert conform(pq.read_table(target, partitioning=None), arrow, str(target)).equals(rows)


def test_schema_texts_are_rebuilt(folder: Path) -> None:
    """Tables of the Spark writer: the Avro text of the footer comes out of the Arrow schema again."""
    for path in data_files(folder):
        if parse_base_file_name(path.name) is None:
            continue
        text = read_footer(*stored(path)).avro_schema
        if text is not None:
            name = json.loads(text)["namespace"].removeprefix("hoodie.")  # the table's: some were packed under another
            record = schema.arrow_to_avro(schema.avro_to_arrow(text), name)
            assert schema.avro_json(schema.with_meta_avro(record)) == text


def test_every_log_block_is_read(folder: Path) -> None:
    found: Counter[str] = Counter()
    for path in data_files(folder):
        if parse_log_file_name(path.name) is None:
            continue
        for block in scan_log_file(*stored(path)):
            found[block.type.name] += 1
            if block.type is BlockType.DELETE:
                deletes = block.deletes()
                assert len(deletes) and deletes.keys.null_count == 0
                (partition,) = set(deletes.partition_paths.to_pylist())
                assert block.instant is not None and block.avro_schema is not None
                (again,) = delete_blocks(deletes.keys, partition, deletes.orderings, block.instant, block.avro_schema)
                assert block.content() in again
            elif block.type in ROW_BLOCKS:
                rows = block.read_table()
                assert rows.num_rows and rows.column(schema.RECORD_KEY).null_count == 0
                if block.type is BlockType.AVRO_DATA:
                    assert avro_block.encode(rows, block.avro_schema or "") == block.content()
                only = schema.with_meta(rows.schema).field(schema.RECORD_KEY)
                assert block.read_table(pa.schema([only])).column(0).equals(rows.column(schema.RECORD_KEY))
            else:
                assert block.type is BlockType.COMMAND and block.target_instant
    # the Flink tables' descriptions do not count their blocks, nor do those of tables that Hudi's services worked on
    counted = json.loads((folder / "expected.json").read_text()).get("log_blocks", BLOCKS.get(folder.name))
    assert dict(found) == counted or (counted is None and (not found or "services" in folder.name))
