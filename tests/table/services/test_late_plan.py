"""A plan that appears late: a driver that was paused before it wrote it, while another run planned the same groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tests.support.hudi_rs import read_table
from tests.table.services.compaction_compacting import ALL, clock, fill, made, plan_and_compact, sound
from tests.table.writer import row


@pytest.mark.table_versions(6, 8, 9)
def test_a_plan_of_a_paused_driver_hides_no_rows(version: int, tmp_path: Path) -> None:
    """It appears when the driver wakes up; the same groups were planned and compacted by another one meanwhile."""
    writer = fill(made(tmp_path))
    late = schedule_compaction(writer.table, ALL, clock(writer), force=True)
    assert late is not None
    rel = writer.timeline_rel(f"{late}.compaction.requested")
    plan = writer.table.storage.read(rel)
    writer.table.storage.delete(rel)
    plan_and_compact(writer)
    writer.table.storage.write_new(rel, plan)
    sound(writer)
    writer.write([row(key, f"p{key % 2}", 9) for key in range(0, 24, 5)])
    sound(writer)
    assert read_table(writer.table.base_path).num_rows == len(writer.live)
    compact(writer.table, late, clock(writer))
    sound(writer)
    writer.write([row(key, f"p{key % 2}", 10) for key in range(0, 24, 7)])
    plan_and_compact(writer)
    sound(writer)
    assert read_table(writer.table.base_path).num_rows == len(writer.live)
