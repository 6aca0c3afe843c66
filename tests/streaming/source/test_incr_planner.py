"""Plans of a Hudi table as the source: histories with services, limits, pending commits, and history that is gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.streaming.errors import CheckpointError, SourceError
from tagstream.streaming.source.file_plans import SNAPSHOT, PlanLog
from tagstream.table.errors import LeaseLostError
from tagstream.table.file_group.change_file import LoggingMode
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.archiving import archive_table
from tagstream.table.services.cleaning import clean
from tagstream.table.services.options import ArchiveOptions, CleanOptions
from tagstream.table.services.restore import restore
from tagstream.table.services.savepoint import create_savepoint
from tests.streaming.source.incr_follower import LIMITS, Follower, plain
from tests.support.changes import Recorder
from tests.support.table_version import table_version
from tests.table.services.compaction_compacting import clock
from tests.table.services.test_changes import clustered, compacted, done
from tests.table.writer import CrashError, Writer, row

pytestmark = pytest.mark.table_versions(6, 8, 9)
TYPES = (COPY_ON_WRITE, MERGE_ON_READ)


def made(folder: Path, table_type: str, mode: LoggingMode | None = None) -> tuple[Recorder, Follower]:
    """A table without commits, and a stream from it."""
    writer = Writer.without_metadata(folder, table_type, settings={"change_logging": mode})
    return Recorder(writer), Follower(Path(writer.table.base_path), folder / "checkpoint")


def same(follower: Follower, writer: Writer) -> None:
    assert plain(follower.by_key()) == plain(writer.live)


@pytest.mark.parametrize("mode", [None, LoggingMode.OP_KEY_ONLY, LoggingMode.DATA_BEFORE_AFTER])
@pytest.mark.parametrize("table_type", TYPES)
def test_a_history_with_services(table_type: str, mode: LoggingMode | None, tmp_path: Path) -> None:
    """Each plan gives the same records again after later compactions and clusterings."""
    found, follower = made(tmp_path, table_type, mode)
    assert follower.look() == 0, "a table without commits has nothing to read"

    def between(number: int) -> None:
        if number in (1, 4, 5, 9):
            assert follower.look() == 1
            same(follower, found.writer)
        if table_type == MERGE_ON_READ and number in (2, 6):
            compacted(found.writer)
        if number in (3, 7):
            clustered(found.writer)

    found.random_commits(10, table_version() + 100 * len(str(mode)), between)
    assert follower.look() == 0
    again = Follower(follower.source, follower.folder)
    again.take()
    assert (again.rows, again.batches) == (follower.rows, follower.batches)
    assert follower.storage.names("tagstream/source/snapshot.jsonl") == ()


@pytest.mark.parametrize("table_type", TYPES)
def test_a_transformation_gets_the_row_before_each_update(table_type: str, tmp_path: Path) -> None:
    found, follower = made(tmp_path, table_type)
    found.write([row(1, "p0", 1, "a"), row(2, "p0", 1, "b")])
    follower.identity = None
    follower.look()
    found.write([row(1, "p0", 2, "c")])
    follower.look()
    (_, before), (_, after) = follower.records(2)
    assert (before["name"], before["_hoodie_is_deleted"]) == ("a", True)
    assert (after["name"], after["_hoodie_is_deleted"]) == ("c", False)
    same(follower, found.writer)
    follower.identity = ("id", "part")
    assert [r["name"] for _, r in follower.records(2)] == ["c"]


def test_batches_have_whole_commits(tmp_path: Path) -> None:
    found, follower = made(tmp_path, COPY_ON_WRITE)
    found.write([row(1, "p0", 1)])
    follower.look()
    for ver in range(2, 8):
        found.write([row(1, "p0", ver), row(2, "p1", ver)])
    follower.options = replace(LIMITS, instants=4)
    assert follower.look() == 2
    assert follower.batches == [1, 8, 4]
    for ver in range(8, 11):
        found.write([row(1, "p0", ver), row(2, "p1", ver)])
    follower.options = replace(LIMITS, limit=1)
    assert follower.look() == 3, "less than a commit is never read"
    same(follower, found.writer)


def test_a_new_stream_can_begin_with_the_newest_commit(tmp_path: Path) -> None:
    found, follower = made(tmp_path, COPY_ON_WRITE)
    found.write([row(n, "p0", 1) for n in range(5)])
    found.write([row(5, "p0", 1)])
    follower.options = replace(LIMITS, latest=True)
    follower.look()
    assert [r["id"] for _, r in follower.records(1)] == ["k5"]
    found.write([row(6, "p0", 1)])
    follower.look()
    assert sorted(key for key, _ in follower.rows) == ["k5", "k6"]


def test_a_snapshot_continues_with_the_same_slices_after_a_kill(tmp_path: Path) -> None:
    found, follower = made(tmp_path, MERGE_ON_READ)
    found.write([row(n, f"p{n % 4}", 1) for n in range(40)])
    found.write([row(n, f"p{n % 4}", 2) for n in range(0, 40, 3)])
    follower.options = replace(LIMITS, limit=1)
    parts = []

    def killed() -> None:
        parts.append(1)
        if len(parts) == 4:
            raise LeaseLostError("killed")

    with pytest.raises(LeaseLostError):
        follower.planner(killed).look()
    follower.take()
    assert len(follower.batches) == 2, "the rows are in more than two slices"
    # A row that was read is deleted, one that was not is updated, before the rest is read.
    first = sorted(key for key, _ in follower.rows)[0]
    other = next(key for key in sorted(found.writer.live) if (key, found.writer.live[key]["part"]) not in follower.rows)
    compacted(found.writer)
    found.write([{**found.writer.live[other], "ver": 9}], [first])
    follower.options = LIMITS
    follower.look()
    same(follower, found.writer)


def test_a_damaged_snapshot_is_named(tmp_path: Path) -> None:
    found, follower = made(tmp_path, COPY_ON_WRITE)
    found.write([row(1, "p0", 1)])
    for text in (b'{"version": 1, "parts": 2}\n', b"{", b'{"version": 7, "parts": 0}\n'):
        follower.storage.replace(SNAPSHOT, text)
        with pytest.raises(CheckpointError, match="snapshot"):
            follower.look()


def test_nothing_is_read_beyond_a_pending_commit(tmp_path: Path) -> None:
    """In version 6, where it may be completed with an earlier time. From 8 on it has a later completion time."""
    found, follower = made(tmp_path, COPY_ON_WRITE)
    writer = found.writer
    found.write([row(1, "p0", 1)])
    follower.look()
    with pytest.raises(CrashError):
        writer.write([row(2, "p0", 1)], crash="publish")
    (pending,) = writer.table.timeline().pending_writes
    found.write([row(3, "p1", 1)])
    planner = follower.planner()
    has_times = writer.table.config.has_completion_times
    assert (planner.look(), planner.waiting) == ((1, {}) if has_times else (0, {pending.time: 1}))
    writer.rollback_pending()
    assert follower.look() == (0 if has_times else 1)
    same(follower, writer)


def test_a_pending_compaction_holds_nothing_back(tmp_path: Path) -> None:
    found, follower = made(tmp_path, MERGE_ON_READ)
    found.random_commits(3, 5)
    follower.look()

    def then() -> None:
        found.random_commits(2, 6)
        assert follower.look() == 1
        same(follower, found.writer)

    compacted(found.writer, then)
    found.random_commits(2, 7)
    assert follower.look() == 1
    same(follower, found.writer)


def archived(found: Recorder) -> None:
    """The oldest commits are archived, and their files cleaned."""
    tick = clock(found.writer)
    assert clean(found.writer.table.reload(), CleanOptions(commits=1), tick)
    options = ArchiveOptions(min_commits=2, max_commits=3, compaction_deltas=None)
    assert archive_table(found.writer.table.reload(), options, CleanOptions(commits=1), tick)


@pytest.mark.parametrize("only_cleaned", [False, True])
def test_commits_that_are_gone_end_the_stream_or_start_a_full_scan(tmp_path: Path, only_cleaned: bool) -> None:
    found, follower = made(tmp_path, COPY_ON_WRITE)
    found.write([row(n, "p0", 1) for n in range(9)])
    follower.look()
    for ver in range(2, 9):
        found.write([row(n, "p0", ver) for n in range(9) if n != 1], ["k1"] if ver == 2 else [])
    if only_cleaned:
        assert clean(found.writer.table.reload(), CleanOptions(commits=1), clock(found.writer))
    else:
        archived(found)
    why = "deleted by a clean" if only_cleaned else "archived"
    with pytest.raises(SourceError, match=rf"(?s){why}.*fallback\.fulltablescan"):
        follower.look()
    follower.options = replace(LIMITS, full_scan=True)
    assert follower.look() == 1
    assert plain(follower.by_key()).keys() - found.writer.live.keys() == {"k1"}, "the delete was lost with its commit"
    del follower.rows["k1", "p0"]
    same(follower, found.writer)
    found.write([row(2, "p0", 20)])
    assert follower.look() == 1
    same(follower, found.writer)


def test_an_archive_that_was_read_is_no_problem(tmp_path: Path) -> None:
    found, follower = made(tmp_path, COPY_ON_WRITE)
    for ver in range(1, 9):
        found.write([row(n, "p0", ver) for n in range(9)])
    follower.look()
    archived(found)
    found.write([row(2, "p0", 20)])
    assert follower.look() == 1
    same(follower, found.writer)


def test_files_that_a_clean_takes_after_the_plan_are_named(tmp_path: Path) -> None:
    found, follower = made(tmp_path, COPY_ON_WRITE)
    found.write([row(n, "p0", 1) for n in range(9)])
    follower.look()
    for ver in range(2, 9):
        found.write([row(n, "p0", ver) for n in range(9)])
    follower.planner().look()
    assert clean(found.writer.table.reload(), CleanOptions(commits=1), clock(found.writer))
    with pytest.raises(SourceError, match="cannot be read any more"):
        follower.take()


def test_a_restored_table_ends_the_stream(tmp_path: Path) -> None:
    found, follower = made(tmp_path, COPY_ON_WRITE)
    saved = found.write([row(1, "p0", 1)])
    create_savepoint(found.writer.table, saved, "u", "c", clock(found.writer))
    found.write([row(1, "p0", 2)])
    follower.look()
    restore(found.writer.table.reload(), saved, clock(found.writer))
    with pytest.raises(SourceError, match="restored"):
        follower.look()


def test_positions_are_stored_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tagstream.streaming.source.incr_planner._PLANS", 3)
    found, follower = made(tmp_path, COPY_ON_WRITE)
    found.write([row(1, "p0", 1)])
    follower.options = replace(LIMITS, instants=1)
    for ver in range(2, 6):
        found.write([row(1, "p0", ver)])
    planner = follower.planner()
    planner.look()
    for ver in range(6, 9):
        found.write([row(1, "p0", ver)])
    planner.look()
    log = PlanLog(follower.storage)
    follower.take()
    log.forget_plans(log.numbers)
    assert log.numbers == []
    found.write([row(1, "p0", 99)])
    assert follower.planner().look() == 1
    assert [r["ver"] for _, r in follower.records(log.numbers[0])] == [99]
    assert done(found.writer, found.instants[-1])
