"""Log blocks of a write that was never completed, older than writes that were: a writer with lazy clean-up leaves such."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.meta_client.table_config import MERGE_ON_READ
from tagstream.table.read.snapshot import read_snapshot
from tests.support.hudi_rs import read_table
from tests.table.writer import CrashError, Writer, row


@pytest.mark.table_versions(6, 8, 9)
def test_they_do_not_count(version: int, tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, MERGE_ON_READ).with_options(inserts_to_base_files=True)
    writer.write([row(1, "p0", 1)])
    writer.write([row(1, "p0", 2)])
    with pytest.raises(CrashError):
        writer.write([row(1, "p0", 3)], crash="publish")
    writer.write([row(2, "p0", 1)])
    for rows in (read_snapshot(writer.table), read_table(writer.table.base_path, meta_columns=False)):
        assert {r["id"]: r["ver"] for r in rows.to_pylist()} == {"k1": 2, "k2": 1}
