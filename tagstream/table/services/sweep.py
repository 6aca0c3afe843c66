"""Remove what late tasks leave behind: files written for an instant that was settled without them.

A task of a killed run, or the slower one of two attempts, may still write when its instant has been completed or
rolled back. What it stages takes only room; so does a staged commit whose writer was killed between publishing it and taking
it away. What other writers (earlier versions of this one, Hudi) publish from a task has
a marker, so the marker folder comes back and tells of it. Such a file must go: a second base file of a completed instant
would be taken for the first, and one of a rolled-back instant would count as soon as the timeline's start has moved past it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tagstream.table.file_group.partition_metadata import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.rollback_plan import named_requests
from tagstream.table.storage.storage import FileEntry
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.instant import ROLLBACK
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.timeline.write_status import FileKind
from tagstream.table.write.markers import TEMP_FOLDER, Marker, delete_markers, list_markers
from tagstream.table.write.staged import staged_instant

_ROLLBACKS = 20  # the newest: a copy that is under way lasts seconds


def look_for_late(table: HoodieTable) -> list[FileEntry]:
    """What :func:`sweep` goes by."""
    return table.storage.list(TEMP_FOLDER)


def sweep(table: HoodieTable, entries: Sequence[FileEntry] | None = None) -> list[str]:
    """Delete such files and their markers; returns their paths. Unfinished instants are left alone.

    ``entries``: what :func:`look_for_late` has just found.
    """
    entries = entries if entries is not None else look_for_late(table)
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
            continue  # archived: its commit can no longer say which files are its own
        kept = set()
        if instant is not None:
            kept = {stat.path for stat in timeline.metadata(table.storage, instant).all_stats()}
        late = [marker for marker in list_markers(table.storage, time) if marker.path not in kept]
        paths = [path for request in named_requests(table, time, late) for path in request.files]
        removed += [path for path in paths if table.storage.delete(path)]
        delete_markers(table.storage, time)
    return removed


def sweep_copies(table: HoodieTable, timeline: Timeline | None = None) -> list[str]:
    """Delete what the newest rollbacks have deleted already, if it came back; returns the names that were looked for.

    Only where publishing is a copy inside the store: one that was under way when its driver died, or stood still, lands
    after the rollback has removed source and target. A later call finds it. Where there is no rollback it costs a look at
    the timeline, or nothing with ``timeline``, a fresh one.
    """
    if not table.storage.publishes_by_copy:
        return []
    timeline = timeline if timeline is not None else table.timeline()
    done = [i for i in timeline.instants if i.action == ROLLBACK and i.is_completed][-_ROLLBACKS:]
    names: set[str] = set()
    for rollback in done:
        rel = f"{table.config.timeline_folder}/{rollback.file_name()}"
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
    """Those of the paths that are still nobody's: not of an execution that came after the one that was taken back."""
    instant = timeline.find(time)
    kept: set[str] = set()
    if timeline.is_archived(time) if instant is None else not instant.is_completed:
        return []
    if instant is not None:
        kept = {stat.path for stat in timeline.metadata(table.storage, instant).all_stats()}
    markers = [Marker(path, FileKind.CREATE) for path in paths if path not in kept]
    return [path for request in named_requests(table, time, markers) for path in request.files]
