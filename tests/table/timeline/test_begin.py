"""A process that sleeps before it writes an inflight file, and whose plan another one removes, leaves no such file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.table.errors import InstantConflictError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.cleaning import begin_clean, execute_clean, pending_cleans, schedule_clean
from tagstream.table.services.clustering import begin_clustering, unschedule_clustering
from tagstream.table.services.clustering_plan import schedule_clustering
from tagstream.table.services.options import CleanOptions
from tagstream.table.services.pending_clean import remove_plan
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.instant import CLEAN, COMPACTION, write_inflight
from tests.table.services.clusters import ALL, check, fill, made
from tests.table.services.compaction_compacting import clock, rows
from tests.table.services.tables import clock as cleaning_clock
from tests.table.services.tables import live, rounds
from tests.table.services.tables import rows as rows_of
from tests.table.stepping import Stepping
from tests.table.writer import Writer

FOLDER = ".hoodie/timeline"


def woken(table: HoodieTable, meanwhile: Callable[[], None]) -> HoodieTable:
    """The table as a process sees it that sleeps before it writes an inflight file; ``meanwhile`` happens then."""

    def before(call: str, rel: str, *_: str) -> None:
        if call == "write_new" and rel.endswith(".inflight"):
            meanwhile()

    return replace(table, storage=Stepping(table.storage, before))


def test_the_file_is_written_once_and_only_with_a_plan(tmp_path: Path) -> None:
    storage = PosixStorage(str(tmp_path))
    with pytest.raises(InstantConflictError, match="1.compaction.requested was removed by another process"):
        write_inflight(storage, FOLDER, "1", COMPACTION)
    assert not storage.names(FOLDER)
    storage.write_new(f"{FOLDER}/1.clean.requested", b"plan")
    for content in (b"plan", b"another"):
        write_inflight(storage, FOLDER, "1", CLEAN, content)
    assert storage.read(f"{FOLDER}/1.clean.inflight") == b"plan"


@pytest.mark.table_versions(6, 9)
def test_a_clustering_that_another_process_removed(version: int, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, MERGE_ON_READ))
    before, tick = rows(writer.table), clock(writer)
    instant = schedule_clustering(writer.table, ALL, tick, force=True)
    assert instant is not None
    asleep = woken(writer.table, lambda: unschedule_clustering(writer.table, instant))
    with pytest.raises(InstantConflictError, match="removed by another process"):
        begin_clustering(asleep, instant, tick)
    assert rows(writer.table) == before and writer.table.timeline().pending == ()
    check(writer)


@pytest.mark.table_versions(6, 9)
def test_a_clean_that_another_process_removed(version: int, tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    rounds(writer, 6)
    instant = schedule_clean(writer.table, CleanOptions(commits=3), cleaning_clock())
    assert instant is not None
    asleep = woken(writer.table, lambda: remove_plan(writer.table, instant))
    with pytest.raises(InstantConflictError, match="removed by another process"):
        begin_clean(asleep, instant)
    assert pending_cleans(writer.table.timeline()) == ()


def test_a_clean_that_was_begun_and_has_no_plan_is_removed(tmp_path: Path) -> None:
    """As a process leaves it that is killed between its two calls."""
    writer = Writer.create(tmp_path, COPY_ON_WRITE)
    rounds(writer, 6)
    writer.table.storage.write_new(f"{writer.table.config.timeline_folder}/20990101000000000.clean.inflight", b"")
    assert execute_clean(writer.table, "20990101000000000", cleaning_clock()) is None
    assert pending_cleans(writer.table.timeline()) == () and rows_of(writer.table) == live(writer)
