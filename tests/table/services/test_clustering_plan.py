"""Which slices a clustering takes, what it joins, and when it is due."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.table.errors import ConfigError, UnsupportedTableError
from tagstream.table.file_group.fs_view import BaseFile, FileSlice
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.services.archiving import archive_table
from tagstream.table.services.cleaning import clean
from tagstream.table.services.clustering_options import ClusteringOptions, PartitionFilter, check_plan_strategy
from tagstream.table.services.clustering_plan import (
    Memory,
    choose_partitions,
    join_slices,
    partitions_to_look_at,
    schedule_clustering,
)
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.options import ArchiveOptions, CleanOptions
from tagstream.table.services.plans import read_clustering
from tests.table.reference import unpack
from tests.table.services.clusters import ALL, check, fill, learn, made, pending, plan_and_cluster
from tests.table.services.compaction_compacting import ALL as COMPACT_ALL
from tests.table.services.compaction_compacting import clock, free_clock
from tests.table.writer import Writer, row

NOTHING: frozenset[str] = frozenset()


def slices(*sizes: int) -> list[FileSlice]:
    return [FileSlice("p", f"f{n}", "1", BaseFile(f"f{n}", f"f{n}", "1", size)) for n, size in enumerate(sizes)]


def joined(options: ClusteringOptions, *sizes: int, settled: frozenset[str] = NOTHING) -> list[tuple[list[int], int]]:
    found = join_slices(slices(*sizes), options, settled)
    return [([each.size for each in group.slices], group.outputs) for group in found]


def test_small_slices_are_joined_until_a_group_is_full() -> None:
    options = ClusteringOptions(small_file_limit=100, max_group_bytes=120, target_file_bytes=50)
    found = joined(options, 10, 90, 100, 40, 30)
    assert [sizes for sizes, _ in found] == [[90], [40, 30, 10]]
    assert [outputs for _, outputs in found] == [2, 2]


def test_a_slice_alone_is_rewritten_once() -> None:
    options = ClusteringOptions()
    assert joined(options, 10) == [([10], 1)]
    assert joined(options, 10, settled=frozenset({"f0"})) == []
    assert joined(replace(options, single_groups=False), 10) == []
    assert joined(options, 10, 20, settled=frozenset({"f0", "f1"})) == [([20, 10], 1)]


def test_partitions() -> None:
    days = [f"2026-11-{day:02}" for day in range(1, 31)]
    assert choose_partitions(days, ClusteringOptions(), 5) == days
    recent = ClusteringOptions(filter=PartitionFilter.RECENT_DAYS, lookback_days=3, skip_days=1)
    assert choose_partitions(days, recent, 5) == ["2026-11-29", "2026-11-28", "2026-11-27"]
    named = ClusteringOptions(
        filter=PartitionFilter.SELECTED_PARTITIONS, first_partition="2026-11-05", last_partition="2026-11-06"
    )
    assert choose_partitions(days, named, 5) == ["2026-11-05", "2026-11-06"]
    assert choose_partitions(days, ClusteringOptions(filter=PartitionFilter.DAY_ROLLING), 5) == [days[5], days[29]]
    assert choose_partitions(days, ClusteringOptions(partition_regex="2026-11-0.*"), 5) == days[:9]
    assert choose_partitions(days, ClusteringOptions(partitions=("2026-11-07", "x")), 5) == ["2026-11-07"]


def test_what_cannot_be_used_is_named() -> None:
    with pytest.raises(ConfigError, match="begin.partition"):
        ClusteringOptions(filter=PartitionFilter.SELECTED_PARTITIONS)
    with pytest.raises(ConfigError, match="regular expression"):
        ClusteringOptions(partition_regex="(")
    with pytest.raises(ConfigError, match="the least is 1"):
        ClusteringOptions(max_groups=0)
    with pytest.raises(ConfigError, match="SparkSingleFileSortPlanStrategy is not done"):
        check_plan_strategy("org.apache.hudi.client.clustering.plan.strategy.SparkSingleFileSortPlanStrategy")
    check_plan_strategy("org.apache.hudi.client.clustering.plan.strategy.SparkSizeBasedClusteringPlanStrategy")


@pytest.mark.table_versions(6, 9)
def test_it_is_due_after_some_writes(version: int, tmp_path: Path) -> None:
    writer = made(tmp_path, COPY_ON_WRITE)
    tick, options = clock(writer), replace(ALL, max_commits=2)
    writer.write([row(key, "p0", 1) for key in range(9)])
    assert schedule_clustering(writer.table, options, tick) is None
    writer.write([row(key, "p0", 2) for key in range(9)])
    assert schedule_clustering(writer.table, options, tick) is not None
    assert schedule_clustering(writer.table, options, tick) is None, "one is pending"


@pytest.mark.table_versions(6, 9)
def test_nothing_is_done_again_that_gains_nothing(version: int, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, MERGE_ON_READ))
    plan_and_cluster(writer)
    assert schedule_clustering(writer.table, ALL, clock(writer), force=True) is None
    by_name = replace(ALL, sort_columns=("name",))
    plan_and_cluster(writer, by_name)
    assert schedule_clustering(writer.table, by_name, clock(writer), force=True) is None
    learn(writer)
    writer.write([row(0, "p0", 50)])
    result = plan_and_cluster(writer, by_name)
    assert {*result.replaced} == {"p0"}


def looked_at(writer: Writer, options: ClusteringOptions = ALL) -> frozenset[str] | None:
    """The partitions that the next plan looks at; None: all."""
    return partitions_to_look_at(writer.table, writer.table.timeline(), options)


@pytest.mark.table_versions(6, 9)
def test_the_next_plan_looks_where_something_was_written_since(version: int, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, MERGE_ON_READ))
    assert looked_at(writer) is None
    plan_and_cluster(writer)
    learn(writer)
    assert looked_at(writer) == {"p0", "p1", "p2"}  # the clustering's own files are new, too
    plan_and_cluster(writer, sort_columns=("name",))  # other options say nothing about these
    learn(writer)
    assert looked_at(writer) is None
    again = replace(ALL, sort_columns=("ver",))
    plan_and_cluster(writer, again)
    learn(writer)
    tick, memory = clock(writer), Memory()
    assert schedule_clustering(writer.table, again, tick, force=True, memory=memory) is None
    assert partitions_to_look_at(writer.table, writer.table.timeline(), again, memory.looked) == frozenset()
    writer.write([row(3, "p1", 60)])
    assert partitions_to_look_at(writer.table, writer.table.timeline(), again, memory.looked) == {"p1"}
    instant = schedule_clustering(writer.table, again, tick, force=True, memory=memory)
    assert instant is not None
    assert {g.partition_path for g in read_clustering(writer.table, instant).groups} == {"p1"}
    assert looked_at(writer, replace(again, filter=PartitionFilter.RECENT_DAYS)) is None


@pytest.mark.table_versions(6, 9)
def test_what_a_plan_has_no_room_for_is_looked_at_again(version: int, tmp_path: Path) -> None:
    writer, options = fill(made(tmp_path, COPY_ON_WRITE)), replace(ALL, max_groups=1)
    found = []
    for expected in (None, {"p0", "p1", "p2"}, {"p1", "p2"}):  # what is left, and the files of the last clustering
        assert looked_at(writer, options) == expected
        found += plan_and_cluster(writer, options).replaced
        learn(writer)
    assert sorted(found) == ["p0", "p1", "p2"]
    assert schedule_clustering(writer.table, options, clock(writer), force=True) is None
    check(writer)


def test_a_write_that_was_archived_unseen_is_looked_for_everywhere(tmp_path: Path) -> None:
    writer = fill(made(tmp_path, COPY_ON_WRITE))
    plan_and_cluster(writer)
    learn(writer)
    assert looked_at(writer) is not None
    for n in range(3):
        writer.write([row(3, "p1", 60 + n)])
    tick, cleaning = clock(writer), CleanOptions(commits=1)
    assert clean(writer.table, cleaning, tick) is not None
    assert archive_table(writer.table, ArchiveOptions(min_commits=2, max_commits=3), cleaning, tick) is not None
    assert looked_at(writer) is None


@pytest.mark.table_versions(6, 9)
def test_a_group_of_another_plan_is_left_out(version: int, tmp_path: Path) -> None:
    writer = fill(made(tmp_path, MERGE_ON_READ))
    tick = clock(writer)
    assert schedule_compaction(writer.table, COMPACT_ALL, tick, force=True) is not None
    taken = {*writer.table.timeline().pending_compactions}
    writer.with_options(inserts_to_base_files=True).write([row(key, "p5", 1) for key in range(70, 80)])
    instant = schedule_clustering(writer.table, ALL, tick, force=True)
    assert instant is not None
    plan = read_clustering(writer.table, instant)
    assert taken
    assert not {(g.partition_path, f) for g in plan.groups for f in g.file_ids} & taken
    assert schedule_compaction(writer.table, COMPACT_ALL, tick, force=True) is None
    assert len(pending(writer.table)) == 1


def test_columns_that_are_not_there_are_named(tmp_path: Path) -> None:
    writer = fill(made(tmp_path, COPY_ON_WRITE))
    with pytest.raises(UnsupportedTableError, match="nosuch"):
        schedule_clustering(writer.table, replace(ALL, sort_columns=("nosuch",)), clock(writer), force=True)
    assert pending(writer.table) == []


def test_a_bucketed_table_is_refused(tmp_path: Path) -> None:
    table = HoodieTable.open(str(unpack("mor_v6_bucket", tmp_path)))
    with pytest.raises(UnsupportedTableError, match="bucket"):
        schedule_clustering(table, ALL, free_clock(), force=True)
