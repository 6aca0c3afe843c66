"""Archiving a table's timeline, and that of its metadata table.

1. Which actions go follows from the timeline, the cleaner's state and the metadata table (``choose``).
2. They are written to the archive; their unfinished states' files are removed, then the completed ones, oldest first;
   small files of the archive are merged (``timeline.history.archive``). Cut off anywhere, the next call continues.
3. Marker folders that they have left are removed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.write.compaction import MAX_DELTA_COMMITS
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.metadata.write.rollback import forget_undone, newest_compaction
from tagstream.table.services.archiving.choose import Limits, instants_to_archive
from tagstream.table.services.archiving.options import ArchiveOptions
from tagstream.table.services.cleaning.last_clean import last_clean
from tagstream.table.services.cleaning.options import CleanOptions
from tagstream.table.services.cleaning.replaced import not_cleaned
from tagstream.table.services.cleaning.retain import earliest_to_retain
from tagstream.table.timeline.history.archive import archive
from tagstream.table.timeline.instant import REPLACE_COMMIT, ROLLBACK, Instant
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.markers import TEMP_FOLDER, delete_markers

# Hudi's least numbers of commits on the timeline of a metadata table.
_METADATA_LEAST = ArchiveOptions(compaction_deltas=MAX_DELTA_COMMITS)


@dataclass(frozen=True)
class ArchiveResult:
    """``instants``: the actions that were archived, oldest first; ``files``: the names that left the timeline's folder."""

    instants: tuple[Instant, ...]
    files: tuple[str, ...]


def plan_archive(
    table: HoodieTable,
    options: ArchiveOptions,
    clean: CleanOptions,
    clock_ms: Callable[[], int],
    timeline: Timeline | None = None,
) -> tuple[Instant, ...]:
    """The actions that would be archived now. ``clean``: how the table is cleaned, for what the cleaner has to see;
    ``timeline``: as it is now."""
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
    """Archive what may go; None where nothing may, or is not due.

    The caller holds the writer lease, which ``check`` looks after. ``reach`` is told of the steps ``archive_written``,
    ``archive_unfinished_removed`` and ``archive_removed``. ``timeline``: as it is now; without one, it is looked at.
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
    """Archive the metadata table's own actions, as far as those of its table are archived; which were.

    ``options``: those of the data; of them as many commits stay as Hudi keeps of a metadata table at least.
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
    """From which time on replaced files may be there; one that keeps file versions deletes all that it meets."""
    if not any(i.action == REPLACE_COMMIT for i in timeline.completed_writes):
        return None
    last = last_clean(table.storage, timeline)
    if last is None:
        return None
    return last.earliest or last.time
