"""A compaction's plan: which slices are rewritten, from exactly which files; and the file that says so.

Source: ``T.compaction.requested``, HoodieCompactionPlan of version 2 (names of files, no paths), as Hudi 0.15.0 and 1.2.0
write it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from itertools import chain
from typing import Any

from tagstream.table.each import each
from tagstream.table.errors import InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.file_group.names import instant_from_ms
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.services.compaction.candidates import (
    TAKEN_BEFORE,
    groups_with_logs,
    planned_otherwise,
    taken_before,
)
from tagstream.table.services.compaction.options import CompactionOptions
from tagstream.table.services.compaction.strategy import choose, metrics_of
from tagstream.table.services.compaction.trigger import is_due
from tagstream.table.timeline.avro_schemas import parsed_schema
from tagstream.table.timeline.avro_timeline import write_parsed
from tagstream.table.timeline.instant import COMPACTION, Instant, State
from tagstream.table.timeline.timeline import Timeline

_NAMES_ONLY = 2  # the version of a plan that has names, not paths

# Extra metadata of a plan of this project.
PLANNED_BY, PLANNER = "tagstream.planned.by", "tagstream"

Groups = Mapping[str, frozenset[str]]


def schedule_compaction(
    table: HoodieTable,
    options: CompactionOptions,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
    force: bool = False,
    look_at_all: bool = False,
    timeline: Timeline | None = None,
) -> str | None:
    """Put a plan on the timeline if it is time for one; returns its instant, None where nothing is to be done.

    ``check`` is called before the plan is written, and what it raises keeps it from being; ``force``: whatever the trigger
    says; ``look_at_all``: list the whole table, whatever the commits tell of where logs are; ``timeline``: a look that tells
    whether it is time. On table version 6 no plan is made while a write is pending, for its log files could not be told from
    the others. The caller holds the writer lease, and from here on writers must look at the plan before they name log files
    (version 6).
    """
    _check_type(table)
    timeline, utc = timeline if timeline is not None else table.timeline(), table.config.timezone_utc
    if not table.config.has_completion_times and timeline.pending_writes:
        return None
    now_ms = clock_ms()
    if not force and not is_due(timeline, options, now_ms, utc):
        return None
    instant = fresh_times(table, MetadataWriter.open(table), lambda: now_ms)()
    # Again: what others have completed before the instant is of the slices that the plan ends, and must be named in it.
    timeline = table.timeline()
    if not table.config.has_completion_times and timeline.pending_writes:
        return None
    groups = None if look_at_all else groups_with_logs(table, timeline)
    plan = plan_compaction(table, timeline, table.view(timeline), options, now_ms, instant, groups)
    if plan is None:
        return None
    check()
    rel = f"{table.config.timeline_folder}/{Instant(instant, COMPACTION, State.REQUESTED).file_name()}"
    try:
        table.storage.write_new(rel, write_parsed(parsed_schema("HoodieCompactionPlan"), plan))
    except FileExistsError:
        raise InstantConflictError(
            f"{table.storage.where(rel)} exists already: another writer works on the table, and only one may"
        ) from None
    reach("compaction_requested")
    return instant


def plan_compaction(
    table: HoodieTable,
    timeline: Timeline,
    view: FileSystemView,
    options: CompactionOptions,
    now_ms: int,
    instant: str,
    groups: Groups | None = None,
) -> dict[str, Any] | None:
    """The plan of ``instant`` as its Avro record, of what the view has; None where no slice is to be compacted.

    ``groups``: the file ids by partition that may have logs, None: all are looked at. A group in another pending plan is
    left out.
    """
    taken = planned_otherwise(table, timeline)
    found = _slices_with_logs(view, groups)
    free = [one for one in found if (one.partition_path, one.file_id) not in taken]
    chosen = choose(free, options, _today(now_ms, table.config.timezone_utc))
    if not chosen:
        return None
    everything = {TAKEN_BEFORE: taken_before(timeline, instant)} if len(chosen) == len(found) else {}
    return {
        "operations": [_operation(one, options.base_file_bytes) for one in chosen],
        "extraMetadata": {PLANNED_BY: PLANNER, **everything},
        "version": _NAMES_ONLY,
        "strategy": None,
        "preserveHoodieMetadata": False,
        "missingSchedulePartitions": [],
    }


def _slices_with_logs(view: FileSystemView, groups: Groups | None) -> list[FileSlice]:
    """In the order of partitions and file ids. Partitions are listed side by side: each is a request to the store."""

    def of_partition(partition: str) -> list[FileSlice]:
        if groups is None:
            slices = view.latest_merged_slices(partition)
        else:
            slices = [found for _, found in sorted(view.latest_slices(partition, groups[partition]).items())]
        return [found for found in slices if found.log_files]

    partitions = view.partitions() if groups is None else sorted(groups)
    view.look_up(partitions)
    return list(chain.from_iterable(each(of_partition, partitions)))


def _operation(file_slice: FileSlice, base_file_bytes: int) -> dict[str, Any]:
    return {
        "baseInstantTime": file_slice.base_instant,
        "deltaFilePaths": [log.name for log in file_slice.log_files],
        "dataFilePath": file_slice.base_file.name if file_slice.base_file else None,
        "fileId": file_slice.file_id,
        "partitionPath": file_slice.partition_path,
        "metrics": metrics_of(file_slice, base_file_bytes),
        "bootstrapFilePath": None,
    }


def _today(now_ms: int, utc: bool) -> date:
    return datetime.strptime(instant_from_ms(now_ms, utc)[:8], "%Y%m%d").date()


def _check_type(table: HoodieTable) -> None:
    if not table.config.is_merge_on_read:
        raise UnsupportedTableError(
            f"table {table.config.name} at {table.base_path} is copy-on-write: it has no log files, and nothing to compact"
        )
