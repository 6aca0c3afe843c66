"""Savepoints of writes beside which a compaction or clustering was going on, and restores to them.

A service is requested, a batch is committed, the service is completed: the default of a stream that compacts beside its
batches. Cleans then delete all that neither the newest slices nor the savepoint need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.table.meta_client.table_config import MERGE_ON_READ
from tagstream.table.services.cleaning import clean
from tagstream.table.services.clustering import cluster
from tagstream.table.services.clustering_options import ClusteringOptions
from tagstream.table.services.clustering_plan import schedule_clustering
from tagstream.table.services.compaction import compact
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.options import CleanOptions, CleanPolicy, CompactionOptions, Strategy
from tagstream.table.services.restore import restore
from tagstream.table.services.savepoint import create_savepoint, savepoint_bytes
from tagstream.table.services.validate import validate
from tagstream.table.timeline.timeline import savepoints
from tests.support.hudi_rs import read_table
from tests.table.services.clusters import learn
from tests.table.services.compaction_compacting import clock
from tests.table.services.tables import live, rows
from tests.table.writer import Row, Writer, row

pytestmark = pytest.mark.table_versions(6, 8, 9)
COMPACTION, CLUSTERING = "compaction", "clustering"
ONE_VERSION = CleanOptions(CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions=1)


def begun(folder: Path, service: str) -> tuple[Writer, Callable[[], None], str]:
    """A table, what completes the service, and the write that was committed beside it."""
    writer = Writer.without_metadata(folder, MERGE_ON_READ)
    writer.groups = 1
    writer.with_options(inserts_to_base_files=True)
    writer.write([row(key, "p0", 1) for key in range(4)])
    writer.write([row(key, "p1", 1) for key in range(10, 13)])
    writer.with_options(inserts_to_base_files=False)
    writer.write([row(key, "p0", 2) for key in range(2)])
    tick = clock(writer)
    if service == COMPACTION:
        plan = schedule_compaction(writer.table, CompactionOptions(strategy=Strategy.UNBOUNDED), tick, force=True)
    else:
        plan = schedule_clustering(writer.table, ClusteringOptions(max_commits=1, partitions=("p0",)), tick, force=True)
    assert plan is not None
    writer.now_ms = tick()
    beside = [row(key, "p1", 3) for key in range(10, 13)]
    time = writer.write([*beside, row(0, "p0", 4)] if service == COMPACTION else beside)

    def complete() -> None:
        assert plan is not None
        tick = clock(writer)
        (compact if service == COMPACTION else cluster)(writer.table, plan, tick)
        writer.now_ms = tick()
        if service == CLUSTERING:
            learn(writer)

    return writer, complete, time


def later(writer: Writer) -> None:
    """Batches and services after the savepoint, which reach every file group; then a clean that leaves nothing to spare."""
    writer.now_ms += 1000
    writer.with_options(inserts_to_base_files=True)
    for ver in (5, 6):
        writer.write([row(key, "p0", ver) for key in range(4)] + [row(50 + ver, "p2", ver)])
    tick = clock(writer)
    plan = schedule_compaction(writer.table, CompactionOptions(strategy=Strategy.UNBOUNDED), tick, force=True)
    assert plan is not None
    compact(writer.table, plan, tick)
    writer.now_ms = tick()
    writer.write([row(key, "p1", 7) for key in range(10, 13)])
    assert rows(writer.table) == live(writer)
    clean(writer.table, ONE_VERSION, clock(writer))
    assert rows(writer.table) == live(writer)


def is_back(writer: Writer, time: str, wanted: list[Row]) -> None:
    restore(writer.table.reload(), time, clock(writer))
    table = writer.table.reload()
    assert rows(table) == wanted
    assert validate(table) == []
    assert read_table(table.base_path).num_rows == len(wanted)


@pytest.mark.extended("more kinds of tables", first=("v9-while",))
@pytest.mark.parametrize("service", [COMPACTION, CLUSTERING])
@pytest.mark.parametrize("when", ["while it runs", "of the write", "of the newest"])
def test_a_restore_brings_back_all_rows(when: str, service: str, tmp_path: Path) -> None:
    writer, complete, time = begun(tmp_path, service)
    wanted = live(writer)
    if when == "while it runs":
        saved = create_savepoint(writer.table, None, "", "", clock(writer))
        complete()
    else:
        complete()
        saved = create_savepoint(writer.table, time if when == "of the write" else None, "", "", clock(writer))
    later(writer)
    is_back(writer, saved.time, wanted)


@pytest.mark.parametrize("service", [COMPACTION, CLUSTERING])
def test_a_savepoint_that_goes_by_instant_times_can_be_restored(service: str, tmp_path: Path) -> None:
    """Of Hudi's, and of earlier versions of this program: it names the files of the service that was completed later."""
    writer, complete, time = begun(tmp_path, service)
    wanted = live(writer)
    complete()
    made = create_savepoint(writer.table, time, "", "", clock(writer))
    view = writer.table.view(as_of=time)
    slices = {partition: view.latest_merged_slices(partition) for partition in view.partitions()}
    by_time = {
        partition: frozenset(file.name for s in found for file in (s.base_file, *s.log_files) if file is not None)
        for partition, found in slices.items()
    }
    rewrite(writer, made.time, by_time)
    later(writer)
    is_back(writer, made.time, wanted)


def rewrite(writer: Writer, time: str, files: dict[str, frozenset[str]]) -> None:
    """Let the savepoint of ``time`` name these files."""
    timeline = writer.table.timeline()
    (instant,) = (i for i in timeline.instants if (i.action, i.time) == ("savepoint", time))
    (saved,) = savepoints(writer.table.storage, timeline)
    rel = f"{timeline.folder}/{instant.file_name()}"
    writer.table.storage.replace(rel, savepoint_bytes(replace(saved, files=files)))
