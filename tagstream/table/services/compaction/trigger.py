"""Whether it is time for another compaction: delta commits and seconds since the last one."""

from __future__ import annotations

from dataclasses import dataclass

from tagstream.table.metadata.encode.locations import instant_ms
from tagstream.table.services.compaction.options import CompactionOptions, Trigger
from tagstream.table.timeline.instant import COMMIT, COMPACTION, DELTA_COMMIT, Instant
from tagstream.table.timeline.timeline import Timeline


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
