"""A clustering's plan: which slices are joined into how many new file groups; and the file that says so.

From here until it is carried out or taken back nobody may write to the file groups that the plan names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tagstream.table.errors import InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.file_group.names import instant_from_ms
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.read.buckets import check_bucketed
from tagstream.table.read.slice_reader import check_mergeable
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.services.clustering.candidates import Joined, choose_partitions, join_slices
from tagstream.table.services.clustering.groups import EXECUTION, SORT_COLUMNS, plan_path
from tagstream.table.services.clustering.looked import Looked, partitions_to_look_at
from tagstream.table.services.clustering.options import ClusteringOptions
from tagstream.table.services.clustering.trigger import is_due, settled_groups
from tagstream.table.services.compaction.candidates import planned_otherwise
from tagstream.table.services.compaction.execute import table_schema_json
from tagstream.table.services.compaction.plan import PLANNED_BY, PLANNER
from tagstream.table.services.compaction.strategy import metrics_of
from tagstream.table.timeline.avro_schemas import parsed_schema
from tagstream.table.timeline.avro_timeline import write_parsed
from tagstream.table.timeline.plans import CLUSTER
from tagstream.table.timeline.timeline import Timeline


@dataclass
class Memory:
    """What a process knows of its last look at a table that found nothing to do."""

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
    """Put a plan on the timeline if it is time for one; returns its instant, None where nothing is to be done.

    ``check`` is called before the plan is written, and what it raises keeps it from being; ``force``: however few writes
    there were since the last one. The caller holds the writer lease. No plan is made while a write is pending: it could be
    of a file group that the plan takes. ``look_at_all``: whatever an earlier plan has seen;
    ``memory``: what the caller keeps of looks that found nothing to do.
    UnsupportedTableError for a table whose records cannot be merged here.
    """
    check_mergeable(table)
    timeline = table.timeline()
    if timeline.pending_writes or (not force and not is_due(table, timeline, options.max_commits)):
        return None
    now_ms = clock_ms()
    memory = memory or Memory()
    instant = fresh_times(table, MetadataWriter.open(table), lambda: now_ms)()
    timeline = table.timeline()  # again: what others have completed before the instant must be in the plan
    if timeline.pending_writes:
        return None
    only = None if look_at_all else partitions_to_look_at(table, timeline, options, memory.looked)
    plan = plan_clustering(table, timeline, table.view(timeline), options, now_ms, instant, only)
    if plan is None:
        memory.looked = Looked.at(timeline, instant, options)
        return None
    check()
    rel = plan_path(table, instant)
    try:
        table.storage.write_new(rel, write_parsed(parsed_schema("HoodieRequestedReplaceMetadata"), plan))
    except FileExistsError:
        raise InstantConflictError(
            f"{table.storage.where(rel)} exists already: another writer works on the table, and only one may"
        ) from None
    reach("clustering_requested")
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
    """The plan of ``instant`` as its Avro record; None where nothing is to be joined. ``only``: partitions, None: all.

    UnsupportedTableError for sort columns that the table has not, and for a bucketed table, whose file ids name buckets.
    """
    check_bucketed(table, wanted=False)
    _check_columns(table, timeline, options)
    taken = planned_otherwise(table, timeline)
    settled = settled_groups(table, timeline, options.sort_columns)
    hour = datetime.strptime(instant_from_ms(now_ms, table.config.timezone_utc)[:10], "%Y%m%d%H").hour
    partitions = choose_partitions(view.partitions() if only is None else sorted(only), options, hour)
    view.look_up(partitions)
    joined: list[Joined] = []
    for partition in partitions:
        slices = [
            each
            for each in view.latest_merged_slices(partition)
            if (partition, each.file_id) not in taken and _has_rows(each)
        ]
        joined += join_slices(slices, options, settled)
    if not joined:
        return None
    left = {each.slices[0].partition_path for each in joined[options.max_groups :]}
    looked = Looked.at(timeline, instant, options, left)
    params = {SORT_COLUMNS: ",".join(options.sort_columns)} if options.sort_columns else {}
    return {
        "operationType": CLUSTER,
        "clusteringPlan": {
            "inputGroups": [_group(table, each, options) for each in joined[: options.max_groups]],
            "strategy": {"strategyClassName": EXECUTION, "strategyParams": params, "version": 1},
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


def _group(table: HoodieTable, joined: Joined, options: ClusteringOptions) -> dict[str, Any]:
    metrics: dict[str, float] = {}
    for each in joined.slices:
        for name, value in metrics_of(each, options.target_file_bytes).items():
            metrics[name] = metrics.get(name, 0.0) + value
    return {
        "slices": [_slice(table, each) for each in joined.slices],
        "metrics": metrics,
        "numOutputFileGroups": joined.outputs,
        "extraMetadata": None,
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
                f"{SORT_COLUMNS} names {name}, which table {table.config.name} at {table.base_path} has not; it has "
                f"{', '.join(names)}"
            )
