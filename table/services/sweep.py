"""Remove what late tasks leave behind: files written for an instant that was settled without them.

A task of a killed run, or the slower one of two attempts, may still write when its instant has been completed or
rolled back. What it stages takes only room. What other writers (earlier versions of this one, Hudi) publish from a task has
a marker, so the marker folder comes back and tells of it. Such a file must go: a second base file of a completed instant
would be taken for the first, and one of a rolled-back instant would count as soon as the timeline's start has moved past it.
"""

from __future__ import annotations

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.rollback_plan import named_requests
from tagstream.table.write.markers import TEMP_FOLDER, delete_markers, list_markers


def sweep(table: HoodieTable) -> list[str]:
    """Delete such files and their markers; returns their paths. Unfinished instants are left alone."""
    folders = [e.name for e in table.storage.list(TEMP_FOLDER) if e.is_dir and e.name.isdigit()]
    if not folders:
        return []
    timeline = table.timeline()
    pending = {instant.time for instant in timeline.pending}
    removed: list[str] = []
    for time in folders:
        instant = timeline.find(time)
        if time in pending:
            continue
        if instant is None and timeline.is_valid(time):
            continue  # archived: its commit can no longer say which files are its own
        kept = set()
        if instant is not None:
            kept = {stat.path for stat in timeline.metadata(table.storage, instant).all_stats()}
        late = [marker for marker in list_markers(table.storage, time) if marker.path not in kept]
        paths = [path for request in named_requests(table, time, late) for path in request.files]
        removed += [path for path in paths if table.storage.delete(path)]
        delete_markers(table.storage, time)
    return removed
