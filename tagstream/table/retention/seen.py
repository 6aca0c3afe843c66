"""What a reader saw of a table in the moment when a write had just been completed.

From version 8 on an action counts from its completion time on: a compaction that was requested before a write and completed
after it did not count then. Up to version 7 no completion times are recorded, and an action counts by its own time.
"""

from __future__ import annotations

from dataclasses import replace

from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.timeline.instant import Instant, State
from tagstream.table.timeline.timeline import Timeline


def completed_at(instant: Instant) -> str:
    """The time from which on a completed action counts."""
    return instant.completion_time or instant.time


def newest_write(timeline: Timeline) -> Instant | None:
    """The write that was completed last: what a reader sees now is what it saw then."""
    return max(timeline.completed_writes, key=completed_at, default=None)


def as_of_completion(timeline: Timeline, write: Instant) -> Timeline:
    """The timeline as of the completion of ``write``: writes that were completed later are unfinished ones in it.

    They are not left out: an action that is older than the whole timeline counts as archived, so as completed.
    """
    end = completed_at(write)
    later = {i.time for i in timeline.completed_writes if completed_at(i) > end}
    instants = tuple(
        replace(i, state=State.INFLIGHT, completion_time=None) if i.is_write and i.time in later else i
        for i in timeline.instants
    )
    # Up to version 7 logs are named by a plan of a compaction, which was there if it is older than the write.
    planned = {group: time for group, time in timeline.pending_compactions.items() if time <= write.time}
    replaced = {group: time for group, time in timeline.replaced.items() if time not in later}
    return replace(timeline, instants=instants, pending_compactions=planned, replaced=replaced)


def view_as_of(view: FileSystemView, write: Instant) -> FileSystemView:
    """The file slices that a reader saw as of the completion of ``write``, as far as their files are there still.

    ``view``: one of now, whose listing is used.
    """
    timeline = as_of_completion(view.timeline, write)
    return replace(view, timeline=timeline, as_of=timeline.newest_completed)
