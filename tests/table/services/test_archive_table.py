"""Archiving of whole tables: rows and past, the metadata table, and every place where it can be cut off."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.metadata.compaction import compact
from tagstream.table.services.archiving import archive_metadata, archive_table
from tagstream.table.services.cleaning import clean
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.options import ArchiveOptions, CleanOptions, CleanPolicy, CompactionOptions, Strategy
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.storage.storage import Storage
from tests.support.hudi_rs import read_table
from tests.support.table_version import table_version
from tests.table.history.archives import archived_times
from tests.table.history.crashes import cut_off_at_each_change
from tests.table.metadata.case import Case
from tests.table.services.compacting import plan_compaction
from tests.table.services.compaction_compacting import clock as compaction_clock
from tests.table.services.tables import clock, live, rounds, rows
from tests.table.writer import Writer, row

pytestmark = pytest.mark.table_versions(6, 8, 9)
FEW = ArchiveOptions(3, 5, compaction_deltas=2)
ONE = CleanOptions(commits=1)


def history(table: HoodieTable) -> list[str]:
    """The times of all completed writes, archived or active, each once."""
    timeline = table.timeline()
    return sorted({*archived_times(table), *(i.time for i in timeline.completed_writes)})


# Without a metadata table: one that is not compacted holds commits back.
def test_old_commits_leave_the_timeline(tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, COPY_ON_WRITE)
    times = rounds(writer, 5)
    assert archive_table(writer.table, FEW, ONE, clock()) is None
    times += rounds(writer, 4)
    writer.table.storage.write_new(f".hoodie/.temp/{times[0]}/p0/x.marker.CREATE", b"")
    before = {time: rows(writer.table, time) for time in times[6:]}
    result = archive_table(writer.table, FEW, ONE, clock())
    assert result is not None
    assert [i.time for i in result.instants] == times[:6]
    assert not writer.table.storage.exists(f".hoodie/.temp/{times[0]}")
    assert history(writer.table) == times
    assert {time: rows(writer.table, time) for time in times[6:]} == before
    rounds(writer, 2)
    assert rows(writer.table) == live(writer)
    assert validate(writer.table) == []


@pytest.mark.extended("more kinds of tables", first=("v9-MERGE_ON_READ",))
@pytest.mark.parametrize("kind", [COPY_ON_WRITE, MERGE_ON_READ])
def test_with_every_service_for_a_while(kind: str, tmp_path: Path) -> None:
    case = Case.create(tmp_path, kind, table_version(), {"files": 1, "record_index": 2, "column_stats": 1})
    writer, times = case.writer, clock()
    active = []
    for number in range(14):
        rounds(writer, 2)
        if kind == MERGE_ON_READ and number % 2:
            plan_compaction(writer)(lambda at, statuses: case.tell(at, statuses, writer.where))
        clean(writer.table, ONE, times)
        if compact(case.metadata_writer, case.times, 4) is not None:
            archive_metadata(case.metadata_writer, ArchiveOptions(3, 5))
        archive_table(writer.table, FEW, ONE, times)
        active.append(len(writer.table.timeline().instants))
        assert rows(writer.table) == live(writer)
    case.check()
    assert validate(writer.table) == []
    assert validate_metadata(writer.table) == []
    assert max(active[7:]) <= max(active[:7]) + 2
    metadata = case.metadata_writer
    own = HoodieTable(metadata.storage, metadata.config)
    assert archived_times(own)
    start = writer.table.timeline().start
    assert start is not None
    assert all(time[:17] < start for time in archived_times(own))
    found = {r["id"]: r["ver"] for r in read_table(writer.table.base_path, meta_columns=False).to_pylist()}
    assert found == {key: row["ver"] for key, row in writer.live.items()}


def test_it_can_be_cut_off_anywhere(tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, MERGE_ON_READ)
    rounds(writer, 4)
    plan_compaction(writer)(None)
    rounds(writer, 5)
    clean(writer.table, ONE, clock())
    before = history(writer.table)
    steps: list[str] = []

    def work(cut: Storage) -> None:
        archive_table(HoodieTable.open(cut), FEW, ONE, clock(), reach=steps.append)

    def after(_: int) -> None:
        assert set(before) <= set(history(writer.table))
        assert writer.table.timeline().pending == ()
        assert rows(writer.table) == live(writer)

    cut_off_at_each_change(writer.table.storage, work, after)
    assert {"archive_written", "archive_unfinished_removed"} <= set(steps)
    assert len(writer.table.timeline().completed_writes) <= 5
    assert validate(writer.table) == []


def test_cleans_stay_while_a_plan_keeps_the_metadata_table_from_compacting(tmp_path: Path) -> None:
    """Up to version 7 a metadata table is compacted only when nothing is pending; cleans go by their number alone there."""
    case = Case.create(tmp_path, MERGE_ON_READ, table_version(), {"files": 1})
    writer = case.writer
    writer.groups = 1
    writer.with_options(inserts_to_base_files=True)
    writer.write([row(1, "p0", 1)])
    writer.with_options(inserts_to_base_files=False)
    writer.write([row(9, "p9", 1)])
    tick = compaction_clock(writer)
    planned = schedule_compaction(writer.table, CompactionOptions(strategy=Strategy.UNBOUNDED), tick, force=True)
    assert planned is not None
    writer.with_options(inserts_to_base_files=True)
    by_version = CleanOptions(CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions=1)
    options = ArchiveOptions(2, 3, compaction_deltas=None)
    for ver in range(6):
        writer.write([row(100 + ver, "p0", 2 + ver)])
        tick = compaction_clock(writer)
        clean(writer.table, by_version, tick)
        compact(case.metadata_writer, case.times, 3)
        archive_table(writer.table, options, by_version, tick)
    assert validate_metadata(writer.table) == []
