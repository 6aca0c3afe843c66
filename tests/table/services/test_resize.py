"""Resizes of buckets: planned, executed, cut off anywhere, rolled back and undone; every record stays in its bucket."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tagstream.table.buckets.hashing_metadata import HASHING_FOLDER
from tagstream.table.errors import (
    InstantConflictError,
    PlanOverlapError,
    TableConfigMismatchError,
    UnsupportedTableError,
)
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.clustering import (
    begin_clustering,
    cluster,
    clustering_tasks,
    complete_clustering,
    rollback_clustering,
    unschedule_clustering,
)
from tagstream.table.services.clustering_options import ClusteringOptions, ResizeOptions
from tagstream.table.services.clustering_plan import schedule_clustering
from tagstream.table.services.failed_writes import sweep
from tagstream.table.services.plans import read_clustering
from tagstream.table.services.replaced_partitions import delete_partitions
from tagstream.table.services.restore import restore
from tagstream.table.services.rollback_completed import rollback_completed
from tagstream.table.services.savepoint import create_savepoint
from tagstream.table.storage.storage import Storage
from tests.support import rings
from tests.table.buckets.ring_writer import MERGE, SPLIT, RingWriter, sorted_by
from tests.table.history.crashes import cut_off_at_each_change
from tests.table.services.clusters import check, pending
from tests.table.services.compaction_compacting import clock, free_clock, rows
from tests.table.writer import row

pytestmark = pytest.mark.table_versions(6, 8, 9)


def planned(writer: RingWriter, options: ClusteringOptions) -> str:
    instant = schedule_clustering(writer.table, options, clock(writer), force=True)
    assert instant is not None
    return instant


def resized(writer: RingWriter, options: ClusteringOptions) -> str:
    instant = planned(writer, options)
    cluster(writer.table, instant, clock(writer), resize=options.resize)
    writer.learn()
    return instant


def times_of_rings(writer: RingWriter) -> set[str]:
    return {path.name.split(".")[0] for path in (writer.path / HASHING_FOLDER).rglob("*") if path.is_file()}


@pytest.mark.parametrize("metadata", [True, False])
def test_splits_and_merges_with_writes_between(version: int, metadata: bool, tmp_path: Path) -> None:
    writer = RingWriter.of(tmp_path, metadata=metadata).fill()
    resized(writer, SPLIT)
    writer.judge(1, {4})
    check(writer)
    writer.write([row(key, f"p{key % 3}", 10, "after") for key in range(0, 90, 2)], ["k4"])
    writer.judge(1, {4})
    resized(writer, sorted_by(SPLIT, "name"))
    writer.judge(2, {7, 8})
    resized(writer, MERGE)
    writer.judge(3, range(1, 4))
    check(writer)
    writer.write([row(key, f"p{key % 3}", 20) for key in range(5)])
    writer.judge(3, range(1, 4))
    check(writer)


def test_limits_keep_numbers_of_buckets(version: int, tmp_path: Path) -> None:
    writer = RingWriter.of(tmp_path).fill()
    never = replace(SPLIT.resize, most=None)
    assert schedule_clustering(writer.table, replace(SPLIT, resize=never), clock(writer), force=True) is None
    resized(writer, replace(SPLIT, resize=replace(SPLIT.resize, most=3)))
    writer.judge(1, {3})
    some = replace(MERGE, resize=replace(MERGE.resize, least=2))
    resized(writer, some)
    writer.judge(2, {2})
    assert schedule_clustering(writer.table, some, clock(writer), force=True) is None
    resized(writer, sorted_by(some, "name"))  # a rewrite of each bucket alone
    writer.judge(3, {2})
    assert schedule_clustering(writer.table, sorted_by(some, "name"), clock(writer), force=True) is None


def test_rows_are_sorted_in_their_buckets(version: int, tmp_path: Path) -> None:
    writer = RingWriter.of(tmp_path).fill()
    instant = resized(writer, sorted_by(SPLIT, "name", "id"))
    files = [path for path in writer.path.rglob(f"*_{instant}.parquet") if ".hoodie" not in path.parts]
    assert len(files) > 6
    for path in files:
        pairs = [tuple(r.values()) for r in pq.read_table(path, columns=["name", "id"], partitioning=None).to_pylist()]
        assert pairs == sorted(pairs, key=lambda pair: (pair[0] is not None, pair))


@pytest.mark.extended("every change of the store is the last one")
@pytest.mark.parametrize("options", [SPLIT, MERGE], ids=["split", "merge"])
def test_any_change_may_be_the_last(version: int, options: ClusteringOptions, tmp_path: Path) -> None:
    writer = RingWriter.of(tmp_path).fill()
    before = rows(writer.table)
    tick = free_clock()
    states, done = set(), False

    def work(cut: Storage) -> None:
        nonlocal done
        table = HoodieTable.open(cut)
        sweep(table)
        plans = pending(table)
        instant = plans[0].time if plans else None if done else schedule_clustering(table, options, tick, force=True)
        if instant is not None:
            cluster(table, instant, tick, resize=options.resize)

    def after(_: int) -> None:
        nonlocal done
        assert rows(writer.table) == before
        done = bool(writer.table.timeline().replaced)
        writer.judge(int(done), {1, 4} if done else {2})
        states.add(tuple(i.state for i in pending(writer.table)))

    assert cut_off_at_each_change(writer.table.storage, work, after) > 8
    assert len(states) == 3 and done
    writer.now_ms = tick()
    writer.learn()
    writer.write([row(3, "p1", 10)], ["k4"])
    writer.judge(1, {1, 4})
    check(writer)


def staged(writer: RingWriter, instant: str) -> None:
    """Everything but the completion, as of a process that died before it."""

    def dies(step: str) -> None:
        if step == "clustering_published":
            raise InterruptedError

    begin_clustering(writer.table, instant, clock(writer))
    statuses = [s for task in clustering_tasks(writer.table, instant, 1) for s in task.run()]
    with pytest.raises(InterruptedError):
        complete_clustering(writer.table, instant, statuses, clock(writer), reach=dies)


def test_a_rollback_removes_the_ring(version: int, tmp_path: Path) -> None:
    writer = RingWriter.of(tmp_path).fill()
    instant = planned(writer, SPLIT)
    staged(writer, instant)
    assert instant in times_of_rings(writer)
    writer.judge(0, {2})
    rollback_clustering(writer.table, instant, writer.instant())
    assert times_of_rings(writer) == {rings.FIRST}
    writer.write([row(key, f"p{key % 2}", 30) for key in range(9)])
    writer.judge(0, {2})
    check(writer)
    assert resized(writer, SPLIT) != instant
    writer.judge(1, {4})


def test_a_plan_that_gives_way_leaves_no_ring(version: int, tmp_path: Path) -> None:
    writer = RingWriter.of(tmp_path).fill()
    instant = planned(writer, SPLIT)
    begin_clustering(writer.table, instant, clock(writer))
    unschedule_clustering(writer.table, instant)
    assert times_of_rings(writer) == {rings.FIRST} and pending(writer.table) == []


def test_a_write_after_the_plan_keeps_it_from_completing(version: int, tmp_path: Path) -> None:
    writer = RingWriter.of(tmp_path).fill()
    instant = planned(writer, SPLIT)
    begin_clustering(writer.table, instant, clock(writer))
    statuses = [s for task in clustering_tasks(writer.table, instant, 1) for s in task.run()]
    writer.write([row(key, "p0", 30) for key in range(0, 40, 2)])
    with pytest.raises(PlanOverlapError, match="was written to one of its file groups"):
        complete_clustering(writer.table, instant, statuses, clock(writer))
    assert times_of_rings(writer) == {rings.FIRST}


def test_rows_that_hudi_wrote_to_both_rings_are_not_rolled_back(version: int, tmp_path: Path) -> None:
    """As by its SparkConsistentBucketDuplicateUpdateStrategy."""
    writer = RingWriter.of(tmp_path).fill()
    instant = planned(writer, SPLIT)
    _, children = read_clustering(writer.table, instant).children["p0"]
    (writer.path / f"p0/.{children[0].file_id}_{instant}.log.1_0-1-1").write_bytes(b"x")
    for back in (
        lambda: rollback_clustering(writer.table, instant, writer.instant()),
        lambda: unschedule_clustering(writer.table, instant),
    ):
        with pytest.raises(UnsupportedTableError, match="to one of its new buckets"):
            back()


def test_a_restore_and_a_rollback_undo_a_resize(version: int, tmp_path: Path) -> None:
    writer = RingWriter.of(tmp_path).fill()
    newest = str(writer.table.timeline().newest_completed)
    create_savepoint(writer.table, newest, "tests", "", clock(writer))
    before = rows(writer.table)
    resized(writer, SPLIT)
    rollback_completed(writer.table, str(writer.table.timeline().newest_completed), clock(writer))
    assert pending(writer.table) == [] and rows(writer.table) == before
    writer.judge(0, {2})
    resized(writer, SPLIT)
    writer.write([row(key, "p0", 30) for key in range(0, 40, 2)])
    restore(writer.table, newest, clock(writer))
    writer.table = writer.table.reload()
    assert rows(writer.table) == before and times_of_rings(writer) == {rings.FIRST}
    writer.judge(0, {2})


def test_other_hash_fields_are_found(version: int, tmp_path: Path) -> None:
    writer = RingWriter.of(tmp_path).fill()
    instant = planned(writer, SPLIT)
    begin_clustering(writer.table, instant, clock(writer))
    task = clustering_tasks(writer.table, instant, 1)[0]
    assert task.rings is not None
    shifted = replace(task.rings, before=task.rings.after)  # the ring that the keys do not lie in
    with pytest.raises(TableConfigMismatchError, match="does not belong to its bucket by id"):
        replace(task, rings=shifted).run()


def test_two_plans_do_not_resize_one_ring(version: int, tmp_path: Path) -> None:
    """The second plan leaves the partition out; one by another process that did not is refused."""
    writer = RingWriter.of(tmp_path).fill()
    one = replace(SPLIT, max_groups=1)
    instant = planned(writer, one)
    (group,) = read_clustering(writer.table, instant).groups
    second = planned(writer, SPLIT)
    assert group.partition_path not in read_clustering(writer.table, second).children
    cluster(writer.table, second, clock(writer))
    cluster(writer.table, instant, clock(writer))
    assert {ring.seq_no for ring in rings.rings(writer.path).values()} == {1}
    writer.learn()
    third = planned(writer, SPLIT)
    (writer.path / HASHING_FOLDER / f"{group.partition_path}/{third}.hashing_meta").unlink(missing_ok=True)
    for path in (writer.path / HASHING_FOLDER / group.partition_path).glob(f"{instant}.*"):
        path.unlink()
    with pytest.raises(InstantConflictError, match="after 1 resizes of partition .* which has had 0"):
        cluster(writer.table, third, clock(writer))


def test_partitions_with_rings_are_not_deleted(version: int, tmp_path: Path) -> None:
    writer = RingWriter.of(tmp_path).fill()
    with pytest.raises(UnsupportedTableError, match="would still name the deleted file groups"):
        delete_partitions(writer.table, ["p0"], clock(writer))


def test_options_that_contradict_the_table() -> None:
    limits = ResizeOptions(most=1, least=9).limits(4)
    assert (limits.least, limits.most) == (4, 4)
    limits = ResizeOptions(most=8, least=2, num_buckets=3, max_file_bytes=1000).limits(4)
    assert (limits.least, limits.most, limits.split_bytes, limits.merge_bytes) == (2, 8, 2000, 200)
