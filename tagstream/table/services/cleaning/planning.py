"""What a clean would do to a table now: its timeline, savepoints and last clean read, the partitions in scope listed."""

from __future__ import annotations

from tagstream.table.file_group.names import next_instant
from tagstream.table.file_group.partition_metadata import list_partitions
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.retention.needed import Held, savepointed_names
from tagstream.table.services.cleaning.last_clean import NEXT_WRITE, SAVEPOINTED, last_clean
from tagstream.table.services.cleaning.options import CleanOptions, CleanPolicy
from tagstream.table.services.cleaning.plan import CleanPlan, old_files
from tagstream.table.services.cleaning.retain import earliest_to_retain
from tagstream.table.services.cleaning.scope import partitions_in_scope
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.instant import LOG_COMPACTION
from tagstream.table.timeline.savepoints import savepoints
from tagstream.table.timeline.timeline import FileGroupId, Timeline

# So many commits that a clean looked at in vain are remembered by a clean that deletes nothing.
_REMEMBERED_COMMITS = 10


def plan_table(
    table: HoodieTable, options: CleanOptions, now_ms: int, *, due: bool = True, timeline: Timeline | None = None
) -> CleanPlan | None:
    """What a clean would do now; None when it would do nothing, or (``due``) too few commits have come since the last.

    A plan without files only remembers how far was looked. Nothing is changed. ``timeline``: as it is now.
    """
    timeline, storage = timeline if timeline is not None else table.timeline(), table.storage
    last = last_clean(storage, timeline)
    since = [i for i in timeline.completed_writes if last is None or (i.completion_time or i.time) > last.time]
    newest = timeline.newest_completed
    if newest is None or (due and len(since) < options.max_commits):
        return None
    earliest = earliest_to_retain(
        timeline, options, now_ms, table.config.timezone_utc, last.earliest if last is not None else None
    )
    by_version = options.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS
    if earliest is None and not by_version:
        return None
    saved = savepoints(storage, timeline)
    scope = partitions_in_scope(
        timeline, options, earliest.time if earliest is not None else None, last, frozenset(s.time for s in saved),
        lambda instant: timeline.metadata(storage, instant), lambda: _all_partitions(table, timeline),
    )  # fmt: skip
    held = Held(savepointed_names(saved), busy_groups(storage, timeline))
    files, partitions = old_files(table.view(timeline), scope.partitions, options, earliest, held)
    if not files and not (options.incremental and (scope.whole or scope.commits >= _REMEMBERED_COMMITS)):
        return None
    extra = {SAVEPOINTED: ",".join(s.time for s in saved)} if saved else {}
    if by_version:
        extra[NEXT_WRITE] = min([next_instant(0, newest), *(i.time for i in timeline.pending if i.is_write)])
    return CleanPlan(options.policy, earliest, newest, files, partitions, len(scope.partitions), extra)


def busy_groups(storage: Storage, timeline: Timeline) -> frozenset[FileGroupId]:
    """The file groups of pending log compactions, whose plans name no slice that they begin."""
    plans = (timeline.plan(storage, i) for i in timeline.pending if i.action == LOG_COMPACTION)
    return frozenset((s.partition_path, s.file_id) for plan in plans for s in plan.rewrites)


def _all_partitions(table: HoodieTable, timeline: Timeline) -> list[str]:
    metadata = MetadataTable.open(table, timeline)
    return metadata.partition_paths() if metadata is not None else list_partitions(table.storage)
