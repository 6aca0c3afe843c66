"""From which commit on everything stays: the earliest commit to retain, as Hudi's cleaner reckons it."""

from __future__ import annotations

from tagstream.table.file_group.names import instant_from_ms
from tagstream.table.services.cleaning.options import CleanOptions, CleanPolicy
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.timeline import Timeline

_HOUR_MS = 3_600_000


def earliest_to_retain(
    timeline: Timeline, options: CleanOptions, now_ms: int, utc: bool, last: str | None = None
) -> Instant | None:
    """The completed write whose slices, and all later ones, stay; None when nothing may go, or the policy has none.

    ``last``: the one of the last clean, from which ``max_commits_to_clean`` counts. ``utc``: the zone of instants. A
    pending write, plans among them, keeps everything that it may read: the newest write before it is retained, too.
    """
    done = timeline.completed_writes
    if options.policy is CleanPolicy.KEEP_LATEST_COMMITS:
        if len(done) <= options.commits:
            return None
        wanted = len(done) - options.commits
    elif options.policy is CleanPolicy.KEEP_LATEST_BY_HOURS:
        if not done:
            return None
        oldest = instant_from_ms(now_ms - options.hours * _HOUR_MS, utc)
        wanted = next((n for n, instant in enumerate(done) if instant.time >= oldest), len(done) - 1)
    else:
        return None
    pending = next((i.time for i in timeline.pending if i.is_write), None)
    if pending is not None and done[wanted].time > pending:
        wanted = sum(i.time < pending for i in done) - 1
    if last is not None and options.max_commits_to_clean is not None:
        wanted = min(wanted, sum(i.time < last for i in done) + options.max_commits_to_clean)
    return done[wanted] if wanted >= 0 else None
