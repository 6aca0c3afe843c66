"""Which commits of ours another writer's commit did not see."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.recovery.foreign_commits import find_swallowed, is_planned_service
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.options import CompactionOptions
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.table_version import using, write_properties
from tests.table.services.test_claim import made_by_another
from tests.table.writer import Writer, row

pytestmark = pytest.mark.spark


@pytest.mark.extended("more kinds of tables", first=("9",))
@pytest.mark.parametrize("version", [6, 9])
def test_a_compaction_took_nothing_of_what_was_written_over_its_slices(
    tmp_path: Path, spark: SparkSession, version: int
) -> None:
    """Inserts find room in compacted file groups: their base files lie over the compaction's."""
    conf = {
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": "2",
        "tagstream.inserts.to.base.files": "true",
    }
    with using(version):
        case = StreamCase(tmp_path, spark, "MERGE_ON_READ", conf | write_properties())
        for batch, (name, times) in enumerate([("old", 1), ("old", 2), ("new", 1)]):
            rows = [ev.Event(f"{name}-{n}", f"p{n % 2}", times, name=name, amount=0.5) for n in range(20)]
            ev.write_files(rows, case.source, 20, first=batch)
            case.run()
    table = HoodieTable.open(str(case.table))
    timeline = table.timeline()
    writes = timeline.completed_writes
    services = [i.time for i in writes if i.action == "commit"]
    files = {i.time: timeline.metadata(table.storage, i).all_stats() for i in writes}
    compacted = {s.file_id for time in services for s in files[time]}
    over = [
        s.file_id
        for time, stats in files.items()
        if time > services[0] and time not in services
        for s in stats
        if s.log_version is None and s.file_id in compacted
    ]
    assert over
    assert find_swallowed(table, timeline, tuple(services), str(case.source)) == ()


def test_a_compaction_by_a_plan_of_this_project_is_known_for_one(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, "MERGE_ON_READ")
    for number in range(3):
        writer.write([row(1, "p", number)])
    clock = lambda: writer.now_ms  # noqa: E731
    instants = []
    for by_another in (False, True):
        instant = schedule_compaction(writer.table, CompactionOptions(), clock, force=True)
        assert instant is not None
        if by_another:
            made_by_another(writer, instant)
        compact(writer.table, instant, clock)
        instants.append(instant)
        writer.write([row(1, "p", 9)])
    timeline = writer.table.timeline()
    assert [is_planned_service(writer.table, timeline, time) for time in instants] == [True, False]
    assert not any(
        is_planned_service(writer.table, timeline, i.time) for i in timeline.completed_writes if i.time not in instants
    )
