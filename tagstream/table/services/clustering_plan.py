"""A clustering's plan: when one is due, and which file slices it merges into how many new file groups.

Until the plan is executed or rolled back nobody may write to the file groups that it names. Slices are chosen by
Hudi's size-based strategy (PartitionAwareClusteringPlanStrategy, SparkSizeBasedClusteringPlanStrategy and
ClusteringPlanPartitionFilter of Hudi 1.2.0).

A plan's extra metadata has the time up to which it has seen all writes, its options, and the partitions with more
slices to merge than the plan could include. The other partitions have nothing left to merge. So the next plan checks
only partitions with later writes. All partitions are checked without such a plan, with other options, or if a later
write has been archived.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from hashlib import blake2b
from itertools import count
from typing import Any

from tagstream.table.buckets.hashing_metadata import is_consistent, load_ring
from tagstream.table.buckets.resize import Resize, plan_resizes
from tagstream.table.errors import UnsupportedTableError
from tagstream.table.file_group.fs_view import FileSlice, FileSystemView
from tagstream.table.file_group.names import instant_from_ms, join, new_file_id
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.read.slice_reader import check_mergeable
from tagstream.table.read.stored_keys import check_bucketed
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.services.clustering_options import ClusteringOptions, PartitionFilter
from tagstream.table.services.planned import table_schema_json
from tagstream.table.services.plans import (
    EXECUTION,
    PLANNED_BY,
    PLANNER,
    RESIZE_EXECUTION,
    SORT_COLUMNS,
    metrics_of,
    newest_recorded,
    pending_action,
    planned_otherwise,
    requested_clustering,
    taken_before,
    write_plan,
)
from tagstream.table.steps import Step
from tagstream.table.timeline.instant import CLUSTERING, REPLACE_COMMIT, Instant
from tagstream.table.timeline.operation import WriteOperationType
from tagstream.table.timeline.timeline import Timeline

_LOOKED = "tagstream.clustering.looked"
# The choice of partitions of these depends on the time.
_BY_TIME = (PartitionFilter.RECENT_DAYS, PartitionFilter.DAY_ROLLING)
# Options for the amount and time of the work. They do not change which slices can be merged.
_OF_NO_ACCOUNT = ("max_commits", "max_groups", "max_memory")
SORTED_BY = SORT_COLUMNS  # in the extra metadata of a clustering of this project


@dataclass(frozen=True)
class Joined:
    """Slices of one partition to merge into ``outputs`` new file groups."""

    slices: tuple[FileSlice, ...]
    outputs: int

    @property
    def size(self) -> int:
        """Bytes by which slices are grouped: those of base files, and of the logs of a slice without one."""
        return sum(map(size_of, self.slices))


def size_of(file_slice: FileSlice) -> int:
    """Bytes of a slice as the strategy counts them: log files count only if there is no base file."""
    return file_slice.base_file.size if file_slice.base_file else file_slice.size


def choose_partitions(partitions: Sequence[str], options: ClusteringOptions, hour: int) -> list[str]:
    """The partitions to check, the newest first if the filter is by days. ``hour`` of the day, 0 to 23."""
    found = list(partitions)
    if options.partition_regex is not None:
        wanted = re.compile(options.partition_regex)
        found = [path for path in found if wanted.fullmatch(path)]
    if options.partitions:
        found = [path for path in found if path in options.partitions]
    match options.filter:
        case PartitionFilter.RECENT_DAYS:
            newest = sorted(found, reverse=True)
            return newest[options.skip_days : options.skip_days + options.lookback_days]
        case PartitionFilter.SELECTED_PARTITIONS:
            return sorted(
                path for path in found if (options.first_partition or "") <= path <= (options.last_partition or "")
            )
        case PartitionFilter.DAY_ROLLING:
            ordered = sorted(found)
            return [path for number, path in enumerate(ordered) if number % 24 == hour]
    return sorted(found)


def join_slices(slices: Iterable[FileSlice], options: ClusteringOptions, settled: frozenset[str]) -> list[Joined]:
    """The slices of one partition, the largest first, in groups up to the limit.

    ``settled``: file ids that a clustering by the same sort columns has written, without later writes. Merging several
    of them can help, rewriting a single one cannot.
    """
    small = [each for each in slices if (each.base_file.size if each.base_file else 0) < options.small_file_limit]
    groups: list[list[FileSlice]] = []
    size = 0
    for each in sorted(small, key=lambda found: (-size_of(found), found.file_id)):
        if not groups or (size >= options.max_group_bytes or size + size_of(each) > options.max_group_bytes):
            groups.append([])
            size = 0
        groups[-1].append(each)
        size += size_of(each)
    found = []
    for group in groups:
        if len(group) == 1 and (not options.single_groups or group[0].file_id in settled):
            continue
        joined = Joined(tuple(group), 1)
        found.append(Joined(joined.slices, max(1, -(-joined.size // options.target_file_bytes))))
    return found


@dataclass(frozen=True)
class Looked:
    """``since``: all writes of an earlier time were seen. ``options``: digest. ``left``: partitions with more to
    merge."""

    since: str
    options: str
    left: frozenset[str] = frozenset()

    @staticmethod
    def at(timeline: Timeline, instant: str, options: ClusteringOptions, left: Iterable[str] = ()) -> Looked | None:
        """The state of a timeline for a plan of ``instant``; None with options that depend on the time."""
        if options.filter in _BY_TIME:
            return None
        return Looked(taken_before(timeline, instant), _digest(options), frozenset(left))

    def to_extra(self) -> dict[str, str]:
        """For a plan's extra metadata."""
        return {_LOOKED: json.dumps({"since": self.since, "options": self.options, "left": sorted(self.left)})}


def partitions_to_look_at(
    table: HoodieTable, timeline: Timeline, options: ClusteringOptions, remembered: Looked | None = None
) -> frozenset[str] | None:
    """Partition paths; None: all. ``remembered``: an earlier check without a plan, which is not on the timeline."""
    if options.filter in _BY_TIME:
        return None
    recorded = [
        look
        for look in (_recorded(table, timeline), remembered)
        if look is not None and look.options == _digest(options)
    ]
    if not recorded:
        return None
    newest = max(recorded, key=lambda look: look.since)  # of two the first one, whose plan has left slices
    if timeline.start is None or timeline.start > newest.since:
        return None
    found = set(newest.left)
    for instant in timeline.completed_writes:
        if instant.time >= newest.since:
            metadata = timeline.metadata(table.storage, instant)
            found |= {stat.partition_path for stat in metadata.all_stats()} | set(metadata.replaced or {})
    return frozenset(found)


def _recorded(table: HoodieTable, timeline: Timeline) -> Looked | None:
    """The record of the newest plan that has one."""
    plans = (i for i in timeline.instants if i.action in (CLUSTERING, REPLACE_COMMIT))
    recorded = newest_recorded(table, plans, pending_action(table), _LOOKED)
    if recorded is None:
        return None
    found = json.loads(recorded)
    return Looked(found["since"], found["options"], frozenset(found["left"]))


def _digest(options: ClusteringOptions) -> str:
    recorded = {name: value for name, value in asdict(options).items() if name not in _OF_NO_ACCOUNT}
    return blake2b(json.dumps(recorded, sort_keys=True).encode(), digest_size=8).hexdigest()


def is_due(table: HoodieTable, timeline: Timeline, max_commits: int) -> bool:
    """Whether this number of writes was completed since the last clustering; False while one is pending."""
    if timeline.pending_clusterings:
        return False
    last = last_clustering(table, timeline)
    since = [i for i in timeline.completed_writes if last is None or i.time > last.time]
    return len(since) >= max_commits


def last_clustering(table: HoodieTable, timeline: Timeline) -> Instant | None:
    """The newest completed clustering on the active timeline."""
    for instant in reversed(timeline.completed_writes):
        if (
            instant.action == REPLACE_COMMIT
            and timeline.metadata(table.storage, instant).operation == WriteOperationType.CLUSTER
        ):
            return instant
    return None


def settled_groups(table: HoodieTable, timeline: Timeline, sort_columns: tuple[str, ...]) -> frozenset[str]:
    """File ids that clusterings by these columns have written, without a later write on the active timeline."""
    touched: set[str] = set()
    found: set[str] = set()
    for instant in reversed(timeline.completed_writes):
        metadata = timeline.metadata(table.storage, instant)
        ids = {stat.file_id for stat in metadata.all_stats()}
        if metadata.operation == WriteOperationType.CLUSTER and metadata.extra.get(SORTED_BY, "") == ",".join(
            sort_columns
        ):
            found |= ids - touched
        touched |= ids
    return frozenset(found)


@dataclass
class Memory:
    """A process's record of its last check of a table without work."""

    looked: Looked | None = None


def schedule_clustering(
    table: HoodieTable,
    options: ClusteringOptions,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
    force: bool = False,
    look_at_all: bool = False,
    memory: Memory | None = None,
) -> str | None:
    """Write a plan to the timeline if one is due; returns its instant, None if there is nothing to do.

    ``check`` is called before the plan is written, and its error prevents the plan; ``force``: after any number of
    writes. The caller has the writer lease. No plan is made while a write is pending: the write could be to a file
    group of the plan. ``look_at_all``: check all partitions; ``memory``: the caller's record of checks without work.
    UnsupportedTableError for a table whose records this version cannot merge.
    """
    check_mergeable(table)
    timeline = table.timeline()
    if timeline.pending_writes or (not force and not is_due(table, timeline, options.max_commits)):
        return None
    now_ms = clock_ms()
    memory = memory or Memory()
    instant = fresh_times(table, MetadataWriter.open(table), lambda: now_ms)()
    timeline = table.timeline()  # again: writes that others have completed before the instant must be in the plan
    if timeline.pending_writes:
        return None
    only = None if look_at_all else partitions_to_look_at(table, timeline, options, memory.looked)
    plan = plan_clustering(table, timeline, table.view(timeline), options, now_ms, instant, only)
    if plan is None:
        memory.looked = Looked.at(timeline, instant, options)
        return None
    check()
    write_plan(table, requested_clustering(table, instant), "HoodieRequestedReplaceMetadata", plan)
    reach(Step.CLUSTERING_REQUESTED)
    return instant


def plan_clustering(
    table: HoodieTable,
    timeline: Timeline,
    view: FileSystemView,
    options: ClusteringOptions,
    now_ms: int,
    instant: str,
    only: frozenset[str] | None = None,
) -> dict[str, Any] | None:
    """The plan of ``instant`` as its Avro record; None if there is nothing to merge. ``only``: partitions, None: all.

    UnsupportedTableError for sort columns that the table lacks, and for a table with simple buckets, whose file ids name
    them. The buckets of consistent hashing are resized.
    """
    resizes = is_consistent(table.storage)
    if not resizes:
        check_bucketed(table, None)
    _check_columns(table, timeline, options)
    taken = planned_otherwise(table, timeline)
    settled = settled_groups(table, timeline, options.sort_columns)
    hour = datetime.strptime(instant_from_ms(now_ms, table.config.timezone_utc)[:10], "%Y%m%d%H").hour
    partitions = choose_partitions(view.partitions() if only is None else sorted(only), options, hour)
    view.look_up(partitions)
    joined: list[Joined | Resize] = []
    for partition in partitions:
        slices = [
            each
            for each in view.latest_merged_slices(partition)
            if (partition, each.file_id) not in taken and _has_rows(each)
        ]
        if resizes:
            joined += _resizes(table, timeline, partition, slices, options, settled, instant)
        else:
            joined += join_slices(slices, options, settled)
    if not joined:
        return None
    left = {each.slices[0].partition_path for each in joined[options.max_groups :]}
    looked = Looked.at(timeline, instant, options, left)
    params = {SORT_COLUMNS: ",".join(options.sort_columns)} if options.sort_columns else {}
    return {
        "operationType": WriteOperationType.CLUSTER,
        "clusteringPlan": {
            "inputGroups": [_group(table, each, options) for each in joined[: options.max_groups]],
            "strategy": {
                "strategyClassName": RESIZE_EXECUTION if resizes else EXECUTION,
                "strategyParams": params,
                "version": 1,
            },
            "extraMetadata": {},
            "version": 1,
            "preserveHoodieMetadata": True,
            "missingSchedulePartitions": [],
        },
        "extraMetadata": {PLANNED_BY: PLANNER, **(looked.to_extra() if looked is not None else {})},
        "version": 1,
    }


def _has_rows(file_slice: FileSlice) -> bool:
    return file_slice.base_file is not None or bool(file_slice.log_files)


def _resizes(
    table: HoodieTable,
    timeline: Timeline,
    partition: str,
    slices: Sequence[FileSlice],
    options: ClusteringOptions,
    settled: frozenset[str],
    instant: str,
) -> list[Resize]:
    """The resizes of one partition; none while another plan resizes it, since each begins with the present ring."""
    now = load_ring(table, timeline, partition, marks=False)
    if now is None or any(path == partition for path, _ in timeline.pending_clusterings):
        return []
    numbers = count()

    def new_prefix() -> str:
        return new_file_id("bucket", instant, partition, next(numbers)).removesuffix("-0")

    def sorted_too(each: FileSlice) -> bool:
        return bool(options.sort_columns) and each.file_id not in settled

    return plan_resizes(now, slices, options.resize.limits(now.num_buckets), new_prefix, sorted_too)


def _group(table: HoodieTable, joined: Joined | Resize, options: ClusteringOptions) -> dict[str, Any]:
    metrics: dict[str, float] = {}
    for each in joined.slices:
        for name, value in metrics_of(each, options.target_file_bytes).items():
            metrics[name] = metrics.get(name, 0.0) + value
    return {
        "slices": [_slice(table, each) for each in joined.slices],
        "metrics": metrics,
        "numOutputFileGroups": joined.outputs,
        "extraMetadata": joined.to_extra() if isinstance(joined, Resize) else None,
        "version": 1,
    }


def _slice(table: HoodieTable, found: FileSlice) -> dict[str, Any]:
    where, partition = table.storage.where, found.partition_path
    return {
        "dataFilePath": where(join(partition, found.base_file.name)) if found.base_file else "",
        "deltaFilePaths": [where(path) for path in reversed(found.log_paths)],
        "fileId": found.file_id,
        "partitionPath": partition,
        "bootstrapFilePath": "",
        "version": 1,
    }


def _check_columns(table: HoodieTable, timeline: Timeline, options: ClusteringOptions) -> None:
    if not options.sort_columns:
        return
    names = avro_to_arrow(table_schema_json(table, timeline)).names
    for name in options.sort_columns:
        if name not in names:
            raise UnsupportedTableError(
                f"{SORT_COLUMNS} names {name}, which table {table.config.name} at {table.base_path} does not have; it "
                f"has "
                f"{', '.join(names)}"
            )
