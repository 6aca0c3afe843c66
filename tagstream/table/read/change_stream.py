"""The changes of a table between two times, write after write: Hudi's CDC query, and what can be inferred without it.

As in the incremental query, the time of a write is its completion time from table version 8 on, and its instant time up to
version 7. Compactions and clusterings change no row and are left out. A row that moves to another partition is deleted in
one file group and inserted in another. The changes of one write have no order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tagstream.table.errors import MissingChangesError
from tagstream.table.file_group.fs_view import FileSlice, FileSystemView, Listing
from tagstream.table.file_group.names import list_partitions
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.file_changes import ChangeReader
from tagstream.table.read.snapshot import snapshot_schema
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.operation import WITHOUT_CHANGES
from tagstream.table.timeline.timeline import Timeline


def changes_between(
    table: HoodieTable,
    since: str | None = None,
    until: str | None = None,
    check_past: Callable[[Timeline, str], None] = lambda _timeline, _as_of: None,
) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """(schema, changes) of the writes after ``since`` and up to ``until`` (times of 17 digits; None: no limit).

    The columns are ``op`` (i, u, d), ``ts_ms`` (the write's instant), ``before`` and ``after`` (structs of the table's
    columns). ``check_past`` raises an error for an instant as of which the table cannot be read any more.
    MissingChangesError when a write of this time is archived; while reading, also when its changes were not logged, or
    its files do not exist any more.
    """
    timeline = table.timeline()
    check_archive(table, timeline, since)
    reader = change_reader(table, timeline, check_past)
    return reader.change_schema, _changes(reader, writes_between(timeline, since, until))


def change_reader(
    table: HoodieTable,
    timeline: Timeline,
    check_past: Callable[[Timeline, str], None] = lambda _timeline, _as_of: None,
) -> ChangeReader:
    """The reader of a table's changes, with the columns that the table has now. ``check_past``: as in
    :func:`changes_between`.
    """
    view = table.view(timeline)
    listing: Listing = view.listing if view.listing is not None else _Folders(table.storage)

    def slice_at(partition: str, file_id: str, as_of: str) -> FileSlice | None:
        check_past(timeline, as_of)
        then = FileSystemView(view.storage, timeline, as_of, view.version, view.archived, listing)
        return then.latest_slice(partition, file_id)

    return ChangeReader(table, timeline, snapshot_schema(table, timeline, view), slice_at)


def writes_between(timeline: Timeline, since: str | None = None, until: str | None = None) -> list[Instant]:
    """The completed writes after ``since`` and up to ``until``, in the order of their times (:func:`time_of`)."""
    found = [
        i
        for i in timeline.completed_writes
        if (since is None or time_of(i) > since) and (until is None or time_of(i) <= until)
    ]
    return sorted(found, key=lambda i: (time_of(i), i.time))


def time_of(instant: Instant) -> str:
    """The time of a completed write that orders it: of its completion from version 8 on, its instant up to version 7."""
    return instant.completion_time or instant.time


def _changes(reader: ChangeReader, writes: list[Instant]) -> Iterator[pa.Table]:
    storage = reader.table.storage
    for instant in writes:
        metadata = reader.timeline.metadata(storage, instant)
        if not has_changes(metadata):
            continue
        for partition in sorted({*metadata.stats, *metadata.replaced}):
            for file_id in metadata.replaced.get(partition, ()):
                yield from _not_empty(reader.of_replaced(instant.time, partition, file_id))
            for stat in metadata.stats.get(partition, ()):
                yield from _not_empty(reader.of_stat(instant.time, metadata.operation, stat))


def has_changes(metadata: CommitMetadata) -> bool:
    """Whether a write may have changed rows; services only write them again."""
    return not metadata.is_compaction and metadata.operation not in WITHOUT_CHANGES


def _not_empty(found: Iterator[pa.Table]) -> Iterator[pa.Table]:
    return (rows for rows in found if rows.num_rows)


def check_archive(table: HoodieTable, timeline: Timeline, since: str | None) -> None:
    """MissingChangesError for archived writes after ``since``: their commits are no longer on the active timeline."""
    first = timeline.start
    if since is not None and first is not None and since >= first and not table.config.has_completion_times:
        return
    active = {instant.time for instant in timeline.completed_writes}
    archived = [
        action
        for action in table.archived_after(since or "")
        if action.time not in active and action.metadata is not None
        if has_changes(CommitMetadata.from_bytes(action.metadata, f"the archived {action.action} {action.time}"))
    ]
    if archived:
        # Up to version 7 a write counts by its instant; its completion time there is that of a file.
        by_end = table.config.has_completion_times
        newest = max((action.completion_time if by_end else None) or action.time for action in archived)
        raise MissingChangesError(
            f"writes of table {table.config.name} at {table.base_path} after {since or 'its begin'} are archived, and "
            f"their changes cannot be read: read the changes since {newest}; hoodie.keep.min.commits sets how many writes "
            "stay on the active timeline"
        )


@dataclass
class _Folders:
    """A listing that lists each folder once."""

    storage: Storage
    found: dict[str, Mapping[str, int]] = field(default_factory=dict)

    def partitions(self) -> list[str]:
        return list_partitions(self.storage)

    def look_up(self, partition_paths: Collection[str]) -> None:
        pass

    def files(self, partition_path: str) -> Mapping[str, int]:
        if partition_path not in self.found:
            entries = self.storage.list(partition_path)
            self.found[partition_path] = {entry.name: entry.size for entry in entries if not entry.is_dir}
        return self.found[partition_path]
