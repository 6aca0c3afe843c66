"""Cleaning by each policy: what it keeps can still be read, what nobody needs is gone, the metadata table knows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.file_group.names import parse_base_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.cleaning import clean, execute_clean, pending_cleans, schedule_clean
from tagstream.table.services.cleaning_plan import plan_table
from tagstream.table.services.options import CleanOptions, CleanPolicy
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.storage.storage import Storage
from tests.support.hudi_rs import read_table
from tests.support.table_version import table_version
from tests.table.history.crashes import cut_off_at_each_change
from tests.table.metadata.case import Case
from tests.table.services.compacting import plan_compaction
from tests.table.services.tables import clock, data_files, live, rounds, rows
from tests.table.writer import START_MS, Writer, row

pytestmark = pytest.mark.table_versions(6, 8, 9)
VERSIONS = CleanPolicy.KEEP_LATEST_FILE_VERSIONS
HOURS = CleanPolicy.KEEP_LATEST_BY_HOURS


def whole(table: HoodieTable) -> None:
    table = table.reload()
    assert validate(table) == []
    assert validate_metadata(table) == []


def bases(table: HoodieTable) -> list[str]:
    """The instants of the base files of one group, of which there are as many in each."""
    found: dict[str, list[str]] = {}
    for names in data_files(table).values():
        for name in names:
            base = parse_base_file_name(name)
            if base is not None:
                found.setdefault(base.file_id, []).append(base.instant)
    times = {tuple(sorted(each)) for each in found.values()}
    assert len(times) == 1
    return list(times.pop())


def test_the_newest_commits_can_be_read(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    times = rounds(writer, 6)
    before = {time: rows(writer.table, time) for time in times}
    result = clean(writer.table, CleanOptions(commits=3), clock())
    assert result is not None
    assert result.earliest == times[3]
    assert bases(writer.table) == times[2:]  # and the one before them, which a query that began earlier may read
    assert {time: rows(writer.table, time) for time in times[2:]} == {time: before[time] for time in times[2:]}
    assert rows(writer.table) == live(writer)
    assert clean(writer.table, CleanOptions(commits=3), clock()) is None
    whole(writer.table)


def test_file_versions(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    times = rounds(writer, 5)
    options = CleanOptions(VERSIONS, file_versions=2)
    result = clean(writer.table, options, clock())
    assert result is not None
    assert (result.earliest, bases(writer.table)) == (None, times[3:])
    writer.write([row(0, "p0", 10)])
    writer.write([row(0, "p0", 11)])
    plan = plan_table(writer.table, options, 0)
    assert plan is not None
    assert (list(plan.files), plan.looked_at) == (["p0"], 1)  # nothing was written to p1 since
    whole(writer.table)


def test_hours(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    old = rounds(writer, 3)
    writer.now_ms = START_MS + 5 * 3_600_000
    new = rounds(writer, 2)
    now = START_MS + 6 * 3_600_000
    plan = plan_table(writer.table, CleanOptions(HOURS, hours=7), now)
    assert plan is not None
    assert plan.files == {}
    result = clean(writer.table, CleanOptions(HOURS, hours=2), clock(now))
    assert result is not None
    assert (result.earliest, bases(writer.table)) == (new[0], [old[2], *new])


@pytest.mark.extended(
    "more kinds of tables",
    first=(
        "v6-KEEP_LATEST_COMMITS-COPY_ON_WRITE",
        "v9-KEEP_LATEST_FILE_VERSIONS-MERGE_ON_READ",
        "v9-KEEP_LATEST_BY_HOURS-MERGE_ON_READ",
    ),
)
@pytest.mark.parametrize("kind", [COPY_ON_WRITE, MERGE_ON_READ])
@pytest.mark.parametrize("policy", list(CleanPolicy))
def test_the_metadata_table_is_told(kind: str, policy: CleanPolicy, tmp_path: Path) -> None:
    case = Case.create(tmp_path, kind, table_version())
    writer = case.writer
    rounds(writer, 3, keys=8)
    if kind == MERGE_ON_READ:
        for _ in range(2):
            plan_compaction(writer)(lambda at, statuses: case.tell(at, statuses, writer.where))
            rounds(writer, 1, keys=8)
    writer.write([row(99, "p3", 1)], ["k1"])
    result = clean(writer.table, CleanOptions(policy, 1, 1, 1), clock(START_MS + 86_400_000))
    assert result is not None
    assert result.deleted
    assert not {path for path in result.deleted if Path(writer.table.base_path, path).exists()}
    case.check()
    whole(writer.table)
    assert rows(writer.table) == live(writer)
    rounds(writer, 2)
    case.check()


def test_slices_before_a_compaction_go(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, MERGE_ON_READ)
    rounds(writer, 2)
    before = data_files(writer.table)
    complete = plan_compaction(writer)
    rounds(writer, 2)
    for options in (CleanOptions(commits=1), CleanOptions(VERSIONS, file_versions=1)):
        plan = plan_table(writer.table, options, 0)
        assert plan is None or plan.files == {}  # the pending compaction reads these slices
    complete(None)
    rounds(writer, 2)
    result = clean(writer.table, CleanOptions(commits=1), clock())
    assert result is not None
    gone = {path.rpartition("/")[2] for path in result.deleted}
    assert gone == {name for names in before.values() for name in names}
    assert rows(writer.table) == live(writer)
    whole(writer.table)


def test_files_of_failed_writes_stay(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    times = rounds(writer, 4)
    with pytest.raises(Exception):  # noqa: B017
        writer.write([row(0, "p0", 9)], crash="publish")
    (failed,) = writer.table.timeline().pending_writes
    unfinished = {n for names in data_files(writer.table).values() for n in names if failed.time in n}
    result = clean(writer.table, CleanOptions(commits=1), clock())
    assert result is not None
    assert result.earliest == times[-1]
    assert unfinished
    assert unfinished <= {n for names in data_files(writer.table).values() for n in names}
    writer.rollback_pending()
    whole(writer.table)


def test_an_old_unfinished_write_holds_the_clean_back(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    times = rounds(writer, 3)
    with pytest.raises(Exception):  # noqa: B017
        writer.write([row(0, "p0", 9)], crash="inflight")
    times += rounds(writer, 3)
    result = clean(writer.table, CleanOptions(commits=1), clock())
    assert result is not None
    assert result.earliest == times[2]


@pytest.mark.extended(
    "every change of the store is the last one, for more kinds of tables",
    first=("v6-COPY_ON_WRITE", "v9-MERGE_ON_READ"),
)
@pytest.mark.parametrize("kind", [COPY_ON_WRITE, MERGE_ON_READ])
def test_it_can_be_cut_off_anywhere(kind: str, tmp_path: Path) -> None:
    case = Case.create(tmp_path, kind, table_version(), {"files": 1, "record_index": 2})
    writer = case.writer
    rounds(writer, 2)
    if kind == MERGE_ON_READ:
        plan_compaction(writer)(lambda at, statuses: case.tell(at, statuses, writer.where))
    rounds(writer, 2)
    times = clock()

    def work(cut: Storage) -> None:
        clean(HoodieTable.open(cut), CleanOptions(commits=1), times)

    def after(_: int) -> None:
        assert rows(writer.table) == live(writer)
        assert validate_metadata(writer.table.reload()) == []  # also while files are gone that it has not been told of

    cut_off_at_each_change(writer.table.storage, work, after)
    assert pending_cleans(writer.table.timeline()) == ()
    assert [i.action for i in writer.table.timeline().instants].count("clean") == 1
    case.check()
    whole(writer.table)


def test_only_what_changed_is_looked_at(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    writer.write([row(n, f"p{n}", 1) for n in range(9)])
    for ver in range(2, 5):
        writer.write([row(n, f"p{n}", ver) for n in range(9)])
    assert clean(writer.table, CleanOptions(commits=1), clock()) is not None
    for ver in range(5, 8):
        writer.write([row(4, "p4", ver)])
    plan = plan_table(writer.table, CleanOptions(commits=1), 0)
    assert plan is not None
    assert (len(plan.files), plan.looked_at) == (9, 9)  # the commit that the last clean retained wrote to all of them
    assert clean(writer.table, CleanOptions(commits=1), clock()) is not None
    for ver in range(8, 10):
        writer.write([row(5, "p5", ver)])
    plan = plan_table(writer.table, CleanOptions(commits=1), 0)
    assert plan is not None
    assert (set(plan.files), plan.looked_at) == ({"p4", "p5"}, 2)


def test_inserts_alone_do_not_make_each_clean_look_at_everything(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    for n in range(30):
        writer.write([row(n, f"p{n}", 1)])
    result = clean(writer.table, CleanOptions(commits=2), clock())
    assert result is not None
    assert (result.deleted, result.earliest) == ((), writer.table.timeline().completed_writes[-2].time)
    writer.write([row(77, "p77", 1)])
    assert plan_table(writer.table, CleanOptions(commits=2), 0) is None
    whole(writer.table)


def test_a_plan_is_carried_out_elsewhere_while_batches_go_on(tmp_path: Path) -> None:
    case = Case.create(tmp_path, MERGE_ON_READ, table_version())
    writer = case.writer
    rounds(writer, 2)
    plan_compaction(writer)(lambda at, statuses: case.tell(at, statuses, writer.where))
    rounds(writer, 2)
    instant = schedule_clean(writer.table, CleanOptions(commits=1), clock())
    assert instant is not None
    assert schedule_clean(writer.table, CleanOptions(commits=1), clock()) is None
    rounds(writer, 2)
    assert execute_clean(writer.table, instant, clock()) is not None
    assert execute_clean(writer.table, instant, clock()) is None
    case.check()
    rounds(writer, 1)
    case.check()
    whole(writer.table)
    found = {r["id"]: r["ver"] for r in read_table(writer.table.base_path, meta_columns=False).to_pylist()}
    assert found == {key: found["ver"] for key, found in writer.live.items()}
