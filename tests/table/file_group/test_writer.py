"""Log files written and read again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tagstream.table.file_group.delete_block import delete_blocks
from tagstream.table.file_group.log_file import data_block, scan_log_file
from tagstream.table.file_group.log_format import BlockType, HeaderKey, encode_block, rollback_block, write_log_file
from tagstream.table.schema import schema
from tests.support import paths
from tests.support.stored import stored

VECTORS: dict[str, Any] = json.loads((paths.VECTORS / "log-blocks.json").read_text())["files"]
USER = pa.schema([("id", pa.string()), ("v", pa.int64())])
AVRO = schema.avro_json(schema.with_meta_avro(schema.arrow_to_avro(USER, "t")))


def rows(*keys: str) -> pa.Table:
    text = pa.array(keys, pa.string())
    columns = [pa.array(["20250101000000002"] * len(keys))] * 2 + [text] * 4
    return pa.Table.from_arrays([*columns, pa.array(range(len(keys)))], schema=schema.with_meta(USER))


def test_rollback_block_is_that_of_hudi() -> None:
    header = VECTORS["command"]["header"]
    made = rollback_block(header["INSTANT_TIME"], header["TARGET_INSTANT_TIME"])
    assert made == bytes.fromhex(VECTORS["command"]["hex"])


@pytest.mark.parametrize("name", ["avro", "delete", "parquet"])
def test_framing_of_given_content_is_that_of_hudi(name: str) -> None:
    expected = VECTORS[name]
    data = bytes.fromhex(expected["hex"])
    content = data[expected["content_offset"] :][: expected["content_length"]]
    kind = {"avro": BlockType.AVRO_DATA, "delete": BlockType.DELETE, "parquet": BlockType.PARQUET_DATA}[name]
    header = {HeaderKey[key]: value for key, value in expected["header"].items()}
    assert encode_block(kind, header, content) == data


def test_a_file_of_blocks(tmp_path: Path) -> None:
    path = str(tmp_path / ".f-0_1.log.1_0-0-0")
    blocks = [
        data_block(rows("a", "b"), AVRO, "20250101000000002"),
        *delete_blocks(pa.array(["c"]), "p", pa.array([5]), "20250101000000002", AVRO),
        rollback_block("20250101000000003", "20250101000000002"),
    ]
    assert write_log_file(*stored(path), iter(blocks)) == Path(path).stat().st_size
    data, deletes, command = scan_log_file(*stored(path))
    assert data.type is BlockType.PARQUET_DATA and data.avro_schema == AVRO and data.instant == "20250101000000002"
    assert data.read_table().equals(rows("a", "b"))
    assert data.content()[:4] == data.content()[-4:] == b"PAR1"
    assert deletes.deletes().keys.to_pylist() == ["c"]
    assert command.target_instant == "20250101000000002"


def test_data_blocks_have_the_form_of_base_files() -> None:
    block = data_block(rows("a"), AVRO, "1", codec="snappy")
    metadata = pq.ParquetFile(pa.BufferReader(block[block.index(b"PAR1") : -12])).metadata
    assert metadata.format_version == "1.0" and metadata.row_group(0).column(0).compression == "SNAPPY"
    assert metadata.metadata == {b"writer.model.name": b"avro", b"parquet.avro.schema": AVRO.encode()}
