"""A table on a store, where slices and pieces are read ahead and packed, leads to the index of the local disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.bootstrap import spill
from tagstream.bootstrap.plan import plan_bootstrap
from tagstream.table.errors import CorruptFileError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import MERGE_ON_READ
from tagstream.table.storage.opening import open_storage
from tests.bootstrap.index_content import content, load, make_layout
from tests.table.writer import Writer, row


def test_the_index_is_that_of_the_local_disk(hdfs_folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "CHUNK_ROWS", 50)  # so that there are many pieces
    writer = Writer.create(tmp_path, MERGE_ON_READ, groups=4)
    writer.write([row(i, f"p{i % 4}", 1) for i in range(600)])
    writer.write([row(i, f"p{(i + 1) % 4}", 2) for i in range(200)])
    writer.write(deletes=[f"k{i}" for i in range(400, 450)], orderings={"k400": 3})
    local = writer.table.reload()
    here = make_layout(tmp_path / "here", local)
    expected = load(local, here)
    there = open_storage(hdfs_folder)
    for rel in local.storage.walk_files(""):
        there.put(f"table/{rel}", local.storage.where(rel))
    table = HoodieTable.open(f"{hdfs_folder}/table")
    layout = replace(make_layout(tmp_path / "there", table), durable=there.below("index"))
    found = load(table, layout)
    assert replace(found, seconds=0.0, table="") == replace(expected, seconds=0.0, table="")
    assert content(layout) == content(here)

    plan = plan_bootstrap(table)
    lost = plan.slices[1].file_slice
    rel = lost.base_path or lost.log_paths[0]
    table.storage.delete(rel)
    with pytest.raises(CorruptFileError, match=rel):
        load(table, replace(layout, durable=there.below("another")), plan=plan)
