"""A compaction's plan: when it is due, which file slices it takes, and who may carry it out.

The plan is ``T.compaction.requested``, HoodieCompactionPlan of version 2 (names of files, no paths), as Hudi
0.15.0 and 1.2.0 write it. Strategies and metrics are those of Hudi's classes in
org.apache.hudi.table.action.compact.strategy and FileSliceMetricUtils.

Hudi gives no sign of life while it compacts, and two processes that carry out one plan delete each other's files.
So a plan is carried out at once only where this project has made it and, if it is inflight, has begun it too (a
file with its markers says so); the writer lease says that only this process works on it now. Any other plan is
left until nothing of it was written for as long as a heartbeat counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any

from tagstream.table.errors import ConfigError, InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.fs_view import FileSlice, FileSystemView
from tagstream.table.file_group.names import instant_from_ms
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.metadata.record_encoding import instant_ms
from tagstream.table.services.options import MIB, CompactionOptions, Strategy, Trigger
from tagstream.table.services.planned import TAKEN_BEFORE, groups_with_logs, planned_otherwise, taken_before
from tagstream.table.storage.storage import Storage, each
from tagstream.table.timeline.avro_timeline import parsed_schema, read_record, write_parsed
from tagstream.table.timeline.instant import COMMIT, COMPACTION, DELTA_COMMIT, Instant, State
from tagstream.table.timeline.lease import DEFAULT_TIMEOUT_MS, is_alive
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.markers import marker_folder

_DAY = re.compile(r"(\d{1,4})/(\d{1,2})/(\d{1,2})")
_KEY = re.compile(r"(^|/)[^/=]*=")


def metrics_of(file_slice: FileSlice, base_file_bytes: int) -> dict[str, float]:
    """The metrics of an operation in its plan; whole MiB but for TOTAL_LOG_FILES_SIZE, which is bytes."""
    base = file_slice.base_file.size if file_slice.base_file else 0
    read = (base + log_bytes(file_slice)) // MIB
    write = (base if file_slice.base_file else base_file_bytes) // MIB
    return {
        "TOTAL_LOG_FILES": float(len(file_slice.log_files)),
        "TOTAL_IO_MB": float(read + write),
        "TOTAL_IO_READ_MB": float(read),
        "TOTAL_LOG_FILES_SIZE": float(log_bytes(file_slice)),
        "TOTAL_IO_WRITE_MB": float(write),
    }


def log_bytes(file_slice: FileSlice) -> int:
    """Bytes of a slice's log files."""
    return sum(log.size for log in file_slice.log_files)


def choose(slices: Sequence[FileSlice], options: CompactionOptions, today: date) -> list[FileSlice]:
    """The slices that the strategy takes, in its order. ConfigError where it wants days in the partition paths."""
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
    """As many as fit; the one that goes over the target is taken, too, as Hudi takes it."""
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
            f"partition {partition_path!r} is no day (yyyy/MM/dd): set hoodie.compaction.strategy to one that does not go "
            "by days, e.g. LogFileSizeBasedCompactionStrategy"
        ) from None


@dataclass(frozen=True)
class Since:
    """What came after the last compaction: completed delta commits, and the instant that seconds count from.

    ``instant`` is the compaction's, or that of the first delta commit where there is none; None: nothing is there.
    """

    delta_commits: int
    instant: str | None


def is_due(timeline: Timeline, options: CompactionOptions, now_ms: int, utc: bool) -> bool:
    """Whether the trigger says that a plan should be made now.

    While a plan is pending the counts since the last completed compaction say so after every commit; then none is made
    but by NUM_COMMITS_AFTER_LAST_REQUEST, which counts from the plan.
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
    """What came after the last completed compaction; with ``requested`` after the last plan, carried out or not.

    From version 8 on a delta commit came after it when it was completed after the plan was made.
    """
    deltas = [i for i in timeline.completed_writes if i.action == DELTA_COMMIT]
    last = next((i for i in reversed(timeline.instants) if _is_compaction(i) and (i.is_completed or requested)), None)
    if last is None:
        return Since(len(deltas), deltas[0].time if deltas else None)
    return Since(sum((i.completion_time or i.time) > last.time for i in deltas), last.time)


def _is_compaction(instant: Instant) -> bool:
    """A plan, or a completed commit: on a merge-on-read table writes of data are delta commits, so it is a compaction's."""
    return instant.action == COMPACTION or (instant.action == COMMIT and instant.is_completed)


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


_CLAIM = "tagstream.compaction"


def claim(storage: Storage, instant: str) -> None:
    """Say that this project carries the plan out."""
    storage.replace(f"{marker_folder(instant)}/{_CLAIM}", b"")


def may_take_up(table: HoodieTable, instant: str, now_ms: int, action: str = COMPACTION) -> bool:
    """Whether a plan on the timeline may be carried out here. The caller holds the writer lease.

    ``action``: what the pending plan is called on the timeline.
    """
    storage = table.storage
    if is_alive(storage, instant, now_ms):
        return False
    planned, name = (Instant(instant, action, state).file_name() for state in (State.REQUESTED, State.INFLIGHT))
    files = {e.name: e.mtime_ms for e in storage.list(table.config.timeline_folder, (f"{instant}.{action}.",))}
    own = storage.exists(f"{marker_folder(instant)}/{_CLAIM}") if name in files else is_planned_here(table, planned)
    if own:
        return True
    newest = max(*files.values(), _newest_below(storage, marker_folder(instant)), 0)
    return now_ms - newest > DEFAULT_TIMEOUT_MS


def is_planned_here(table: HoodieTable, planned: str) -> bool:
    """Whether this project made the plan in the timeline's file ``planned``. FileNotFoundError when it is not there."""
    rel = f"{table.config.timeline_folder}/{planned}"
    plan = read_record(table.storage.read(rel), table.storage.where(rel))
    return (plan.get("extraMetadata") or {}).get(PLANNED_BY) == PLANNER


def _newest_below(storage: Storage, folder: str) -> int:
    newest = 0
    for entry in storage.list(folder):
        newest = max(newest, entry.mtime_ms)
        if entry.is_dir:
            newest = max(newest, _newest_below(storage, f"{folder}/{entry.name}"))
    return newest
