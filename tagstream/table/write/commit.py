"""The commit protocol, step by step. Readers see the old state until step 6 is done.

1. ``requested``: the empty file ``T.<action>.requested`` claims the instant.
2. ``inflight``: ``T.<action>.inflight`` (``T.inflight`` of a plain commit) says that files are being written, and that
   they are staged. The marker folder is created before it.
3. The tasks stage data files below ``.hoodie/.temp/T``. Each is durable when its task returns. Tasks publish nothing.
4. ``publish_files``: the driver has all write statuses. It writes the markers of their files, creates missing partition
   metafiles, and gives these files their final names. No other file of the instant is ever published.
5. ``stage``: the commit's content is written durably under a hidden name.
6. ``complete``: the staged content gets the name ``T.<action>``, which must not exist: the instant is completed. From
table version 8 on the name is ``T_C.<action>``, where C, the completion time, is later than every time on the timeline.
7. Markers and staged files are removed.

A writer that was paused before step 4 or 6 and was rolled back meanwhile finds no staged files: a rollback removes them
before anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tagstream.table.errors import InstantConflictError
from tagstream.table.file_group.names import ensure_partition, next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.storage import Storage, at_once, each
from tagstream.table.timeline.avro_timeline import REQUESTED_REPLACE, write_record
from tagstream.table.timeline.commit_metadata import CommitMetadata, FileKind, WriteStatus
from tagstream.table.timeline.instant import COMPLETED_ACTION, REPLACE_COMMIT, Instant, State
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.markers import (
    Marker,
    begin_markers,
    stage,
    staged_commit_path,
    staged_path,
    tidy,
    write_markers,
)

# The key and value in the extra metadata of an inflight file that say that the write stages its files.
_FILES_KEY, _STAGED = "tagstream.data.files", "staged"

# Extra metadata of an inflight file of this project: the kind of writer, so that a later run recognizes its own
# leftovers.
WRITER_KEY = "tagstream.writer"


def request(table: HoodieTable, instant: str, action: str) -> None:
    """Step 1: create the requested file. InstantConflictError when it exists."""
    replaces = action == REPLACE_COMMIT
    content = write_record(REQUESTED_REPLACE, {"operationType": None, "version": None}) if replaces else b""
    _create(table, Instant(instant, action, State.REQUESTED), content)


def begin_files(table: HoodieTable, instant: str) -> None:
    """Create the marker folder, before step 2. InstantConflictError when it is removed at the same time."""
    try:
        begin_markers(table.storage, instant)
    except FileNotFoundError:  # on HDFS a file can be removed while it is written
        raise InstantConflictError(_gone(table, instant)) from None


def inflight(
    table: HoodieTable,
    instant: str,
    action: str,
    metadata: CommitMetadata | None = None,
    *,
    has_markers: bool = False,
) -> None:
    """Step 2: create the inflight file. ``metadata`` is what is known of the write in advance; readers ignore it.

    ``has_markers``: the caller has called :func:`begin_files`. InstantConflictError when the file exists.
    """
    metadata = metadata or CommitMetadata()
    metadata = replace(metadata, extra={**metadata.extra, _FILES_KEY: _STAGED})
    if not has_markers:
        begin_files(table, instant)
    content = metadata.to_bytes(table.config.version)
    _create(table, Instant(instant, action, State.INFLIGHT), content)


def stages_files(table: HoodieTable, instant: Instant) -> bool:
    """True for a write with this protocol: files without a marker were never published.

    Earlier versions of this program, and Hudi, publish files from the tasks.
    """
    rel = f"{table.config.timeline_folder}/{Instant(instant.time, instant.action, State.INFLIGHT).file_name()}"
    try:
        data = table.storage.read(rel)
    except FileNotFoundError:
        return False
    return CommitMetadata.from_bytes(data, table.storage.where(rel)).extra.get(_FILES_KEY) == _STAGED


def publish_files(table: HoodieTable, instant: str, statuses: Sequence[WriteStatus]) -> None:
    """Step 4. InstantConflictError when the instant was rolled back, or when another writer's file has one of the names.

    The caller must have checked, after the last status arrived, that it still has the lease.
    """
    announce_files(table, instant, statuses)
    publish_announced(table, instant, statuses)


def announce_files(
    table: HoodieTable, instant: str, statuses: Sequence[WriteStatus], check: Callable[[], None] = lambda: None
) -> None:
    """The first half of step 4: write markers, and metafiles of new partitions.

    ``check`` raises an error if this process has lost the lease; then no file has been published yet.
    """
    markers = [Marker(status.stat.path, _marker_kind(table, status)) for status in statuses]
    markers += [Marker(path, FileKind.CREATE) for status in statuses for path in status.stat.change_files]
    at_once(table.storage, check, lambda: write_markers(table.storage, instant, markers))
    _ensure_partitions(table.storage, instant, statuses)


def publish_announced(
    table: HoodieTable, instant: str, statuses: Sequence[WriteStatus], *, is_alone: bool = False
) -> None:
    """The second half of step 4: publish the files.

    ``is_alone``: no other process can write the same instant (as it could with a plan), so names with the instant are
    free.
    """
    # Change files first: a base file without one would be an error for readers of changes.
    paths = [path for status in statuses for path in reversed(status.stat.paths)]
    pairs = [(staged_path(instant, path), path) for path in paths]
    try:
        table.storage.publish(pairs, are_free=is_alone and all(instant in s.stat.file_name for s in statuses))
    except FileNotFoundError:
        raise InstantConflictError(_gone(table, instant)) from None
    except FileExistsError as error:
        raise InstantConflictError(
            f"a data file of instant {instant} of {table.base_path} has a name that exists ({error}): another writer "
            "writes to the table, and only one writer may"
        ) from None


def _marker_kind(table: HoodieTable, status: WriteStatus) -> FileKind:
    """The marker's kind. From version 8 on a log file belongs to one commit, and Hudi accepts only CREATE for it."""
    created = table.config.names_logs_by_commit and status.kind is FileKind.APPEND
    return FileKind.CREATE if created else status.kind


def _ensure_partitions(storage: Storage, instant: str, statuses: Sequence[WriteStatus]) -> None:
    """Create metafiles of new partitions. A partition with an older file group has one, and is not checked."""
    known = {status.stat.partition_path for status in statuses if not status.new_group}
    new = sorted({status.stat.partition_path for status in statuses} - known)
    each(partial(ensure_partition, storage, instant=instant), new)


def complete(
    table: HoodieTable,
    instant: str,
    action: str,
    metadata: CommitMetadata,
    guard: Callable[[], Timeline | None] | None = None,
    clock_ms: Callable[[], int] = lambda: 0,
    after: str | None = None,
    *,
    is_staged: bool = False,
    and_then: Callable[[], None] = lambda: None,
) -> Instant:
    """Steps 5 to 7; returns the completed instant.

    ``guard`` is called immediately before publishing. An error that it raises stops the commit; a timeline that it
    returns must have been read just now. ``clock_ms`` gives the completion time, from version 8 on, in milliseconds
    since 1970; a clock behind the timeline, or behind ``after``, gives the next free millisecond. ``is_staged``:
    ``markers.stage`` was called. ``and_then`` is called when the instant is completed, in parallel with step 7.

    InstantConflictError when the instant is completed already or was rolled back by another process. A process without
    this protocol (Hudi) may have rolled it back before the data files were published: then they are deleted.
    """
    storage, folder = table.storage, table.config.timeline_folder
    staged = staged_commit_path(instant, action)
    if not is_staged:
        stage(table, instant, action, metadata)
    pending = Instant(instant, action, State.INFLIGHT)
    published = False
    try:
        looked = guard() if guard is not None else None
        timeline = looked if looked is not None else table.timeline()
        completed = completed_instant(table, pending, clock_ms(), after, timeline)
        if pending not in timeline.instants:
            raise FileNotFoundError(instant)
        storage.publish([(staged, f"{folder}/{completed.file_name()}")], are_free=looked is not None)
        published = True
    except FileExistsError:
        raise InstantConflictError(
            f"instant {instant} of {table.base_path} is completed already: another run committed it; start again"
        ) from None
    except FileNotFoundError:
        storage.delete_many(metadata.all_paths())
        raise InstantConflictError(_gone(table, instant)) from None
    finally:
        if not published:
            storage.delete(staged)
    paths = metadata.all_paths()
    at_once(storage, and_then, lambda: tidy(storage, instant, action, paths))
    return completed


def completed_instant(
    table: HoodieTable, pending: Instant, at_ms: int, after: str | None = None, timeline: Timeline | None = None
) -> Instant:
    """The instant of a pending action that is completed now; FileExistsError when it is completed already.

    From version 8 on the file name has the completion time, so the name alone does not prevent a second completion.
    ``timeline``: one that the caller has just read.
    """
    completed = Instant(pending.time, pending.action, State.COMPLETED)
    if timeline is None:
        if not table.config.has_completion_times:
            return completed
        timeline = table.timeline()
    action = COMPLETED_ACTION.get(pending.action, pending.action)
    if any(i.is_completed and (i.time, i.action) == (pending.time, action) for i in timeline.instants):
        raise FileExistsError(pending.time)
    if not table.config.has_completion_times:
        return completed
    newest = max(timeline.newest or "", pending.time, after or "")
    at = next_instant(at_ms, newest, table.config.timezone_utc)
    return Instant(pending.time, pending.action, State.COMPLETED, at)


def _create(table: HoodieTable, instant: Instant, data: bytes) -> None:
    rel = f"{table.config.timeline_folder}/{instant.file_name()}"
    try:
        table.storage.write_new(rel, data)
    except FileExistsError:
        raise InstantConflictError(
            f"{table.storage.where(rel)} exists already: another writer took instant {instant.time}; roll it back or "
            "use a later instant"
        ) from None


def _gone(table: HoodieTable, instant: str) -> str:
    return (
        f"instant {instant} of {table.base_path} was rolled back by another process during this write: "
        "nothing was published; only one writer may write to the table"
    )
