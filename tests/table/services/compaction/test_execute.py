"""A plan carried out: the same rows from base files alone, and the table is written on beside it and after it."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tagstream.table.file_group.base_file import read_footer
from tagstream.table.schema.schema import FILE_NAME
from tagstream.table.services.compaction.execute import compact
from tagstream.table.services.compaction.plan import schedule_compaction
from tests.table.services.compaction.compacting import (
    ALL,
    clock,
    fill,
    groups,
    made,
    plan_and_compact,
    plans,
    rows,
    slices_with_logs,
    sound,
)
from tests.table.writer import row


@pytest.mark.table_versions(6, 8, 9)
@pytest.mark.parametrize("metadata", [False, True])
def test_rows_and_their_meta_columns_stay(version: int, metadata: bool, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, metadata))
    before, places = rows(writer.table), groups(writer.table)
    wanted = slices_with_logs(writer.table)
    result = plan_and_compact(writer)
    assert sorted((s.stat.partition_path, s.stat.file_id) for s in result.statuses) == wanted
    assert rows(writer.table) == before
    assert groups(writer.table) == places
    assert slices_with_logs(writer.table) == []
    assert plans(writer.table) == []
    sound(writer)
    storage = writer.table.storage
    for status in result.statuses:
        found = pq.read_table(storage.where(status.stat.path), partitioning=None)
        assert set(found[FILE_NAME].to_pylist()) <= {status.stat.file_name}
        assert found.num_rows == status.stat.num_writes
        footer = read_footer(storage, status.stat.path)
        assert footer.bloom is not None
        assert footer.rows == found.num_rows
    assert list(storage.walk_files(f".hoodie/.temp/{result.instant}")) == []
    metadata_of = writer.table.timeline().metadata(storage, result.completed)
    assert (metadata_of.operation, metadata_of.compacted) == ("COMPACT", True)
    writer.write([row(key, f"p{key % 2}", 9) for key in range(0, 40, 5)], ["k3"])
    sound(writer)
    plan_and_compact(writer)
    sound(writer)


@pytest.mark.table_versions(6, 8, 9)
@pytest.mark.parametrize("metadata", [False, True])
def test_writes_go_on_beside_a_plan(version: int, metadata: bool, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, metadata))
    tick = clock(writer)
    instant = schedule_compaction(writer.table, ALL, tick, force=True)
    assert instant is not None
    sound(writer)
    writer.write([row(key, f"p{key % 2}", 7, "beside") for key in range(0, 30, 4)], ["k5"])
    sound(writer)
    later = {r["id"]: r for r in rows(writer.table)}
    compact(writer.table, instant, tick)
    assert {r["id"]: r for r in rows(writer.table)} == later
    sound(writer)
    assert slices_with_logs(writer.table) != []  # what was written beside it
    writer.write([row(key, f"p{key % 2}", 8, "after") for key in range(0, 30, 6)], ["k9"])
    sound(writer)
    plan_and_compact(writer)
    sound(writer)
    assert slices_with_logs(writer.table) == []
