"""Changes on the timeline since a cursor: written partitions, dropped partitions, number of commits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tagstream.table.file_group.names import instant_from_ms
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.instant import CLEAN, Instant
from tagstream.table.timeline.operation import WriteOperationType
from tagstream.table.timeline.timeline import Timeline


@dataclass(frozen=True)
class Cursor:
    """The commit up to which an entry has the table: instant time, and newest completion time, None if unknown."""

    time: str
    completion_time: str | None


@dataclass(frozen=True)
class PartitionChanges:
    """Partition paths that commits wrote, and those that no longer exist; no path is in both."""

    written: tuple[str, ...]
    dropped: tuple[str, ...]


def newest_cursor(table: HoodieTable, timeline: Timeline) -> Cursor | None:
    """The cursor of an entry that has every completed commit; None for a table without one.

    Up to table version 7 an instant has no completion time: Hudi uses the modification time of its file, and so does this
    project.
    """
    writes = timeline.completed_writes
    if not writes:
        return None
    if table.config.has_completion_times:
        return Cursor(writes[-1].time, max(timeline.completion_time(i.time) for i in writes))
    names = {i.file_name() for i in writes}
    entries = table.storage.list(table.config.timeline_folder)
    newest = max((e.mtime_ms for e in entries if e.name in names), default=None)
    utc = table.config.timezone_utc
    return Cursor(writes[-1].time, None if newest is None else instant_from_ms(newest, utc))


def commits_since(timeline: Timeline, cursor: Cursor | None) -> tuple[Instant, ...] | None:
    """The completed writes after this cursor, oldest first.

    None: the timeline does not show them, because the cursor's commit is archived, or was removed by a rollback or a
    restore.
    """
    if cursor is None or timeline.is_archived(cursor.time) or not timeline.is_valid(cursor.time):
        return None

    def is_new(instant: Instant) -> bool:
        late = cursor.completion_time is not None and (instant.completion_time or "") > cursor.completion_time
        return instant.time > cursor.time or late

    return tuple(i for i in timeline.completed_writes if is_new(i))


def partition_changes(
    table: HoodieTable, timeline: Timeline, commits: Sequence[Instant], since: Cursor
) -> PartitionChanges:
    """The partitions that these commits wrote, and those that they or cleans after the cursor ``since`` dropped.

    A partition is dropped by a DELETE_PARTITION, or by a clean that deleted its folder, and by no write after it.
    """
    last_write: dict[str, str] = {}
    last_drop: dict[str, str] = {}
    for instant in commits:
        metadata = timeline.metadata(table.storage, instant)
        for path in {stat.partition_path for stat in metadata.all_stats()}:
            last_write[path] = instant.time
        if metadata.operation.upper() == WriteOperationType.DELETE_PARTITION:
            last_drop |= dict.fromkeys(metadata.replaced, instant.time)
    for instant in timeline.instants:
        if instant.action == CLEAN and instant.is_completed and instant.time > since.time:
            last_drop |= dict.fromkeys(_cleaned_away(table, timeline, instant), instant.time)
    dropped = {path for path, time in last_drop.items() if time > last_write.get(path, "")}
    return PartitionChanges(tuple(sorted(set(last_write) - dropped)), tuple(sorted(dropped)))


def _cleaned_away(table: HoodieTable, timeline: Timeline, instant: Instant) -> list[str]:
    rel = f"{timeline.folder}/{instant.file_name()}"
    record = read_record(table.storage.read(rel), table.storage.where(rel))
    found = record.get("partitionMetadata") or {}
    return [path for path, each in found.items() if each.get("isPartitionDeleted")]
