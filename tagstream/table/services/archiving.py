"""Archive completed actions of a table's timeline and of its metadata table's timeline.

1. The timeline, the last clean and the metadata table determine which actions are archived. All limits are Hudi's.
Times are instant times, except for the metadata table from version 8 on, which has completion times. 2. The actions are
written to the archive; the files of their unfinished states are removed, then the completed files, oldest first; small
files of the archive are merged (``table.history``). After an interruption the next call continues. 3. Remaining marker
folders of these actions are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tagstream.table.history.archive import archive
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.compaction import MAX_DELTA_COMMITS
from tagstream.table.metadata.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.metadata.rollback import forget_undone, newest_compaction
from tagstream.table.services.cleaning_plan import earliest_to_retain, last_clean
from tagstream.table.services.options import ArchiveOptions, CleanOptions
from tagstream.table.services.pending_clean import not_cleaned
from tagstream.table.services.retention import completed_at, needed_by_savepoints
from tagstream.table.timeline.instant import CLEAN, COMMIT, DELTA_COMMIT, REPLACE_COMMIT, ROLLBACK, SAVEPOINT, Instant
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.markers import TEMP_FOLDER, delete_markers

# Hudi's least numbers of commits on the timeline of a metadata table.
_METADATA_LEAST = ArchiveOptions(compaction_deltas=MAX_DELTA_COMMITS)


@dataclass(frozen=True)
class Limits:
    """What prevents archiving, in addition to the timeline itself.

    ``earliest``: the earliest commit that a clean would retain now. ``cleaned_to``: replace commits from here on may
    have replaced files on disk (None: there was no clean); ``replaced_on_disk``: one that has. ``merge_on_read``:
    compactions depend on the number of delta commits. ``metadata``: the table has a metadata table, which was last
    compacted at ``metadata_compacted``. ``data_start``: for a metadata table, the earliest active write of its table.
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
    """The completed actions to archive now, oldest first."""
    writes = _writes(timeline, options, limits)
    return tuple(sorted([*writes, *_others(timeline, options, limits, writes)], key=lambda i: (i.time, i.action)))


def kept_commits(timeline: Timeline, options: ArchiveOptions, earliest: str | None) -> tuple[int, int]:
    """(least, most) number of completed writes to keep on the timeline; more if the cleaner needs them."""
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
    """The times from which on writes must stay on the timeline, one for each reason."""
    done = timeline.completed_writes
    pending = next((i.time for i in timeline.pending if i.is_write), None)
    if pending is not None:
        yield max((i.time for i in done if i.time < pending), default=pending)
    if not options.beyond_savepoint:
        yield from needed_by_savepoints(timeline)
    if limits.replaced_on_disk is not None:
        yield limits.replaced_on_disk
    if limits.merge_on_read and options.compaction_deltas is not None:
        yield from _counted(done, options.compaction_deltas)
    if limits.merge_on_read and limits.layout == 2 and options.keep_uncompacted:
        compaction = max((i.time for i in done if i.action == COMMIT), default="")
        yield from (i.time for i in done if i.action == DELTA_COMMIT and i.time > compaction)
    # Their replaced files are not cleaned yet: without the commit they would become visible again.
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
    """Whether the base files of the metadata table have the entries of an action: otherwise it needs the action."""
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
    """Cleans and rollbacks to archive. The newest clean stays, because the next one starts from it.

    The metadata table uses the entries of such an action only if the action is on the timeline, or older than the whole
    timeline. So it must have compacted them.
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


@dataclass(frozen=True)
class ArchiveResult:
    """``instants``: the archived actions, oldest first. ``files``: the names of the files removed from the timeline."""

    instants: tuple[Instant, ...]
    files: tuple[str, ...]


def plan_archive(
    table: HoodieTable,
    options: ArchiveOptions,
    clean: CleanOptions,
    clock_ms: Callable[[], int],
    timeline: Timeline | None = None,
) -> tuple[Instant, ...]:
    """The actions that would be archived now. ``clean``: the table's clean options, because cleans need some actions.

    ``timeline``: the present one, if the caller has read it.
    """
    timeline = timeline if timeline is not None else table.timeline()
    writer = MetadataWriter.open(table)
    earliest = earliest_to_retain(timeline, clean, clock_ms(), table.config.timezone_utc)
    limits = Limits(
        layout=_layout(table),
        merge_on_read=table.config.is_merge_on_read,
        earliest=earliest.time if earliest is not None else None,
        cleaned_to=_cleaned_to(table, timeline),
        metadata=writer is not None,
        metadata_compacted=newest_compaction(writer.timeline()) if writer is not None else None,
    )
    chosen = instants_to_archive(timeline, options, limits)
    replacing = [i for i in chosen if i.action == REPLACE_COMMIT]
    held = not_cleaned(table, timeline, replacing) if replacing else None
    return chosen if held is None else instants_to_archive(timeline, options, replace(limits, replaced_on_disk=held))


def archive_table(
    table: HoodieTable,
    options: ArchiveOptions,
    clean: CleanOptions,
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
    timeline: Timeline | None = None,
) -> ArchiveResult | None:
    """Archive all possible actions; None when there is none, or when it is not due.

    The caller has the writer lease, which ``check`` verifies. ``reach`` is called at the steps ``archive_written``,
    ``archive_unfinished_removed`` and ``archive_removed``. ``timeline``: the present one; without it, it is read.
    """
    chosen = plan_archive(table, options, clean, clock_ms, timeline)
    if not chosen:
        return None
    check()
    writer = MetadataWriter.open(table)
    if writer is not None and any(i.action == ROLLBACK for i in chosen):
        forget_undone(writer, fresh_times(table, writer, clock_ms))
    files = archive(table.timeline_place(), chosen, options.merge, check, reach)
    left = {entry.name for entry in table.storage.list(TEMP_FOLDER) if entry.is_dir}
    for time in sorted(left & {i.time for i in chosen if i.is_write}):
        delete_markers(table.storage, time)
    return ArchiveResult(chosen, files)


def archive_metadata(
    writer: MetadataWriter, options: ArchiveOptions = _METADATA_LEAST, check: Callable[[], None] = lambda: None
) -> tuple[Instant, ...]:
    """Archive actions of the metadata table that are archived on its table's timeline; returns them.

    ``options``: those of the table. At least Hudi's minimum of commits of a metadata table is kept.
    """
    options = replace(
        options,
        min_commits=max(options.min_commits, _METADATA_LEAST.min_commits),
        max_commits=max(options.max_commits, _METADATA_LEAST.max_commits),
        compaction_deltas=MAX_DELTA_COMMITS,
    )
    start = writer.table.timeline().start
    if start is None:
        return ()
    own = HoodieTable(writer.storage, writer.config)
    limits = Limits(layout=_layout(own), merge_on_read=True, data_start=start)
    chosen = instants_to_archive(writer.timeline(), options, limits)
    if chosen:
        check()
        archive(own.timeline_place(), chosen, options.merge, check)
    return chosen


def _layout(table: HoodieTable) -> int:
    return 2 if table.config.has_completion_times else 1


def _cleaned_to(table: HoodieTable, timeline: Timeline) -> str | None:
    """The time from which on replaced files may exist. A clean that keeps file versions deletes all replaced files."""
    if not any(i.action == REPLACE_COMMIT for i in timeline.completed_writes):
        return None
    last = last_clean(table.storage, timeline)
    if last is None:
        return None
    return last.earliest or last.time
