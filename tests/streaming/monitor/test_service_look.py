"""When services are due, by the timeline of a real table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.streaming.monitor.table_probe import services_due
from tagstream.streaming.options.service_options import CompactionMode, ServiceOptions
from tagstream.table.services.clustering_options import ClusteringOptions
from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.options import CompactionOptions, Trigger
from tests.streaming.monitor.case import Clock
from tests.table.writer import Writer, row


def due(writer: Writer, options: ServiceOptions) -> tuple[dict[str, str], dict[str, int]]:
    return services_due(writer.table, writer.table.timeline(), options, Clock()(), continuous=False)


def test_a_table_without_logs(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, "COPY_ON_WRITE", groups=1)
    writer.write([row(1, "p0", 1)])
    found, last = due(writer, ServiceOptions(clustering=ClusteringOptions(max_commits=4), archive=None))
    assert found == {
        "compaction": "no logs to compact",
        "clustering": "in 3 commits",
        "cleaning": "after each commit",
        "archiving": "off",
    }
    assert last == {}


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        (Trigger.NUM_COMMITS, "in 3 delta commits"),
        (Trigger.TIME_ELAPSED, "after the next commit"),
        (Trigger.NUM_OR_TIME, "in 3 delta commits or after the next commit"),
    ],
)
def test_deltas_are_counted_since_the_last_compaction(tmp_path: Path, trigger: Trigger, text: str) -> None:
    writer = Writer.create(tmp_path, "MERGE_ON_READ", groups=1)
    for number in range(3):
        writer.write([row(1, "p0", number)])
    options = ServiceOptions(CompactionMode.INLINE, CompactionOptions(trigger=trigger, max_delta_commits=6))
    found, last = due(writer, options)
    assert found["compaction"] == text
    assert "; it has 3" in found["archiving"]
    assert "compaction" not in last
    clock = Clock()
    planned = schedule_compaction(writer.table, CompactionOptions(), clock, force=True)
    assert planned is not None
    assert due(writer, options)[0]["compaction"] == f"plan {planned} is pending"
    compact(writer.table, planned, clock)
    found, last = due(writer, options)
    assert "in 6 delta commits" in found["compaction"] or trigger is Trigger.TIME_ELAPSED
    assert abs(last["compaction"] - clock.now_ms) < 60_000
