"""A compaction of another writer: planned while a batch is written, or planned before it and completed meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.foreign_compaction import plan_compaction
from tests.support.foreign_writer import HeldCommit
from tests.support.hudi_rs import read_table
from tests.support.table_version import metadata, using

pytestmark = pytest.mark.spark


def rows_differ(case: StreamCase, events: list[ev.Event]) -> list[str]:
    return compare(ev.rows(ev.oracle(events).values()), read_table(case.table, meta_columns=False), ["id"])


@pytest.mark.extended("more steps of the batch", first=("files_written",))
@pytest.mark.parametrize("step", ["inflight", "files_written", "manifest_durable"])
def test_the_batch_goes_onto_the_slice_that_begins_with_the_plan(
    tmp_path: Path, spark: SparkSession, step: str
) -> None:
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ")
    first = [ev.Event(f"k{i}", "p0", 1, name="first") for i in range(4)]
    ours = [ev.Event("k0", "p0", 100, name="ours"), ev.Event("k1", "p0", 2, deleted=True)]
    ev.write_files(first, case.source, 4)
    case.run()
    ev.write_files(ours, case.source, 2, first=1)
    planned: list[HeldCommit] = []

    def plan(point: str, batch: int) -> None:
        if (point, batch) == (step, 1) and not planned:
            planned.append(plan_compaction(str(case.table), "p0"))

    case.run(at=plan)
    assert planned
    # hudi-rs does not see the logs between a plan and its commit; this project's own reader does.
    live = {row["id"]: row["name"] for row in read_snapshot(HoodieTable.open(str(case.table))).to_pylist()}
    assert live == {"k0": "ours", "k2": "first", "k3": "first"}
    planned[0].complete()
    assert not rows_differ(case, [*first, *ours])
    table = HoodieTable.open(str(case.table))
    (found,) = table.view(table.timeline(), table.timeline().newest_completed).latest_merged_slices("p0")
    assert found.base_instant == planned[0].instant
    assert found.base_file is not None
    assert found.log_files
    assert validate(table) == []
    more = [ev.Event("k2", "p1", 200, name="moved")]
    ev.write_files(more, case.source, 1, first=3)
    (report,) = case.run()
    assert report.moves == 1
    assert not rows_differ(case, [*first, *ours, *more])


@pytest.mark.extended("the other version of tables", first=("6",))
@pytest.mark.parametrize("version", [6, 9])
def test_a_plan_from_before_the_batch_is_no_conflict(tmp_path: Path, spark: SparkSession, version: int) -> None:
    """The batch writes into the slice that begins with the plan, so it is committed at the first try."""
    with using(version), metadata(False):
        case = StreamCase(tmp_path, spark, "MERGE_ON_READ", {"hoodie.compact.inline": "false"})
        first = [ev.Event(f"k{i}", "p0", 1, name="first") for i in range(4)]
        ours = [ev.Event("k0", "p0", 100, name="ours"), ev.Event("k1", "p0", 2, deleted=True)]
        ev.write_files(first, case.source, 4)
        case.run()
        ev.write_files(ours, case.source, 2, first=1)
        planned = plan_compaction(str(case.table), "p0")
        tries: list[int] = []

        def complete(point: str, batch: int) -> None:
            if point == "files_written":
                tries.append(batch)
                if len(tries) == 1:
                    planned.complete()

        case.run(at=complete)
    assert tries == [1]
    assert not rows_differ(case, [*first, *ours])
    assert validate(HoodieTable.open(str(case.table))) == []
    more = [ev.Event("k2", "p1", 200, name="moved")]
    ev.write_files(more, case.source, 1, first=3)
    (report,) = case.run()
    assert report.moves == 1
    assert not rows_differ(case, [*first, *ours, *more])
