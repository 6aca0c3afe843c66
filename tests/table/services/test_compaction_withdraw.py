"""A compaction that died is rolled back, its plan executed later or taken away; inputs that were rolled back meanwhile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.errors import CorruptFileError, InstantConflictError
from tagstream.table.services.compaction import (
    begin_compaction,
    compact,
    compaction_tasks,
    rollback_compaction,
    unschedule_compaction,
)
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.rollback import resume_rollbacks
from tagstream.table.timeline.instant import ROLLBACK, State
from tagstream.table.write.commit import publish_files
from tests.table.services.compaction_compacting import ALL, clock, fill, made, plans, rows, slices_with_logs, sound
from tests.table.stepping import Stepping
from tests.table.writer import CrashError, Writer, row


def begun(writer: Writer) -> str:
    instant = schedule_compaction(writer.table, ALL, clock(writer), force=True)
    assert instant is not None
    return instant


def published(writer: Writer, instant: str) -> list[str]:
    """An execution that dies when its files have their names."""
    begin_compaction(writer.table, instant, clock(writer))
    statuses = [task.run() for task in compaction_tasks(writer.table, instant, 1)]
    publish_files(writer.table, instant, statuses)
    return [status.stat.path for status in statuses]


@pytest.mark.extended("more kinds of tables", first=("v6-False", "v9-True"))
@pytest.mark.table_versions(6, 8, 9)
@pytest.mark.parametrize("metadata", [False, True])
def test_what_was_written_goes_and_the_plan_stays(version: int, metadata: bool, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, metadata))
    instant = begun(writer)
    writer.write([row(2, "p0", 20)])
    before = rows(writer.table)

    def die(step: str) -> None:
        if step == "metadata_completed":
            raise CrashError

    if metadata:
        with pytest.raises(CrashError):
            compact(writer.table, instant, clock(writer), reach=die)
    else:
        published(writer, instant)
    assert rows(writer.table) == before
    result = rollback_compaction(writer.table, instant, writer.instant())
    assert result.deleted
    assert rows(writer.table) == before
    assert not any(writer.table.storage.exists(path) for path in result.deleted)
    assert [i.state for i in plans(writer.table)] == [State.REQUESTED]
    sound(writer)
    with pytest.raises(InstantConflictError, match="not a plan that is being executed"):
        rollback_compaction(writer.table, instant, writer.instant())
    writer.write([row(4, "p0", 21)])
    sound(writer)
    compact(writer.table, instant, clock(writer))
    sound(writer)


@pytest.mark.table_versions(6, 9)
def test_a_rollback_that_was_cut_off_is_finished_and_keeps_the_plan(version: int, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, True))
    before, instant = rows(writer.table), begun(writer)
    published(writer, instant)

    def before_change(kind: str, rel: str, *rest: str) -> None:
        if kind == "delete" and rel.endswith("compaction.inflight"):
            raise CrashError

    storage = writer.table.storage
    with pytest.raises(CrashError):
        rollback_compaction(type(writer.table).open(Stepping(storage, before_change)), instant, writer.instant())
    (result,) = resume_rollbacks(writer.table)
    assert result.failed == instant
    assert [i.state for i in plans(writer.table)] == [State.REQUESTED]
    assert [i.state for i in writer.table.timeline().instants if i.action == ROLLBACK] == [State.COMPLETED]
    assert rows(writer.table) == before
    compact(writer.table, instant, clock(writer))
    sound(writer)


@pytest.mark.table_versions(6, 9)
def test_a_plan_is_taken_from_the_timeline(version: int, tmp_path: Path) -> None:
    writer = fill(made(tmp_path))
    before, instant = rows(writer.table), begun(writer)
    files = published(writer, instant)
    with pytest.raises(InstantConflictError, match="roll back the execution first"):
        unschedule_compaction(writer.table, instant)
    assert sorted(rollback_compaction(writer.table, instant, writer.instant()).deleted) == sorted(files)
    unschedule_compaction(writer.table, instant)
    assert plans(writer.table) == []
    assert rows(writer.table) == before
    assert slices_with_logs(writer.table) != []
    instant = begun(writer)
    writer.write([row(2, "p0", 20)])
    if version == 6:
        with pytest.raises(InstantConflictError, match="was written later"):
            unschedule_compaction(writer.table, instant)
        compact(writer.table, instant, clock(writer))
    else:
        unschedule_compaction(writer.table, instant)
    sound(writer)


@pytest.mark.table_versions(6, 8, 9)
@pytest.mark.parametrize("metadata", [False, True])
def test_a_planned_log_file_that_is_missing(version: int, metadata: bool, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, metadata))
    instant = begun(writer)
    view = writer.table.view()
    log = next(s for p in view.partitions() for s in view.latest_merged_slices(p) if s.log_files).log_paths[0]
    writer.table.storage.delete(log)
    with pytest.raises(CorruptFileError, match="is missing, but the compaction"):
        compact(writer.table, instant, clock(writer))


def roll_back_newest(writer: Writer) -> None:
    """The newest completed delta commit is taken back, as Hudi does it: its completed file goes first."""
    newest = [i for i in writer.table.timeline().completed_writes if i.action == "deltacommit"][-1]
    writer.table.storage.delete(writer.completed_rel(newest.time))
    writer.rollback_pending()


@pytest.mark.extended("more kinds of tables", first=("v6-False", "v9-True"))
@pytest.mark.table_versions(6, 8, 9)
@pytest.mark.parametrize("metadata", [False, True])
def test_inputs_that_were_rolled_back_do_not_count(version: int, metadata: bool, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, metadata))
    live, where = dict(writer.live), dict(writer.where)
    before = rows(writer.table)
    writer.write([row(2, "p0", 20), row(3, "p1", 20), row(77, "p7", 1)], ["k0"])  # p7: a group of its own
    instant = begun(writer)
    roll_back_newest(writer)
    writer.live, writer.where = live, where
    assert rows(writer.table) == before
    result = compact(writer.table, instant, clock(writer))
    assert result.passed_over == 1
    assert rows(writer.table) == before
    writer.write([row(2, "p0", 30), row(77, "p7", 2)])
    assert {r["id"]: r["ver"] for r in rows(writer.table)} == {key: r["ver"] for key, r in writer.live.items()}
