"""Rows in HFile blocks (hoodie.logfile.data.block.format=hfile): refused by name, not left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.file_group.log_format import BlockType, HeaderKey, encode_block
from tagstream.table.meta_client.table_config import MERGE_ON_READ
from tagstream.table.read.snapshot import read_snapshot
from tests.table.writer import Writer, row


def with_hfile_block(folder: Path, instant: str | None = None) -> Writer:
    """A table whose newest log file ends with such a block, of the newest write or of ``instant``."""
    writer = Writer.create(folder, MERGE_ON_READ)
    writer.write([row(1, "p0", 1)])
    newest = writer.write([row(1, "p0", 2)])
    log = next(s for s in writer.table.view().latest_merged_slices("p0") if s.log_files).log_paths[-1]
    header = {HeaderKey.INSTANT_TIME: instant or newest, HeaderKey.SCHEMA: "{}"}
    with (folder / "t" / log).open("ab") as out:
        out.write(encode_block(BlockType.HFILE_DATA, header, b"an HFile"))
    return writer


def test_they_are_refused(tmp_path: Path) -> None:
    writer = with_hfile_block(tmp_path)
    with pytest.raises(UnsupportedTableError, match=r"HFile block.*compact the table with Hudi"):
        read_snapshot(writer.table)


def test_one_that_was_never_completed_does_not_count(tmp_path: Path) -> None:
    writer = with_hfile_block(tmp_path, "20991231235959999")
    assert [r["ver"] for r in read_snapshot(writer.table).to_pylist()] == [2]
