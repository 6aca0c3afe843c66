"""Replace commits stay on the timeline as long as a file group that they replaced is on disk, whatever keeps it there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tagstream.table.services.archiving import archive_table, plan_archive
from tagstream.table.services.cleaning import clean, schedule_clean
from tagstream.table.services.clustering import cluster
from tagstream.table.services.clustering_options import ClusteringOptions
from tagstream.table.services.clustering_plan import schedule_clustering
from tagstream.table.services.options import ArchiveOptions, CleanOptions, CleanPolicy
from tagstream.table.services.replaced_partitions import delete_partitions
from tagstream.table.services.savepoint import create_savepoint, delete_savepoint
from tagstream.table.services.validate import validate
from tagstream.table.timeline.instant import REPLACE_COMMIT
from tests.support.hudi_rs import read_table
from tests.table.services.clusters import learn, plan_and_cluster
from tests.table.services.compaction_compacting import clock
from tests.table.services.tables import live, rows
from tests.table.writer import Writer, row

pytestmark = pytest.mark.table_versions(6, 8, 9)
CLEAN = CleanOptions(commits=1)
FEW = ArchiveOptions(2, 3)


def replacing(writer: Writer) -> list[str]:
    return [i.time for i in writer.table.timeline().completed_writes if i.action == REPLACE_COMMIT]


def good(writer: Writer) -> None:
    assert rows(writer.table) == live(writer)
    assert read_table(writer.table.base_path).num_rows == len(live(writer))
    assert validate(writer.table.reload()) == []


def later(writer: Writer, count: int = 5) -> None:
    for _ in range(count):
        writer.now_ms += 1000
        writer.write([row(key, "p0", writer.now_ms % 1_000_000) for key in (0, 2)])


@pytest.mark.parametrize("planned", [True, False])
@pytest.mark.parametrize("how", ["cluster", "delete partition"])
def test_a_savepoint_that_is_deleted_before_the_next_clean(how: str, planned: bool, tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, COPY_ON_WRITE)
    writer.write([row(key, f"p{key % 2}", 1) for key in range(6)])
    writer.write([row(key, f"p{key % 2}", 2) for key in range(3)])
    tick = clock(writer)
    saved = create_savepoint(writer.table, None, "", "", tick)
    writer.now_ms = tick()
    if how == "cluster":
        plan_and_cluster(writer)
        learn(writer)
    else:
        delete_partitions(writer.table, ["p1"], clock(writer))
        writer.live = {key: found for key, found in writer.live.items() if found["part"] != "p1"}
        writer.where = {key: where for key, where in writer.where.items() if where[0] != "p1"}
        writer.era += 1
    later(writer)
    clean(writer.table, CLEAN, clock(writer))
    delete_savepoint(writer.table, saved.time)
    if planned:  # beside the batches (hoodie.clean.async.enabled): archiving comes before it is carried out
        later(writer, 1)
        assert schedule_clean(writer.table, CLEAN, clock(writer)) is not None
    writer.now_ms += 1000
    assert archive_table(writer.table, FEW, CLEAN, clock(writer)) is not None
    assert len(replacing(writer)) == 1
    good(writer)
    later(writer, 1)
    clean(writer.table, CLEAN, clock(writer))
    writer.now_ms += 1000
    assert archive_table(writer.table, FEW, CLEAN, clock(writer)) is not None
    assert replacing(writer) == []
    good(writer)


class Died(Exception):
    """The process that cleans is killed."""


@pytest.mark.parametrize("step", ["clean_inflight", "clean_deleted"])
def test_a_clean_that_was_cut_off_behind_its_deletes(step: str, tmp_path: Path) -> None:
    """The metadata table lists the files until the clean is complete: without the replace commit they would count."""
    writer = Writer.without_metadata(tmp_path, COPY_ON_WRITE)
    writer.write([row(key, f"p{key % 2}", 1) for key in range(6)])
    writer.write([row(key, f"p{key % 2}", 2) for key in range(3)])
    tick = clock(writer)
    saved = create_savepoint(writer.table, None, "", "", tick)
    writer.now_ms = tick()
    plan_and_cluster(writer)
    learn(writer)
    (plan,) = replacing(writer)
    later(writer)
    by_version = CleanOptions(CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions=1)
    clean(writer.table, by_version, clock(writer))
    writer.now_ms += 1000
    delete_savepoint(writer.table, saved.time)
    later(writer, 1)

    def die(reached: str) -> None:
        if reached == step:
            raise Died

    with pytest.raises(Died):
        clean(writer.table, by_version, clock(writer), reach=die)
    writer.now_ms += 1000
    archive_table(writer.table, FEW, by_version, clock(writer))
    assert replacing(writer) == [plan]
    good(writer)
    later(writer, 1)
    clean(writer.table, by_version, clock(writer))
    writer.now_ms += 1000
    archive_table(writer.table, FEW, by_version, clock(writer))
    assert replacing(writer) == []
    good(writer)


@pytest.mark.parametrize("saves", [True, False])
def test_a_clustering_that_was_requested_long_before_it_was_completed(saves: bool, tmp_path: Path) -> None:
    writer = Writer.without_metadata(tmp_path, COPY_ON_WRITE)
    writer.groups = 2
    writer.write([row(key, "p1", 1) for key in range(6)])
    writer.write([row(key, "p0", 1) for key in (0, 2)])
    options = ClusteringOptions(max_commits=1, partitions=("p1",))
    plan = schedule_clustering(writer.table, options, clock(writer), force=True)
    assert plan is not None
    writer.now_ms += 1000
    later(writer, 2)
    saved = create_savepoint(writer.table, None, "", "", clock(writer)) if saves else None
    by_version = CleanOptions(CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions=1, max_commits=20)
    cleaning = CLEAN if saves else by_version  # by versions: none is due yet, and the last one was long ago
    clean(writer.table, CleanOptions(CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions=1), clock(writer))
    cluster(writer.table, plan, clock(writer))
    writer.now_ms += 1000
    writer.era += 1
    later(writer)
    clean(writer.table, cleaning, clock(writer))
    writer.now_ms += 1000
    archive_table(writer.table, FEW, cleaning, clock(writer))
    assert replacing(writer) == [plan]
    good(writer)
    if saved is not None:
        delete_savepoint(writer.table, saved.time)
    later(writer, 1)
    clean(writer.table, CleanOptions(CleanPolicy.KEEP_LATEST_FILE_VERSIONS, file_versions=1), clock(writer))
    writer.now_ms += 1000
    archive_table(writer.table, FEW, cleaning, clock(writer))
    assert replacing(writer) == []
    good(writer)


def test_what_was_completed_after_a_savepoints_write_stays(tmp_path: Path) -> None:
    """A restore would have to undo it, though it was requested before."""
    writer = Writer.without_metadata(tmp_path, COPY_ON_WRITE)
    writer.groups = 2
    writer.write([row(key, "p1", 1) for key in range(10, 16)])
    options = ClusteringOptions(max_commits=1, partitions=("p1",))
    plan = schedule_clustering(writer.table, options, clock(writer), force=True)
    assert plan is not None
    writer.now_ms += 1000
    later(writer, 1)
    create_savepoint(writer.table, None, "", "", clock(writer))
    cluster(writer.table, plan, clock(writer))
    writer.now_ms += 1000
    later(writer)
    leaving = plan_archive(writer.table, FEW, CLEAN, clock(writer))
    assert plan not in {i.time for i in leaving}
