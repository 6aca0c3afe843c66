"""Incremental reads: the rows of writes after a time, wherever these are now, against hudi-rs and against the oracle."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.read.data_skipping import SkipReport
from tagstream.table.read.snapshot import changed_since, read_snapshot
from tagstream.table.services.archiving import archive_table
from tagstream.table.services.options import ArchiveOptions, CleanOptions
from tests.support.table_version import table_version
from tests.table.services.compaction_compacting import plan_and_compact
from tests.table.services.tables import clock
from tests.table.writer import Row, Writer, row

pytestmark = pytest.mark.table_versions(6, 8, 9)
TYPES = pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])


def changed(table: HoodieTable, since: str, **how: object) -> dict[str, int]:
    """Version by key of the rows that an incremental read gives."""
    rows = read_snapshot(table.reload(), ["id", "ver"], since=since, **how)  # type: ignore[arg-type]
    return dict(zip(rows["id"].to_pylist(), rows["ver"].to_pylist(), strict=True))


def of_hudi_rs(table: HoodieTable, since: str) -> dict[str, int]:
    options = HudiReadOptions().with_query_type(HudiQueryType.Incremental).with_start_timestamp(since)
    batches = HudiTableBuilder.from_base_uri(table.base_path).build().read(options)
    rows: list[Row] = pa.Table.from_batches(batches).to_pylist() if batches else []
    return {r["id"]: r["ver"] for r in rows}


def history(writer: Writer) -> list[str]:
    """Four writes to two partitions: one row is in each, one is deleted, one is moved. When each was completed."""
    times = [
        writer.write([row(0, "p0", 1), row(1, "p0", 1), row(2, "p1", 1)]),
        writer.write([row(0, "p0", 2), row(3, "p1", 2)]),
        writer.write([row(0, "p0", 3), row(1, "p1", 3)]),
        writer.write([row(0, "p0", 4)], deletes=["k2"]),
    ]
    timeline = writer.table.timeline()
    return [timeline.completion_time(time) for time in times]


EXPECTED = [{"k3": 2, "k1": 3, "k0": 4}, {"k1": 3, "k0": 4}, {"k0": 4}, {}]


@TYPES
def test_rows_of_later_writes(table_type: str, tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, table_type)
    times = history(writer)
    assert [changed(writer.table, time) for time in times] == EXPECTED
    assert [of_hudi_rs(writer.table, time) for time in times] == EXPECTED
    assert changed(writer.table, "0" * 17) == {"k1": 3, "k3": 2, "k0": 4}


@TYPES
def test_up_to_an_earlier_instant(table_type: str, tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, table_type)
    times = history(writer)
    third = writer.table.timeline().completed_writes[2].time
    assert changed(writer.table, times[0], as_of=third) == {"k3": 2, "k1": 3, "k0": 3}


def test_only_what_was_written_to_is_read(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE, groups=4)
    writer.write([row(n, f"p{n % 4}", 1) for n in range(40)])
    second = writer.write([row(4, "p0", 2)])
    since = writer.table.timeline().completion_time(second)
    writer.write([row(8, "p0", 3)])
    report = SkipReport()
    assert changed(writer.table, since, report=report) == {"k8": 3}
    assert (report.partitions, report.skipped_by) == (1, {"commits": report.files - 1})
    assert changed(writer.table, since, partitions=["p1"]) == {}


def test_compacted_rows_keep_their_write(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, MERGE_ON_READ)
    times = history(writer)
    plan_and_compact(writer)
    assert [changed(writer.table, time) for time in times] == EXPECTED


@TYPES
def test_archived_writes_are_found(table_type: str, tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, table_type)
    times = history(writer)
    for n in range(5, 10):
        writer.write([row(0, "p0", n)])
    if table_type == MERGE_ON_READ:
        plan_and_compact(writer)  # logs that are not compacted hold their writes on the timeline
    assert archive_table(writer.table, ArchiveOptions(2, 3), CleanOptions(commits=1), clock())
    table = writer.table.reload()
    assert table.timeline().start is not None and len(table.timeline().completed_writes) < 5
    assert [changed(table, time) for time in times] == [{**found, "k0": 9} for found in EXPECTED]


def test_a_write_that_was_slow_counts_by_its_completion(tmp_path: Path) -> None:
    """From version 8 on; before that its own time is all that is known."""
    writer = Writer.without_metadata(tmp_path, COPY_ON_WRITE)
    first = writer.write([row(1, "p0", 1)])
    slow = writer.table.timeline().completed_writes[0]
    if slow.completion_time is not None:
        since = f"{int(slow.completion_time) - 1}"
        assert first <= since
        assert changed(writer.table, since) == {"k1": 1}
        assert changed(writer.table, slow.completion_time) == {}
    else:
        assert table_version() < 8
        assert changed(writer.table, first) == {}


def test_nothing_new_reads_nothing(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    history(writer)
    table = writer.table.reload()
    assert changed_since(table, table.timeline(), "9" * 17).times == frozenset()
    assert changed(table, "9" * 17) == {}
