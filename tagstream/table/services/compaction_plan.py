"""A compaction's plan: when it is due, and which file slices it includes.

The plan is ``T.compaction.requested``, HoodieCompactionPlan of version 2 (names of files, no paths), as Hudi
0.15.0 and 1.2.0 write it. Strategies and metrics are those of Hudi's classes in
org.apache.hudi.table.action.compact.strategy and FileSliceMetricUtils.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any

from tagstream.table.errors import ConfigError, UnsupportedTableError
from tagstream.table.file_group.fs_view import FileSlice, FileSystemView
from tagstream.table.file_group.names import instant_from_ms
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.metadata.record_encoding import instant_ms
from tagstream.table.services.options import CompactionOptions, Strategy, Trigger
from tagstream.table.services.plans import (
    PLANNED_BY,
    PLANNER,
    TAKEN_BEFORE,
    groups_with_logs,
    log_bytes,
    metrics_of,
    planned_otherwise,
    taken_before,
    write_plan,
)
from tagstream.table.steps import Step
from tagstream.table.storage.storage import each
from tagstream.table.timeline.instant import COMMIT, COMPACTION, DELTA_COMMIT, Instant, State
from tagstream.table.timeline.timeline import Timeline

_NAMES_ONLY = 2  # the version of a plan that has names, not paths
_DAY = re.compile(r"(\d{1,4})/(\d{1,2})/(\d{1,2})")
_KEY = re.compile(r"(^|/)[^/=]*=")

Groups = Mapping[str, frozenset[str]]


def choose(slices: Sequence[FileSlice], options: CompactionOptions, today: date) -> list[FileSlice]:
    """The slices that the strategy selects, in its order. ConfigError if it needs days in the partition paths."""
    match options.strategy:
        case Strategy.UNBOUNDED:
            return list(slices)
        case Strategy.BOUNDED_IO:
            return _within_io(slices, options)
        case Strategy.LOG_FILE_SIZE:
            found = [found_slice for found_slice in slices if log_bytes(found_slice) >= options.log_size_threshold]
            return _within_io(sorted(found, key=log_bytes, reverse=True), options)
        case Strategy.LOG_FILE_NUM:
            found = [found_slice for found_slice in slices if len(found_slice.log_files) >= options.log_count_threshold]
            return _within_io(sorted(found, key=lambda found_slice: len(found_slice.log_files), reverse=True), options)
        case Strategy.PARTITION_REGEX:
            wanted = re.compile(options.partition_regex or "")
            return [found_slice for found_slice in slices if wanted.search(found_slice.partition_path)]
        case Strategy.DAY_BASED:
            return _of_days(slices, lambda days: days[: options.target_partitions])
    first = today - timedelta(days=options.target_partitions)
    return _of_days(slices, partial(_not_before, first=first))


def _within_io(slices: Iterable[FileSlice], options: CompactionOptions) -> list[FileSlice]:
    """As many as fit; the one that exceeds the target is included, too, as in Hudi."""
    left, found = options.target_io_mb, []
    for found_slice in slices:
        left -= int(metrics_of(found_slice, options.base_file_bytes)["TOTAL_IO_MB"])
        found.append(found_slice)
        if left <= 0:
            break
    return found


def _of_days(
    slices: Sequence[FileSlice], wanted: Callable[[list[tuple[date, str]]], list[tuple[date, str]]]
) -> list[FileSlice]:
    """The slices of some partitions, the latest days first."""
    by_partition: dict[str, list[FileSlice]] = {}
    for found_slice in slices:
        by_partition.setdefault(found_slice.partition_path, []).append(found_slice)
    days = sorted(((day_of(path), path) for path in by_partition), reverse=True)
    return [found_slice for _, path in wanted(days) for found_slice in by_partition[path]]


def _not_before(days: list[tuple[date, str]], first: date) -> list[tuple[date, str]]:
    return [found_slice for found_slice in days if found_slice[0] >= first]


def day_of(partition_path: str) -> date:
    """The day that a partition path begins with: ``2026/11/22`` or ``year=2026/month=11/day=22``."""
    found = _DAY.match(_KEY.sub(r"\1", partition_path))
    try:
        return date(*map(int, found.groups() if found else ()))
    except (TypeError, ValueError):
        raise ConfigError(
            f"partition {partition_path!r} is not a day (yyyy/MM/dd): set hoodie.compaction.strategy to one that is "
            f"not by days, e.g. LogFileSizeBasedCompactionStrategy"
        ) from None


@dataclass(frozen=True)
class Since:
    """State since the last compaction: completed delta commits, and the instant from which seconds count.

    ``instant`` is the compaction's, or that of the first delta commit if there is none; None: the timeline has neither.
    """

    delta_commits: int
    instant: str | None


def is_due(timeline: Timeline, options: CompactionOptions, now_ms: int, utc: bool) -> bool:
    """Whether the trigger says that a plan should be made now.

    While a plan is pending the counts since the last completed compaction would be due after every commit. So no plan
    is made then, except by NUM_COMMITS_AFTER_LAST_REQUEST, which counts from the plan.
    """
    after_request = options.trigger is Trigger.NUM_COMMITS_AFTER_LAST_REQUEST
    if not after_request and any(i.action == COMPACTION for i in timeline.pending):
        return False
    since = since_compaction(timeline, requested=after_request)
    if since.instant is None:
        return False
    by_number = since.delta_commits >= options.max_delta_commits
    by_time = now_ms // 1000 - instant_ms(since.instant, utc) // 1000 >= options.max_delta_seconds
    match options.trigger:
        case Trigger.TIME_ELAPSED:
            return by_time
        case Trigger.NUM_AND_TIME:
            return by_number and by_time
        case Trigger.NUM_OR_TIME:
            return by_number or by_time
    return by_number


def since_compaction(timeline: Timeline, *, requested: bool = False) -> Since:
    """State since the last completed compaction; with ``requested`` since the last plan, executed or not.

    From version 8 on a delta commit counts if it was completed after the plan was made.
    """
    deltas = [i for i in timeline.completed_writes if i.action == DELTA_COMMIT]
    last = next((i for i in reversed(timeline.instants) if _is_compaction(i) and (i.is_completed or requested)), None)
    if last is None:
        return Since(len(deltas), deltas[0].time if deltas else None)
    return Since(sum((i.completion_time or i.time) > last.time for i in deltas), last.time)


def _is_compaction(instant: Instant) -> bool:
    """A plan, or a completed commit: on a merge-on-read table writes of data are delta commits, so it is a
    compaction's."""
    return instant.action == COMPACTION or (instant.action == COMMIT and instant.is_completed)


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
    """Write a plan to the timeline if one is due; returns its instant, None if there is nothing to do.

    ``check`` is called before the plan is written, and its error prevents the plan; ``force``: ignore the trigger;
    ``look_at_all``: list the whole table, not only the file groups with logs by the commits; ``timeline``: the state
    that decides whether a plan is due. On table version 6 no plan is made while a write is pending, because its log
    files could not be distinguished from the others. The caller has the writer lease. From now on writers must read the
    plan before they name log files (version 6).
    """
    _check_type(table)
    timeline, utc = timeline if timeline is not None else table.timeline(), table.config.timezone_utc
    if not table.config.has_completion_times and timeline.pending_writes:
        return None
    now_ms = clock_ms()
    if not force and not is_due(timeline, options, now_ms, utc):
        return None
    instant = fresh_times(table, MetadataWriter.open(table), lambda: now_ms)()
    # Again: writes that others have completed before the instant belong to the plan's slices, and the plan must name
    # them.
    timeline = table.timeline()
    if not table.config.has_completion_times and timeline.pending_writes:
        return None
    groups = None if look_at_all else groups_with_logs(table, timeline)
    plan = plan_compaction(table, timeline, table.view(timeline), options, now_ms, instant, groups)
    if plan is None:
        return None
    check()
    write_plan(table, Instant(instant, COMPACTION, State.REQUESTED), "HoodieCompactionPlan", plan)
    reach(Step.COMPACTION_REQUESTED)
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
    """The plan of ``instant`` for the slices of the view as its Avro record; None if there is no slice to compact.

    ``groups``: the file ids by partition that may have logs; None: all. A group in another pending plan is left out.
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
    """In the order of partitions and file ids. Partitions are listed in parallel: each one is a request to the
    store."""

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
            f"table {table.config.name} at {table.base_path} is copy-on-write: it has no log files to compact"
        )
