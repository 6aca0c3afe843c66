"""Which completed actions may leave the active timeline: a function of the timeline and of what holds them back.

All limits are Hudi's. Times are those of requests, but for the metadata table's from version 8 on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tagstream.table.retention.leaving import held_by_savepoints
from tagstream.table.retention.seen import completed_at
from tagstream.table.services.archiving.options import ArchiveOptions
from tagstream.table.timeline.instant import CLEAN, COMMIT, DELTA_COMMIT, REPLACE_COMMIT, ROLLBACK, SAVEPOINT, Instant
from tagstream.table.timeline.timeline import Timeline


@dataclass(frozen=True)
class Limits:
    """What holds actions back, beside the timeline itself.

    ``earliest``: the earliest commit that a clean would retain now. ``cleaned_to``: replace commits from here on may have
    replaced files on disk (None: there was no clean); ``replaced_on_disk``: one that has. ``merge_on_read``: compactions are
    counted by delta commits.
    ``metadata``: the table has a metadata table, which was last compacted at ``metadata_compacted``. ``data_start``: of a
    metadata table: the earliest active write of its table.
    """

    layout: int
    merge_on_read: bool
    earliest: str | None = None
    cleaned_to: str | None = None
    replaced_on_disk: str | None = None
    metadata: bool = False
    metadata_compacted: str | None = None
    data_start: str | None = None


def instants_to_archive(timeline: Timeline, options: ArchiveOptions, limits: Limits) -> tuple[Instant, ...]:
    """The completed actions to be archived now, oldest first."""
    writes = _writes(timeline, options, limits)
    return tuple(sorted([*writes, *_others(timeline, options, limits, writes)], key=lambda i: (i.time, i.action)))


def kept_commits(timeline: Timeline, options: ArchiveOptions, earliest: str | None) -> tuple[int, int]:
    """(least, most) completed writes on the timeline: more where the cleaner needs them."""
    least, most = options.min_commits, options.max_commits
    if earliest is not None:
        needed = sum(i.time > earliest for i in timeline.completed_writes) + 2
        if needed > least:
            return needed, needed + most - least
    return least, most


def _writes(timeline: Timeline, options: ArchiveOptions, limits: Limits) -> list[Instant]:
    done = timeline.completed_writes
    least, most = kept_commits(timeline, options, limits.earliest)
    if len(done) <= most or (limits.metadata and limits.metadata_compacted is None):
        return []
    stop = min(_stops(timeline, options, limits), default=None)
    saved = {i.time for i in timeline.instants if i.action == SAVEPOINT}
    return [
        i
        for i in done[: len(done) - least]
        if (stop is None or i.time < stop) and not (options.beyond_savepoint and i.time in saved)
    ]


def _stops(timeline: Timeline, options: ArchiveOptions, limits: Limits) -> Iterator[str]:
    """The times from which on a write has to stay, one for each reason."""
    done = timeline.completed_writes
    pending = next((i.time for i in timeline.pending if i.is_write), None)
    if pending is not None:
        yield max((i.time for i in done if i.time < pending), default=pending)
    if not options.beyond_savepoint:
        yield from held_by_savepoints(timeline)
    if limits.replaced_on_disk is not None:
        yield limits.replaced_on_disk
    if limits.merge_on_read and options.compaction_deltas is not None:
        yield from _counted(done, options.compaction_deltas)
    if limits.merge_on_read and limits.layout == 2 and options.keep_uncompacted:
        compaction = max((i.time for i in done if i.action == COMMIT), default="")
        yield from (i.time for i in done if i.action == DELTA_COMMIT and i.time > compaction)
    # Their replaced files are not cleaned yet: without the commit they would count again.
    yield from (
        i.time
        for i in done
        if i.action == REPLACE_COMMIT and (limits.cleaned_to is None or i.time >= limits.cleaned_to)
    )
    if limits.metadata_compacted is not None:
        yield from (i.time for i in done if not _is_compacted(i, limits))
    if limits.data_start is not None:
        yield limits.data_start


def _is_compacted(instant: Instant, limits: Limits) -> bool:
    """Whether the base files of the metadata table have what it was told of an action: else it must find the action."""
    if not limits.metadata:
        return True
    at = completed_at(instant) if limits.layout == 2 else instant.time
    return limits.metadata_compacted is not None and at < limits.metadata_compacted


def _counted(done: tuple[Instant, ...], deltas: int) -> Iterator[str]:
    """The earliest write that still counts for the next compaction."""
    compaction = next((i.time for i in reversed(done) if i.action == COMMIT), None)
    since = [i.time for i in done if i.action == DELTA_COMMIT and (compaction is None or i.time > compaction)]
    if len(since) >= deltas:
        yield since[-deltas]
    elif compaction is not None:
        yield compaction
    elif since:
        yield since[0]


def _others(timeline: Timeline, options: ArchiveOptions, limits: Limits, writes: list[Instant]) -> Iterator[Instant]:
    """Cleans and rollbacks. The newest clean stays: the next one begins where it has ended.

    The metadata table reads what it was told of one only as long as the action is on the timeline, or older than all of
    that; so it must have compacted it.
    """
    for action in (CLEAN,) if options.keep_rollbacks else (CLEAN, ROLLBACK):
        done = [i for i in timeline.instants if i.action == action and i.is_completed]
        newest = done[-1:] if action == CLEAN else []
        if limits.layout == 1:
            old = done[: -options.min_commits] if len(done) > options.max_commits else []
        else:
            old = [i for i in done if writes and i.time < writes[-1].time]
        yield from (
            i
            for i in old
            if i not in newest
            and (limits.data_start is None or i.time[:17] < limits.data_start)
            and _is_compacted(i, limits)
        )
