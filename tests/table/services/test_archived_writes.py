"""Rows of writes that are archived: they are there with savepoints on every active write, and after a restore."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.errors import InstantConflictError
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.archiving import archive_table
from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.failed_writes import sweep
from tagstream.table.services.options import ArchiveOptions, CleanOptions, CompactionOptions, Strategy
from tagstream.table.services.restore import restore
from tagstream.table.services.rollback_completed import rollback_completed
from tagstream.table.services.savepoint import create_savepoint
from tagstream.table.services.validate import validate
from tagstream.table.write.markers import TEMP_FOLDER
from tests.support.hudi_rs import read_table
from tests.table.services.compaction_compacting import clock
from tests.table.services.tables import live, rows
from tests.table.writer import Writer, row

pytestmark = pytest.mark.table_versions(6, 8, 9)


def archive_all_but(writer: Writer, count: int) -> None:
    archived = archive_table(writer.table, ArchiveOptions(count, count + 1), CleanOptions(commits=1), clock(writer))
    assert archived is not None


def test_they_count_when_every_active_write_has_a_savepoint(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    for key in range(6):
        writer.write([row(key, f"p{key}", 1)])
    archive_all_but(writer, 2)
    for write in writer.table.timeline().completed_writes:
        create_savepoint(writer.table, write.time, "", "", clock(writer))
        assert rows(writer.table) == live(writer)
    assert read_table(writer.table.base_path).num_rows == 6
    assert validate(writer.table.reload()) == []


def test_they_count_after_a_restore_that_leaves_one_write(tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    first, *_ = [writer.write([row(key, f"p{key}", 1)]) for key in range(4)]
    wanted = live(writer)
    # The markers of an archived write, as a driver leaves them that died before it removed them.
    (name,) = (n for n in writer.table.storage.names("p0") if n.endswith(".parquet"))
    time = create_savepoint(writer.table, None, "", "", clock(writer)).time
    for ver in range(4):
        writer.write([row(3, "p3", 2 + ver)])
    archive_all_but(writer, 1)
    writer.table.storage.write_new(f"{TEMP_FOLDER}/{first}/p0/{name}.marker.CREATE", b"")
    restore(writer.table.reload(), time, clock(writer))
    table = writer.table.reload()
    assert [i.time for i in table.timeline().completed_writes] == [time]
    assert rows(table) == wanted
    assert sweep(table) == []
    assert read_table(table.base_path).num_rows == len(wanted)


@pytest.mark.parametrize("saves", [True, False])
def test_they_do_not_lose_the_last_write_that_is_newer(saves: bool, tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    times = []
    for key in range(6):
        times.append(writer.write([row(key, f"p{key}", 1)]))
        if key == 2 and saves:
            create_savepoint(writer.table, None, "", "", clock(writer))
    options = ArchiveOptions(1, 2, beyond_savepoint=True)
    assert archive_table(writer.table, options, CleanOptions(commits=1), clock(writer)) is not None
    tick = clock(writer)
    rollback_completed(writer.table, times[-1], tick)
    wanted = [found for found in live(writer) if found["part"] != "p5"]
    assert rows(writer.table) == wanted
    with pytest.raises(InstantConflictError, match="is archived, and would no longer count"):
        rollback_completed(writer.table, times[-2], tick)
    assert rows(writer.table) == wanted


@pytest.mark.table_versions(8, 9)
def test_a_savepoint_leaves_log_files_under_the_base_file_that_has_their_rows(tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, MERGE_ON_READ)
    writer.groups = 1
    writer.with_options(inserts_to_base_files=True)
    writer.write([row(key, "p0", 1) for key in range(3)])
    writer.with_options(inserts_to_base_files=False)
    deleted = writer.write([], ["k0"])
    writer.write([row(0, "p0", 3)])
    tick = clock(writer)
    plan = schedule_compaction(writer.table, CompactionOptions(strategy=Strategy.UNBOUNDED), tick, force=True)
    assert plan is not None
    compact(writer.table, plan, tick)
    assert rows(writer.table) == live(writer)
    create_savepoint(writer.table, deleted, "", "", tick)
    assert rows(writer.table) == live(writer)
