"""Change files, compared with those of Hudi's own logger."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.change_file import (
    LoggingMode,
    change_block,
    change_file_name,
    changes_of,
    read_change_file,
)
from tagstream.table.file_group.log_file import LogBlock, scan_log_file
from tagstream.table.file_group.log_format import I32, I64, BlockType, rollback_block
from tagstream.table.file_group.names import parse_log_file_name
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.storage.posix import PosixStorage
from tests.support.paths import FIXTURES

VECTORS = json.loads((FIXTURES / "change_files" / "blocks.json").read_text())
AVRO = json.dumps(VECTORS["schema"])


def changes() -> pa.Table:
    parts = []
    for op, key, before, after in VECTORS["changes"]:
        images = [None if r is None else pa.Table.from_pylist([r], schema=avro_to_arrow(AVRO)) for r in (before, after)]
        parts.append(changes_of(op, pa.array([key]), *images, AVRO))
    return pa.concat_tables(parts)


def block_of(storage: PosixStorage, name: str) -> LogBlock:
    (block,) = scan_log_file(storage, name)
    return block


def records(content: bytes) -> tuple[tuple[int, int], list[bytes]]:
    """(content version, number of records), the records' bytes."""
    version, count = struct.unpack_from(">ii", content)
    at, found = 2 * I32.size, []
    while at < len(content):
        (size,) = I32.unpack_from(content, at)
        found.append(content[at + I32.size : at + I32.size + size])
        at += I32.size + size
    return (version, count), found


@pytest.mark.parametrize("mode", LoggingMode)
def test_a_block_is_that_of_hudi(mode: LoggingMode, tmp_path: Path) -> None:
    theirs = bytes.fromhex(VECTORS["files"][mode])
    ours = change_block(mode, changes(), AVRO, VECTORS["instant"])
    assert len(ours) == len(theirs)
    storage = PosixStorage(str(tmp_path))
    (tmp_path / "theirs").write_bytes(theirs)
    (tmp_path / "ours").write_bytes(ours)
    one, other = block_of(storage, "theirs"), block_of(storage, "ours")
    assert one.type is other.type is BlockType.CDC_DATA
    assert one.header == other.header  # the schema is the same text
    # The order of records is that of a hash map in Hudi.
    (head, mine), (wanted_head, wanted) = records(other.content()), records(one.content())
    assert (head, sorted(mine)) == (wanted_head, sorted(wanted))
    if mode is not LoggingMode.OP_KEY_ONLY:  # there Hudi's header has another order, also that of a hash map
        assert ours[: 6 + I64.size + 8] == theirs[: 6 + I64.size + 8]
    assert ours[-I64.size - I32.size :] == theirs[-I64.size - I32.size :]


@pytest.mark.parametrize("mode", LoggingMode)
def test_what_is_written_is_read(mode: LoggingMode, tmp_path: Path) -> None:
    block = change_block(mode, changes(), AVRO, VECTORS["instant"])
    (tmp_path / "f").write_bytes(block + block)
    found = read_change_file(PosixStorage(str(tmp_path)), "f")
    wanted: list[dict[str, Any]] = [
        {"op": op, "record_key": key, "ts_ms": VECTORS["instant"], "before": before, "after": after}
        for op, key, before, after in VECTORS["changes"]
    ]
    assert found.to_pylist() == [{name: row[name] for name in found.column_names} for row in [*wanted, *wanted]]


def test_the_name_of_a_change_file() -> None:
    name = change_file_name("fg-0", "20260101000009000", "0-1-1")
    assert name == ".fg-0_20260101000009000.log.1_0-1-1.cdc"
    parsed = parse_log_file_name(name)
    assert parsed is not None and parsed.is_cdc and parsed.base_instant == "20260101000009000"


@pytest.mark.parametrize("data", [b"", rollback_block("20260101000009000", "20260101000008000")])
def test_a_file_without_changes_is_damaged(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(data)
    with pytest.raises(CorruptFileError, match="change file"):
        read_change_file(PosixStorage(str(tmp_path)), "f")
