"""The partitions a clean looks at: those in which something may have become old since the last one.

A slice becomes old by a later slice of its group, which a commit wrote that is named on the timeline. So the partitions of
the commits between the earliest one that the last clean retained and the one that this clean retains are all it takes. The
cost follows what changed, and not the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tagstream.table.each import each
from tagstream.table.services.cleaning.last_clean import LastClean
from tagstream.table.services.cleaning.options import CleanOptions, CleanPolicy
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.timeline import Timeline


@dataclass(frozen=True)
class Scope:
    """``partitions``: those to look at, sorted. ``whole``: they are all of the table's. ``commits``: how many were read."""

    partitions: tuple[str, ...]
    whole: bool
    commits: int = 0


def partitions_in_scope(
    timeline: Timeline,
    options: CleanOptions,
    earliest: str | None,
    last: LastClean | None,
    savepoints: frozenset[str],
    read: Callable[[Instant], CommitMetadata],
    everything: Callable[[], Iterable[str]],
) -> Scope:
    """``earliest``: the commit that is retained, None where the policy has none. ``savepoints``: their times now.

    ``read`` and ``everything`` give a write's metadata and all partitions, and are called as far as needed.
    """
    since = _since(timeline, options, last, savepoints)
    if since is None:
        return Scope(tuple(sorted(everything())), whole=True)
    touching = [i for i in timeline.completed_writes if since <= i.time and (earliest is None or i.time < earliest)]
    names = {name for metadata in each(read, touching) for name in (*metadata.stats, *metadata.replaced)}
    return Scope(tuple(sorted(names)), whole=False, commits=len(touching))


def _since(timeline: Timeline, options: CleanOptions, last: LastClean | None, savepoints: frozenset[str]) -> str | None:
    """The first write that counts; None when all partitions are to be looked at."""
    if not options.incremental or last is None:
        return None
    if last.savepoints - savepoints:
        return None  # what a deleted savepoint has held back may be anywhere
    since = last.next_write if options.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS else last.earliest
    if since is None or timeline.start is None or since < timeline.start:
        return None
    return since
