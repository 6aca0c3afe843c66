"""A clustering that was planned, begun or almost completed is taken back: its file groups are written to again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tagstream.table.errors import InstantConflictError, PlanOverlapError
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.clustering import (
    begin_clustering,
    cluster,
    clustering_tasks,
    complete_clustering,
    rollback_clustering,
    unschedule_clustering,
)
from tagstream.table.services.clustering_plan import schedule_clustering
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import REPLACE_COMMIT
from tagstream.table.timeline.operation import WriteOperationType
from tagstream.table.write import commit
from tests.support.hudi_rs import read_table
from tests.table.services.clusters import ALL, check, fill, made, pending, plan_and_cluster
from tests.table.services.compaction_compacting import clock, rows
from tests.table.writer import CrashError, row

STEPS = (
    "clustering_inflight", "clustering_files", "clustering_published", "metadata_begun", "metadata_files",
    "metadata_completed",
)  # fmt: skip


@pytest.mark.extended(
    "more steps and kinds of tables",
    first=("v6-None", "v9-metadata_completed"),
)
@pytest.mark.table_versions(6, 8, 9)
@pytest.mark.parametrize("step", [None, *STEPS])
def test_it_is_taken_back(version: int, step: str | None, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, MERGE_ON_READ, metadata=True))
    before, tick = rows(writer.table), clock(writer)
    instant = schedule_clustering(writer.table, ALL, tick, force=True)
    assert instant is not None

    def die(at: str) -> None:
        if at == step:
            raise CrashError

    if step is not None:
        with pytest.raises(CrashError):
            cluster(writer.table, instant, tick, reach=die)
    result = rollback_clustering(writer.table, instant, writer.instant())
    assert bool(result.deleted) is (step in STEPS[2:])
    assert pending(writer.table) == []
    assert rows(writer.table) == before
    check(writer)
    assert list(writer.table.storage.walk_files(f".hoodie/.temp/{instant}")) == []
    writer.write([row(key, f"p{key % 2}", 9) for key in range(0, 40, 5)], ["k3"])
    check(writer)
    if version == 6:  # from version 8 on hudi-rs does not see file groups of logs alone
        assert read_table(writer.table.base_path).num_rows == len(writer.live)
    with pytest.raises(InstantConflictError, match="no clustering was planned"):
        rollback_clustering(writer.table, instant, writer.instant())


def test_a_completed_one_stays(tmp_path: Path) -> None:
    writer = fill(made(tmp_path, MERGE_ON_READ))
    done = plan_and_cluster(writer)
    with pytest.raises(InstantConflictError, match="not a pending clustering"):
        rollback_clustering(writer.table, done.instant, writer.instant())


@pytest.mark.extended(
    "more kinds of tables", first=("v6-True-clustering_files", "v9-False-clustering_inflight", "v9-True-None")
)
@pytest.mark.table_versions(6, 8, 9)
@pytest.mark.parametrize("step", [None, "clustering_inflight", "clustering_files"])
@pytest.mark.parametrize("cut", [False, True])
def test_a_plan_is_removed_before_anything_is_published(step: str | None, cut: bool, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, MERGE_ON_READ, metadata=True))
    before, tick = rows(writer.table), clock(writer)
    instant = schedule_clustering(writer.table, ALL, tick, force=True)
    assert instant is not None

    def die(at: str) -> None:
        if at == step or (cut and at == "clustering_stopped"):
            raise CrashError

    if step is not None:
        with pytest.raises(CrashError):
            cluster(writer.table, instant, tick, reach=die)
    if cut:
        with pytest.raises(CrashError):
            unschedule_clustering(writer.table, instant, reach=die)
        assert instant in writer.table.timeline().pending_clusterings.values()
        assert [i.state.name for i in pending(writer.table)] == ["REQUESTED"]
    unschedule_clustering(writer.table, instant)
    assert writer.table.timeline().find(instant) is None
    assert rows(writer.table) == before
    assert list(writer.table.storage.walk_files(f".hoodie/.temp/{instant}")) == []
    writer.write([row(key, f"p{key % 2}", 9) for key in range(0, 40, 5)], ["k3"])
    check(writer)


def test_what_was_published_is_not_forgotten(tmp_path: Path) -> None:
    writer = fill(made(tmp_path, MERGE_ON_READ))
    tick = clock(writer)
    instant = schedule_clustering(writer.table, ALL, tick, force=True)
    assert instant is not None

    def die(at: str) -> None:
        if at == "clustering_published":
            raise CrashError

    with pytest.raises(CrashError):
        cluster(writer.table, instant, tick, reach=die)
    with pytest.raises(InstantConflictError, match="must be rolled back"):
        unschedule_clustering(writer.table, instant)
    rollback_clustering(writer.table, instant, writer.instant())
    check(writer)


@pytest.mark.table_versions(6, 9)
def test_a_replacement_of_its_file_groups_stops_it(version: int, tmp_path: Path) -> None:
    """The replaced rows would come back with the clustering's file groups."""
    writer = fill(made(tmp_path, MERGE_ON_READ))
    tick = clock(writer)
    instant = schedule_clustering(writer.table, ALL, tick, force=True)
    assert instant is not None
    begin_clustering(writer.table, instant, tick)
    statuses = [status for task in clustering_tasks(writer.table, instant, 1) for status in task.run()]
    by = writer.instant()
    replaced: dict[str, tuple[str, ...]] = {}
    for partition, file_id in sorted(writer.table.timeline().pending_clusterings):
        if partition == "p1":
            replaced[partition] = (*replaced.get(partition, ()), file_id)
    metadata = CommitMetadata(operation=WriteOperationType.INSERT_OVERWRITE, replaced=replaced)
    commit.request(writer.table, by, REPLACE_COMMIT)
    commit.inflight(writer.table, by, REPLACE_COMMIT, CommitMetadata(operation=WriteOperationType.INSERT_OVERWRITE))
    commit.complete(writer.table, by, REPLACE_COMMIT, metadata)
    before = rows(writer.table)
    with pytest.raises(PlanOverlapError, match=f"replaced by {by}"):
        complete_clustering(writer.table, instant, statuses, tick)
    assert rows(writer.table) == before
    unschedule_clustering(writer.table, instant)
    assert pending(writer.table) == []


@pytest.mark.extended("more kinds of tables", first=("v6-COPY_ON_WRITE", "v9-MERGE_ON_READ"))
@pytest.mark.table_versions(6, 9)
@pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
def test_a_write_to_its_file_groups_stops_it(version: int, table_type: str, tmp_path: Path) -> None:
    """Another writer did not heed the plan. The clustering would lose its rows, so it is not completed."""
    writer = fill(made(tmp_path, table_type))
    tick = clock(writer)
    instant = schedule_clustering(writer.table, ALL, tick, force=True)
    assert instant is not None
    begin_clustering(writer.table, instant, tick)
    statuses = [status for task in clustering_tasks(writer.table, instant, 1) for status in task.run()]
    writer.write([row(key, f"p{key % 2}", 9) for key in range(0, 40, 5)], ["k3"])
    before = rows(writer.table)
    with pytest.raises(PlanOverlapError, match=f"--take-back {instant}"):
        complete_clustering(writer.table, instant, statuses, tick)
    assert rows(writer.table) == before
    unschedule_clustering(writer.table, instant)
    assert pending(writer.table) == []
    plan_and_cluster(writer)
    check(writer)
