"""Files of failed writes: what must be undone, and what late tasks write afterwards.

If the files of a failed write were staged, its markers name each published file; without markers nothing was published.
Markers are removed when a write completes. If the completed file of a commit was removed, only a listing shows what it
wrote.

Base files of a failed write, and log files with only its blocks, are deleted. A log file that also has blocks of other
instants (some writers append to a file) is kept, and a rollback block is written after it.

A task of a killed run, or the slower of two attempts, may still write when its instant has been completed or rolled
back. Its staged files only take space, and so does a staged commit whose writer was killed right after it published the
commit. Files that other writers (earlier versions of this one, Hudi) publish from a task have a marker, so the marker
folder exists again and names them. Such a file must be deleted: a second base file of a completed instant would be used
as the first one, and a file of a rolled-back instant would become valid when the timeline's start is later.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.file_group.names import (
    LogFileName,
    join,
    list_partitions,
    parse_base_file_name,
    parse_log_file_name,
)
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.storage import FileEntry
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.commit_metadata import FileKind
from tagstream.table.timeline.instant import ROLLBACK, Instant
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.commit import stages_files
from tagstream.table.write.markers import (
    TEMP_FOLDER,
    Marker,
    begun_markers,
    delete_markers,
    has_markers,
    list_markers,
    staged_instant,
)

_ROLLBACKS = 20  # the newest: a copy takes only seconds


@dataclass(frozen=True)
class RollbackRequest:
    """One step: delete ``files`` (relative paths), or write a rollback block after the slice's ``log_blocks``.

    ``log_blocks``: (relative path, size) of the log files with blocks of the failed instant.
    """

    partition_path: str
    file_id: str
    base_instant: str
    files: tuple[str, ...] = ()
    log_blocks: tuple[tuple[str, int], ...] = ()


class _Holds(Enum):
    """Whether a log file has blocks of the failed instant, and of others."""

    NOTHING = 0
    ONLY = 1
    AMONG_OTHERS = 2


def plan_rollback(table: HoodieTable, failed: Instant) -> list[RollbackRequest]:
    """The steps that undo ``failed``, in a fixed order. Its staged files must have been removed before."""
    storage, staged = table.storage, stages_files(table, failed)
    if staged and begun_markers(storage, failed.time):
        return list(named_requests(table, failed.time, list_markers(storage, failed.time)))
    if not staged and has_markers(storage, failed.time):
        markers = list_markers(storage, failed.time)
        wanted = sorted({(m.partition_path, file_id) for m in markers if (file_id := _file_id(m)) is not None})
        named = {m.path for m in markers}
        return list(_requests(table, failed.time, wanted, named))
    # Without markers: either nothing was written, or the markers are lost and only a listing can show it.
    groups = ((p, file_id) for p in list_partitions(storage) for file_id in _file_ids(table, p))
    return list(_requests(table, failed.time, groups, set()))


def named_requests(table: HoodieTable, time: str, markers: Iterable[Marker]) -> Iterator[RollbackRequest]:
    """The steps that undo the files that these markers name, whether they exist or not, if they belong to the instant.

    Log files are scanned: their names do not have the instant, and another write may have the same name.
    """
    for marker in markers:
        partition, rel = marker.partition_path, marker.path
        base, log = parse_base_file_name(marker.file_name), parse_log_file_name(marker.file_name)
        if base is not None and base.instant == time:
            yield RollbackRequest(partition, base.file_id, time, files=(rel,))
        elif log is not None:
            try:
                holds, size = _log_content(table, rel, log, time, named=True), table.storage.size(rel)
            except FileNotFoundError:
                holds, size = _Holds.ONLY, 0  # not published, or not yet visible in the store
            yield from _log_requests(partition, log, rel, size, holds)


def _log_requests(partition: str, log: LogFileName, rel: str, size: int, holds: _Holds) -> Iterator[RollbackRequest]:
    if holds is _Holds.ONLY:
        yield RollbackRequest(partition, log.file_id, log.base_instant, files=(rel,))
    elif holds is _Holds.AMONG_OTHERS:
        yield RollbackRequest(partition, log.file_id, log.base_instant, log_blocks=((rel, size),))


def _requests(
    table: HoodieTable, time: str, groups: Iterable[tuple[str, str]], named: set[str]
) -> Iterator[RollbackRequest]:
    listed: dict[str, dict[str, list[tuple[str, int]]]] = {}
    for partition, file_id in groups:
        if partition not in listed:
            listed[partition] = _by_file_group(table, partition)
        for name, size in listed[partition].get(file_id, ()):
            rel = join(partition, name)
            base = parse_base_file_name(name)
            if base is not None and base.instant == time:
                yield RollbackRequest(partition, file_id, time, files=(rel,))
            log = parse_log_file_name(name)
            if log is None:
                continue
            holds = _log_content(table, rel, log, time, rel in named)
            yield from _log_requests(partition, log, rel, size, holds)


def _log_content(table: HoodieTable, rel: str, log: LogFileName, time: str, named: bool) -> _Holds:
    if log.base_instant == time:
        return _Holds.ONLY
    if log.base_instant > time:
        return _Holds.NOTHING
    own = others = False
    for block in scan_log_file(table.storage, rel):
        if block.type is BlockType.CORRUPT:
            continue  # readers ignore it, and its instant is not known
        own |= block.instant == time
        others |= block.instant != time
    if others:
        return _Holds.AMONG_OTHERS if own else _Holds.NOTHING
    return _Holds.ONLY if own or named else _Holds.NOTHING


def _by_file_group(table: HoodieTable, partition: str) -> dict[str, list[tuple[str, int]]]:
    """(name, bytes) of a partition's data files by file id, in the order of their names."""
    found: dict[str, list[tuple[str, int]]] = {}
    for entry in table.storage.list(partition):
        parsed = None if entry.is_dir else parse_base_file_name(entry.name) or parse_log_file_name(entry.name)
        if parsed is not None:
            found.setdefault(parsed.file_id, []).append((entry.name, entry.size))
    return found


def _file_ids(table: HoodieTable, partition: str) -> list[str]:
    return sorted(_by_file_group(table, partition))


def _file_id(marker: Marker) -> str | None:
    parsed = parse_base_file_name(marker.file_name) or parse_log_file_name(marker.file_name)
    return parsed.file_id if parsed is not None else None


def plan_record(table: HoodieTable, failed: Instant, requests: Iterable[RollbackRequest]) -> dict[str, Any]:
    """The plan as Hudi's Avro record, with absolute paths. From version 8 on it has only files to delete, by name."""
    by_group = not table.config.names_logs_by_commit
    return {
        "instantToRollback": {"commitTime": failed.time, "action": failed.action},
        "RollbackRequests": [
            {
                "partitionPath": r.partition_path,
                "fileId": r.file_id if by_group else "",
                "latestBaseInstant": r.base_instant if by_group else "",
                "filesToBeDeleted": [table.storage.where(rel) for rel in r.files],
                "logBlocksToBeDeleted": {table.storage.where(rel): size for rel, size in r.log_blocks},
            }
            for r in requests
        ],
        "version": 1,
    }


def requests_of(record: dict[str, Any]) -> list[RollbackRequest]:
    """The steps of a stored plan of any writer; the table may have been copied since to another path."""
    found = []
    for r in record.get("RollbackRequests") or ():
        partition = r["partitionPath"]
        files = tuple(join(partition, path.rsplit("/", 1)[-1]) for path in r.get("filesToBeDeleted") or ())
        blocks = r.get("logBlocksToBeDeleted") or {}
        logs = tuple((join(partition, path.rsplit("/", 1)[-1]), size) for path, size in blocks.items())
        found.append(RollbackRequest(partition, r.get("fileId") or "", r.get("latestBaseInstant") or "", files, logs))
    return found


def list_temp(table: HoodieTable) -> list[FileEntry]:
    """The listing that :func:`sweep` needs."""
    return table.storage.list(TEMP_FOLDER)


def sweep(table: HoodieTable, entries: Sequence[FileEntry] | None = None) -> list[str]:
    """Delete files of late tasks, and their markers; returns their paths. Unfinished instants are skipped.

    ``entries``: a new listing from :func:`list_temp`.
    """
    entries = entries if entries is not None else list_temp(table)
    folders = [e.name for e in entries if e.is_dir and e.name.isdigit()]
    commits = {e.name: time for e in entries if not e.is_dir and (time := staged_instant(e.name)) is not None}
    if not folders and not commits:
        return []
    timeline = table.timeline()
    pending = {instant.time for instant in timeline.pending}
    removed = [f"{TEMP_FOLDER}/{name}" for name, time in commits.items() if time not in pending]
    table.storage.delete_many(removed)
    for time in folders:
        instant = timeline.find(time)
        if time in pending:
            continue
        if instant is None and timeline.is_archived(time):
            continue  # archived: its commit can no longer be read here
        kept = set()
        if instant is not None:
            kept = set(timeline.metadata(table.storage, instant).all_paths())
        late = [marker for marker in list_markers(table.storage, time) if marker.path not in kept]
        paths = [path for request in named_requests(table, time, late) for path in request.files]
        removed += [path for path in paths if table.storage.delete(path)]
        delete_markers(table.storage, time)
    return removed


def sweep_copies(table: HoodieTable, timeline: Timeline | None = None) -> list[str]:
    """Delete files again that the newest rollbacks have deleted, in case they reappeared; returns the checked names.

    Only for stores that publish by a copy: a copy that was in progress when its driver died or was paused may end after
    the rollback has removed source and target. A later call deletes it. Without rollbacks it costs reading the
    timeline, or nothing with ``timeline``, a new one.
    """
    if not table.storage.publishes_by_copy:
        return []
    timeline = timeline if timeline is not None else table.timeline()
    done = [i for i in timeline.instants if i.action == ROLLBACK and i.is_completed][-_ROLLBACKS:]
    names: set[str] = set()
    for rollback in done:
        rel = table.instant_path(rollback)
        record = read_record(table.storage.read(rel), table.storage.where(rel))
        for time in record.get("commitsRollback") or ():
            deleted = (
                join(partition, path.rpartition("/")[2])
                for partition, of in (record.get("partitionMetadata") or {}).items()
                for path in of.get("successDeleteFiles") or ()
            )
            names.update(_undone(table, timeline, time, deleted))
    found = sorted(names)
    table.storage.delete_many(found)
    return found


def _undone(table: HoodieTable, timeline: Timeline, time: str, paths: Iterable[str]) -> list[str]:
    """The paths that belong to no later execution of the rolled-back instant."""
    instant = timeline.find(time)
    kept: set[str] = set()
    if timeline.is_archived(time) if instant is None else not instant.is_completed:
        return []
    if instant is not None:
        kept = set(timeline.metadata(table.storage, instant).all_paths())
    markers = [Marker(path, FileKind.CREATE) for path in paths if path not in kept]
    return [path for request in named_requests(table, time, markers) for path in request.files]
