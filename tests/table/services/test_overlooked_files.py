"""Files whose column ranges a service of another writer may have removed from those of their partition."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.meta_client.table_config import MERGE_ON_READ
from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.metadata_changes import older_ranges, overlooked_files
from tagstream.table.services.options import CompactionOptions
from tests.table.services.compaction_compacting import clock
from tests.table.writer import Writer, row


@pytest.mark.table_versions(6, 9)
def test_those_that_were_committed_between_its_plan_and_its_end(version: int, tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, MERGE_ON_READ)
    writer.write([row(0, "p0", 1), row(1, "p1", 1)])
    writer.write([row(0, "p0", 2)])
    instant = schedule_compaction(writer.table, CompactionOptions(), clock(writer), force=True)
    assert instant is not None
    between = writer.write([row(0, "p0", 7), row(2, "p2", 8)])
    compact(writer.table, instant, clock(writer))
    writer.write([row(0, "p0", 9)])
    table = writer.table.reload()
    timeline = table.timeline()
    done, write = timeline.find(instant), timeline.find(between)
    assert done is not None
    assert write is not None
    (stat,) = timeline.metadata(table.storage, write).stats["p0"]
    found = overlooked_files(table, timeline, {done: timeline.metadata(table.storage, done)})
    assert found == ({} if version == 6 else {"p0": (stat.file_name,)})
    if found:
        (ranges,) = older_ranges(table, {"p0": [*found["p0"], "cleaned.parquet"]}, ["ver"], writer.schema)["p0"]
        assert (ranges["ver"].low, ranges["ver"].high) == (7, 7)
