"""Plans of cleans that are carried out after the table has changed: what somebody needs by then stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tagstream.table.services.cleaning import (
    begin_clean,
    clean,
    execute_clean,
    pending_cleans,
    schedule_clean,
    withdraw_cleans,
)
from tagstream.table.services.cleaning_plan import last_clean
from tagstream.table.services.options import CleanOptions, CleanPolicy
from tagstream.table.services.restore import restore
from tagstream.table.services.rollback_completed import rollback_completed
from tagstream.table.services.savepoint import create_savepoint, delete_savepoint
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.instant import CLEAN, Instant, State
from tests.support.table_version import table_version
from tests.table.history.crashes import cut_off_at_each_change
from tests.table.metadata.case import Case
from tests.table.services.tables import clock, data_files, live, rounds, rows
from tests.table.stepping import Stepping
from tests.table.writer import Writer

pytestmark = pytest.mark.table_versions(6, 8, 9)
VERSIONS = CleanOptions(CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions=1)
COMMITS = CleanOptions(commits=1)


def plan_file(writer: Writer, instant: str) -> str:
    return f"{writer.table.config.timeline_folder}/{Instant(instant, CLEAN, State.REQUESTED).file_name()}"


def planned(writer: Writer, options: CleanOptions) -> tuple[str, bytes]:
    instant = schedule_clean(writer.table, options, clock(writer.now_ms + 10))
    assert instant is not None
    return instant, writer.table.storage.read(plan_file(writer, instant))


@pytest.mark.parametrize(("options", "back"), [(VERSIONS, 1), (COMMITS, 2)])
def test_a_rollback_withdraws_what_was_planned(options: CleanOptions, back: int, tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    times = rounds(writer, 4)
    before = {time: rows(writer.table, time) for time in times}
    planned(writer, options)
    tick = clock(writer.now_ms + 1000)
    for time in reversed(times[-back:]):
        rollback_completed(writer.table.reload(), time, tick)
    assert pending_cleans(writer.table.timeline()) == ()
    clean(writer.table.reload(), options, tick)
    assert rows(writer.table) == before[times[-1 - back]]


def test_a_restore_withdraws_what_was_planned(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    rounds(writer, 2)
    wanted = rows(writer.table)
    saved = create_savepoint(writer.table, None, "", "", clock(writer.now_ms + 10))
    writer.now_ms += 1000
    rounds(writer, 3)
    planned(writer, VERSIONS)
    tick = clock(writer.now_ms + 1000)
    restore(writer.table.reload(), saved.time, tick)
    assert pending_cleans(writer.table.timeline()) == ()
    delete_savepoint(writer.table, saved.time)
    clean(writer.table.reload(), VERSIONS, tick)
    assert rows(writer.table) == wanted


def test_a_rollback_beside_a_plan_can_be_cut_off_anywhere(tmp_path: Path) -> None:
    writer = Case.create(tmp_path, COPY_ON_WRITE, table_version(), {"files": 1}).writer
    times = rounds(writer, 4)
    wanted = rows(writer.table, times[-2])
    instant, _ = planned(writer, COMMITS)
    plan = begin_clean(writer.table, instant)
    assert plan is not None
    tick = clock(writer.now_ms + 1000)

    def work(cut: Storage) -> None:
        table = HoodieTable.open(cut)
        if table.timeline().find(times[-1]) is not None or table.timeline().pending_rollbacks:
            rollback_completed(table, times[-1], tick)

    cut_off_at_each_change(writer.table.storage, work, lambda _: None)
    assert writer.table.timeline().pending == ()
    assert rows(writer.table) == wanted
    assert validate(writer.table.reload()) == []
    assert validate_metadata(writer.table.reload()) == []


@pytest.mark.parametrize(("options", "back"), [(VERSIONS, 1), (COMMITS, 2)])
def test_a_plan_that_a_rollback_has_not_seen_is_carried_out_no_more(
    options: CleanOptions, back: int, tmp_path: Path
) -> None:
    """Another tool's rollback does not look at cleans."""
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    times = rounds(writer, 4)
    before = {time: rows(writer.table, time) for time in times}
    instant, content = planned(writer, options)
    tick = clock(writer.now_ms + 1000)
    for time in reversed(times[-back:]):
        rollback_completed(writer.table.reload(), time, tick)
    writer.table.storage.write_new(plan_file(writer, instant), content)
    files = data_files(writer.table)
    assert execute_clean(writer.table.reload(), instant, tick) is None
    assert data_files(writer.table) == files
    assert rows(writer.table) == before[times[-1 - back]]
    assert validate(writer.table.reload()) == []
    clean(writer.table.reload(), options, tick)
    assert rows(writer.table) == before[times[-1 - back]]


def test_one_that_was_begun_ends_with_the_files_that_are_gone(tmp_path: Path) -> None:
    writer = Case.create(tmp_path, COPY_ON_WRITE, table_version(), {"files": 1}).writer
    rounds(writer, 4)
    instant, _ = planned(writer, VERSIONS)
    plan = begin_clean(writer.table, instant)
    assert plan is not None
    (partition, *_), (name, *_) = sorted(plan.files), sorted(plan.files[min(plan.files)])
    writer.table.storage.delete(f"{partition}/{name}")
    assert withdraw_cleans(writer.table, clock(writer.now_ms + 1000)) == (instant,)
    last = last_clean(writer.table.storage, writer.table.timeline())
    assert last is not None
    assert (last.time, last.earliest) == (instant, None)  # the next one looks at all partitions
    assert validate_metadata(writer.table.reload()) == []
    assert rows(writer.table) == live(writer)
    result = clean(writer.table, VERSIONS, clock(writer.now_ms + 2000))
    assert result is None or name not in {path.rsplit("/", 1)[-1] for path in result.deleted}


def test_a_savepoint_that_came_later_keeps_its_files(tmp_path: Path) -> None:
    """It was made by a tool that does not look at pending cleans."""
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    times = rounds(writer, 5)
    instant, content = planned(writer, COMMITS)
    writer.table.storage.delete(plan_file(writer, instant))
    saved = create_savepoint(writer.table, times[1], "", "", clock(writer.now_ms + 100))
    wanted = rows(writer.table, times[1])
    writer.table.storage.write_new(plan_file(writer, instant), content)
    tick = clock(writer.now_ms + 1000)
    assert execute_clean(writer.table, instant, tick) is not None
    files = data_files(writer.table)
    assert all(names <= files[partition] for partition, names in saved.files.items())
    assert rows(writer.table, times[1]) == wanted
    delete_savepoint(writer.table, times[1])
    writer.now_ms += 10_000
    rounds(writer, 1)
    clean(writer.table, COMMITS, clock(writer.now_ms + 1000))  # finds them, though nothing was written there since
    files = data_files(writer.table)
    assert not any(names & files[partition] for partition, names in saved.files.items())


def test_a_plan_that_is_carried_out_at_once_lists_nothing_more(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    rounds(writer, 4)
    instant, _ = planned(writer, COMMITS)
    calls: list[tuple[str, ...]] = []
    table = HoodieTable.open(Stepping(writer.table.storage, lambda *call: calls.append(call)))
    assert begin_clean(table, instant) is not None
    assert [rel for _, *rels in calls for rel in rels if rel in ("", "p0", "p1")] == []
    rounds(writer, 1)
    calls.clear()
    assert begin_clean(table, instant) is not None
    assert {rel for _, *rels in calls for rel in rels if rel in ("", "p0", "p1")} == {"p0", "p1"}
