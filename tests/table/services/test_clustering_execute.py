"""A clustering: the same rows in fewer file groups, sorted, and the table is written on after it."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tagstream.table.errors import CorruptFileError, InstantConflictError
from tagstream.table.file_group.base_file import read_footer
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.schema.schema import FILE_NAME
from tagstream.table.services.clustering import begin_clustering, cluster, clustering_tasks, complete_clustering
from tagstream.table.services.clustering_plan import schedule_clustering
from tagstream.table.timeline.lease import write_heartbeat
from tests.support.hudi_rs import read_table
from tests.table.services.clusters import ALL, check, fill, learn, made, pending, plan_and_cluster
from tests.table.services.compaction_compacting import clock, groups, plan_and_compact, rows, slices_with_logs
from tests.table.writer import Writer, row

TYPES = [COPY_ON_WRITE, MERGE_ON_READ]


@pytest.mark.extended("more kinds of tables", first=("v6-COPY_ON_WRITE-False", "v9-MERGE_ON_READ-True"))
@pytest.mark.table_versions(6, 8, 9)
@pytest.mark.parametrize("metadata", [False, True])
@pytest.mark.parametrize("table_type", TYPES)
def test_rows_and_their_meta_columns_stay(version: int, table_type: str, metadata: bool, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, table_type, metadata))
    before, places = rows(writer.table), {*groups(writer.table).values()}
    result = plan_and_cluster(writer)
    assert rows(writer.table) == before
    now = {*groups(writer.table).values()}
    assert len(now) == 3 < len(places), "one group a partition"
    assert not now & places
    assert pending(writer.table) == []
    assert slices_with_logs(writer.table) == []
    assert {(p, f) for p, ids in result.replaced.items() for f in ids} >= places
    check(writer)
    storage = writer.table.storage
    for status in result.statuses:
        found = pq.read_table(storage.where(status.stat.path), partitioning=None)
        assert set(found[FILE_NAME].to_pylist()) == {status.stat.file_name}
        assert found.num_rows == status.stat.num_writes == status.stat.num_inserts
        assert read_footer(storage, status.stat.path).bloom is not None
    assert list(storage.walk_files(f".hoodie/.temp/{result.instant}")) == []
    told = writer.table.timeline().metadata(storage, result.completed)
    assert (told.operation, told.compacted, dict(told.replaced)) == ("CLUSTER", False, result.replaced)
    learn(writer)
    writer.write([row(key, f"p{key % 2}", 9) for key in range(0, 40, 5)], ["k3"])
    check(writer)
    if table_type == MERGE_ON_READ:
        plan_and_compact(writer)
        check(writer)
    assert read_table(writer.table.base_path).num_rows == len(writer.live)


@pytest.mark.parametrize("memory", [1, 1 << 30])
def test_rows_are_sorted_over_the_new_files(memory: int, tmp_path: Path) -> None:
    writer = Writer.create(tmp_path, MERGE_ON_READ, groups=3).with_options(inserts_to_base_files=True)
    writer.write([row(key, "p0", key * 7 % 50, "n" if key % 5 else None) for key in range(50)])
    before = rows(writer.table)
    tick = clock(writer)
    size = sum(s.size for s in writer.table.view().latest_merged_slices("p0"))
    options = replace(ALL, sort_columns=("name", "ver"), target_file_bytes=size * 2 // 5)
    instant = schedule_clustering(writer.table, options, tick, force=True)
    assert instant is not None
    result = cluster(writer.table, instant, tick, max_memory=memory)
    assert rows(writer.table) == before
    assert [s.stat.num_writes for s in result.statuses] == [16, 17, 17]
    files = [writer.table.storage.where(s.stat.path) for s in result.statuses]
    found = [(r["name"] or "", r["ver"]) for f in files for r in pq.read_table(f, partitioning=None).to_pylist()]
    assert found == sorted(found)
    check(writer)


def test_a_group_whose_rows_are_all_deleted_leaves_nothing(tmp_path: Path) -> None:
    writer = made(tmp_path, MERGE_ON_READ).with_options(inserts_to_base_files=True)
    writer.write([row(key, "p0", 1) for key in range(9)])
    writer.write([], [f"k{key}" for key in range(9)])
    result = plan_and_cluster(writer)
    assert result.statuses == ()
    check(writer)
    learn(writer)
    writer.write([row(1, "p0", 5)])
    check(writer)


def test_tasks_travel_and_may_be_done_twice(tmp_path: Path) -> None:
    writer = fill(made(tmp_path, MERGE_ON_READ))
    tick = clock(writer)
    instant = schedule_clustering(writer.table, ALL, tick, force=True)
    assert instant is not None
    begin_clustering(writer.table, instant, tick)
    tasks = [pickle.loads(pickle.dumps(task)) for task in clustering_tasks(writer.table, instant, 5)]  # noqa: S301
    assert all(task.weight > 0 for task in tasks)
    first = [task.run(0) for task in tasks]
    again = [task.run(1) for task in tasks]
    assert [s.stat.file_id for f in first for s in f] == [s.stat.file_id for f in again for s in f]
    complete_clustering(writer.table, instant, [s for found in again for s in found], tick)
    check(writer)
    with pytest.raises(InstantConflictError, match="already completed"):
        begin_clustering(writer.table, instant, tick)


@pytest.mark.table_versions(6, 9)
@pytest.mark.parametrize("step", ["before", "clustering_published"])
def test_who_comes_second_leaves_nothing(version: int, step: str, tmp_path: Path) -> None:
    """Two executions of one plan, which a lease prevents: the files of the later one go."""
    writer = fill(made(tmp_path, MERGE_ON_READ))
    tick = clock(writer)
    instant = schedule_clustering(writer.table, ALL, tick, force=True)
    assert instant is not None
    begin_clustering(writer.table, instant, tick)
    first, second = (
        [status for task in clustering_tasks(writer.table, instant, run) for status in task.run()] for run in (1, 2)
    )

    def other(now: str) -> None:
        if now == step:
            complete_clustering(writer.table, instant, second, tick)

    other("before")
    with pytest.raises(InstantConflictError):
        complete_clustering(writer.table, instant, first, tick, reach=other)
    storage = writer.table.storage
    assert not any(storage.exists(status.stat.path) for status in first)
    assert all(storage.exists(status.stat.path) for status in second)
    assert list(storage.walk_files(".hoodie/.temp")) == []
    check(writer)


def test_one_that_another_process_carries_out_is_left_alone(tmp_path: Path) -> None:
    writer = fill(made(tmp_path, COPY_ON_WRITE))
    tick = clock(writer)
    instant = schedule_clustering(writer.table, ALL, tick, force=True)
    assert instant is not None
    write_heartbeat(writer.table.storage, instant)
    now = int(max(e.mtime_ms for e in writer.table.storage.list(".hoodie/.heartbeat")))
    with pytest.raises(InstantConflictError, match="another process"):
        begin_clustering(writer.table, instant, lambda: now)


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    writer = fill(made(tmp_path, COPY_ON_WRITE))
    tick = clock(writer)
    instant = schedule_clustering(writer.table, ALL, tick, force=True)
    assert instant is not None
    lost = next(s.base_path for s in writer.table.view().latest_merged_slices("p0") if s.base_path)
    writer.table.storage.delete(lost)
    with pytest.raises(CorruptFileError, match=lost.rsplit("/", 1)[-1]):
        cluster(writer.table, instant, tick)
    assert pending(writer.table) != []
