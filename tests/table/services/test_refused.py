"""Savepoints that would keep half a state, restores that would not bring back what is kept: refused, nothing changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.errors import InstantConflictError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.archiving import archive_table
from tagstream.table.services.cleaning import begin_clean, clean, schedule_clean
from tagstream.table.services.options import ArchiveOptions, CleanOptions, CleanPolicy
from tagstream.table.services.replaced_partitions import delete_partitions
from tagstream.table.services.restore import plan_restore, restore
from tagstream.table.services.rollback_completed import rollback_completed
from tagstream.table.services.savepoint import create_savepoint, delete_savepoint
from tagstream.table.services.upgrade import downgrade
from tagstream.table.timeline.instant import SAVEPOINT, Instant, State
from tagstream.table.timeline.timeline import savepoints
from tests.table.services.clusters import plan_and_cluster
from tests.table.services.compacting import plan_compaction
from tests.table.services.tables import clock, data_files, live, rounds, rows
from tests.table.writer import Writer, row

pytestmark = pytest.mark.table_versions(6, 8, 9)
ONE_VERSION = CleanOptions(CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions=1)


def unchanged(writer: Writer, before: list[str], files: dict[str, set[str]]) -> None:
    assert names(writer.table) == before
    assert data_files(writer.table) == files


def names(table: HoodieTable) -> list[str]:
    return [i.file_name() for i in table.timeline().instants]


@pytest.mark.parametrize("kind", [COPY_ON_WRITE, MERGE_ON_READ])
def test_a_savepoint_of_a_state_that_a_clean_by_versions_has_passed(kind: str, tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, kind)
    times = rounds(writer, 2)
    if kind == MERGE_ON_READ:
        plan_compaction(writer)(None)
    rounds(writer, 1)
    assert clean(writer.table, ONE_VERSION, clock(writer.now_ms + 1000)) is not None
    before, files = names(writer.table), data_files(writer.table)
    with pytest.raises(InstantConflictError, match="slice .*of file group .* needs, was deleted.*use a later write"):
        create_savepoint(writer.table, times[1] if kind == MERGE_ON_READ else times[0], "", "", clock())
    unchanged(writer, before, files)
    newest = create_savepoint(writer.table, None, "", "", clock(writer.now_ms + 2000))
    assert sum(map(len, newest.files.values())) == sum(map(len, files.values()))


def test_a_savepoint_of_partitions_that_were_deleted_and_cleaned(tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, COPY_ON_WRITE)
    (time,) = rounds(writer, 1)
    delete_partitions(writer.table, ["p1"], clock(writer.now_ms + 1000))
    assert clean(writer.table, ONE_VERSION, clock(writer.now_ms + 2000)) is not None
    with pytest.raises(InstantConflictError, match="every slice of file group .* in partition 'p1'"):
        create_savepoint(writer.table, time, "", "", clock(writer.now_ms + 3000))


def test_a_savepoint_of_files_that_a_pending_clean_deletes(tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, COPY_ON_WRITE)
    times = rounds(writer, 5)
    tick = clock(writer.now_ms + 1000)
    instant = schedule_clean(writer.table, CleanOptions(commits=1), tick)
    with pytest.raises(InstantConflictError, match=f"the clean {instant} .* is pending and deletes p0/"):
        create_savepoint(writer.table, times[1], "", "", tick)
    assert create_savepoint(writer.table, times[3], "", "", tick).time == times[3]  # it leaves what this one needs
    clean(writer.table, CleanOptions(commits=1), tick)
    assert plan_restore(writer.table, times[3]).savepoint == times[3]


@pytest.mark.parametrize("kind", [COPY_ON_WRITE, MERGE_ON_READ])
@pytest.mark.parametrize("by", ["clustering", "deleted partitions"])
def test_a_savepoint_keeps_an_older_slice_than_the_one_that_was_replaced(by: str, kind: str, tmp_path: Path) -> None:
    """The newest slice of a replaced group is deleted. The older one, which a savepoint keeps, must not count for it."""
    writer = Writer.without_metadata(tmp_path, kind)
    rounds(writer, 1)
    if kind == MERGE_ON_READ:
        plan_compaction(writer)(None)
    create_savepoint(writer.table, None, "", "", clock(writer.now_ms + 1000))
    (last,) = rounds(writer, 1)
    if kind == MERGE_ON_READ:
        plan_compaction(writer)(None)
        last = writer.table.timeline().completed_writes[-1].time
    if by == "clustering":
        instant: str | None = plan_and_cluster(writer).instant
    else:
        instant = delete_partitions(writer.table, ["p0", "p1"], clock(writer.now_ms + 1000))
    assert instant is not None
    tick = clock(writer.now_ms + 2000)
    assert clean(writer.table, ONE_VERSION, tick) is not None
    before, files = names(writer.table), data_files(writer.table)
    with pytest.raises(InstantConflictError, match="a clean has deleted the slice before it, .* of file group"):
        rollback_completed(writer.table, instant, tick)
    with pytest.raises(InstantConflictError, match="which write .* needs, was deleted: it cannot be kept"):
        create_savepoint(writer.table, last, "", "", tick)
    unchanged(writer, before, files)


def test_a_rollback_whose_slice_before_a_clean_is_deleting(tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, COPY_ON_WRITE)
    rounds(writer, 2)
    instant = delete_partitions(writer.table, ["p1"], clock(writer.now_ms + 1000))
    assert instant is not None
    tick = clock(writer.now_ms + 2000)
    planned = schedule_clean(writer.table, ONE_VERSION, tick)
    assert planned is not None
    plan = begin_clean(writer.table, planned)
    assert plan is not None
    oldest = min(plan.files["p1"], key=lambda name: name.rsplit("_", 1)[1])
    writer.table.storage.delete(f"p1/{oldest}")  # the slice before is there, and of the replaced group not all is
    with pytest.raises(InstantConflictError, match=f"the clean {planned} is being executed and has deleted p1/"):
        rollback_completed(writer.table, instant, tick)


@pytest.mark.parametrize("kind", [COPY_ON_WRITE, MERGE_ON_READ])
@pytest.mark.parametrize("cleaned", [True, False])
def test_a_restore_over_archived_writes(kind: str, cleaned: bool, tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, kind)
    rounds(writer, 2)
    tick = clock(writer.now_ms + 1000)
    saved = create_savepoint(writer.table, None, "", "", tick)
    writer.now_ms = tick()
    for ver in range(9):
        writer.write([row(ver % 4, f"p{ver % 2}", 10 + ver), row(100 + ver, f"new{ver}", 1)])
    tick = clock(writer.now_ms + 1000)
    if cleaned:
        clean(writer.table, CleanOptions(commits=1), tick)
    archived = archive_table(writer.table, ArchiveOptions(2, 3, beyond_savepoint=True), CleanOptions(commits=1), tick)
    assert archived is not None
    before, files = names(writer.table), data_files(writer.table)
    for work in (lambda: plan_restore(writer.table, saved.time), lambda: restore(writer.table, saved.time, tick)):
        with pytest.raises(InstantConflictError, match=f"is newer than savepoint {saved.time} and archived"):
            work()
    unchanged(writer, before, files)
    assert rows(writer.table) == live(writer)
    delete_savepoint(writer.table, saved.time)
    assert rows(writer.table) == live(writer)  # the write is archived, too: else the timeline would begin with it
    assert writer.table.timeline().find(saved.time) is None


def test_a_savepoint_of_a_write_that_archiving_has_passed(tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, COPY_ON_WRITE)
    rounds(writer, 2)
    tick = clock(writer.now_ms + 1000)
    saved = create_savepoint(writer.table, None, "", "", tick)
    writer.now_ms = tick()
    rounds(writer, 6)
    assert archive_table(writer.table, ArchiveOptions(2, 3, beyond_savepoint=True), CleanOptions(commits=1), tick)
    folder = writer.table.config.timeline_folder
    for name in writer.table.storage.names(folder):  # as another tool deletes a savepoint
        if ".savepoint" in name:
            writer.table.storage.delete(f"{folder}/{name}")
    with pytest.raises(InstantConflictError, match="is archived and newer than"):
        create_savepoint(writer.table, saved.time, "", "", tick)


def test_a_restore_that_would_leave_a_file_of_a_write_that_nothing_tells_of(tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, COPY_ON_WRITE)
    rounds(writer, 2)
    tick = clock(writer.now_ms + 1000)
    saved = create_savepoint(writer.table, None, "", "", tick)
    name = min(saved.files["p0"])
    foreign = "p0/" + name.replace(name[:4], "0000").replace(saved.time, "20200101000000000")
    writer.table.storage.write_new(foreign, writer.table.storage.read(f"p0/{name}"))
    with pytest.raises(InstantConflictError, match=f"would see .*{foreign}"):
        plan_restore(writer.table, saved.time)


@pytest.mark.table_versions(8, 9)
def test_a_restore_to_a_savepoint_of_another_layouts_log_files(tmp_path: Path) -> None:
    """As it is left by a tool that changes the table's version without a look at savepoints."""
    writer = Writer.without_metadata(tmp_path, MERGE_ON_READ)
    writer.groups = 1
    writer.with_options(inserts_to_base_files=True)
    writer.write([row(key, "p0", 1) for key in range(6)])
    writer.with_options(inserts_to_base_files=False)
    writer.write([row(key, "p0", 2) for key in range(3)], ["k5"])
    tick = clock(writer.now_ms + 1000)
    saved = create_savepoint(writer.table, None, "", "", tick)
    timeline = writer.table.timeline()
    (instant,) = (i for i in timeline.instants if i.action == SAVEPOINT)
    content = writer.table.storage.read(f"{timeline.folder}/{instant.file_name()}")
    with pytest.raises(InstantConflictError, match=f"savepoint {saved.time} .* keeps the log file p0/.*--delete"):
        downgrade(writer.table, 6, tick)
    assert len(savepoints(writer.table.storage, writer.table.timeline())) == 1
    assert writer.table.reload().config.version == writer.table.config.version
    delete_savepoint(writer.table, saved.time)
    downgrade(writer.table, 6, tick)
    table = writer.table.reload()
    done = Instant(saved.time, SAVEPOINT, State.COMPLETED)
    table.storage.write_new(f"{table.config.timeline_folder}/{done.file_name()}", content)
    with pytest.raises(InstantConflictError, match="would not be what the savepoint names"):
        plan_restore(table, saved.time)
