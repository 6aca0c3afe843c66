"""Which file groups may have log files, told by the commits that wrote some: a plan then looks at what changed alone.

A plan that takes every slice with logs says so in its extra metadata: all logs of older writes are behind it, and the next
plan looks only at the file groups that later delta commits name. Without such a plan, or where a later commit has been
archived, the table is listed.
"""

from __future__ import annotations

from collections.abc import Iterable

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.instant import COMMIT, COMPACTION, LOG_COMPACTION, Instant
from tagstream.table.timeline.plans import requested_name
from tagstream.table.timeline.timeline import FileGroupId, Timeline

# In a plan's extra metadata: no slice had logs of an older write that the plan did not take.
TAKEN_BEFORE = "tagstream.compaction.taken.before"


def groups_with_logs(table: HoodieTable, timeline: Timeline) -> dict[str, frozenset[str]] | None:
    """File ids by partition path of all groups that may have logs; None: only a listing can tell."""
    since = _taken_before(table, timeline)
    if since is None and not _is_whole(table):
        return None
    if since is not None and (timeline.start is None or timeline.start > since):
        return None
    # Some writers put logs into new file groups by a replace commit; a plain commit is a compaction's, and has none.
    writes = [i for i in timeline.completed_writes if i.action != COMMIT and (since is None or i.time >= since)]
    found: dict[str, set[str]] = {}
    for instant in writes:
        for stat in timeline.metadata(table.storage, instant).all_stats():
            if stat.file_name.startswith("."):
                found.setdefault(stat.partition_path, set()).add(stat.file_id)
    return {partition: frozenset(ids) for partition, ids in sorted(found.items())}


def taken_before(timeline: Timeline, instant: str) -> str:
    """What a plan that takes all says: every write of an earlier time was completed when it was made."""
    return min([instant, *(i.time for i in timeline.pending)])


def planned_otherwise(table: HoodieTable, timeline: Timeline) -> frozenset[FileGroupId]:
    """File groups that a pending compaction, log compaction or clustering is about: no other plan may have them."""
    return frozenset([*timeline.pending_compactions, *timeline.pending_clusterings, *_log_compactions(table, timeline)])


def _log_compactions(table: HoodieTable, timeline: Timeline) -> Iterable[FileGroupId]:
    for instant in timeline.pending:
        if instant.action == LOG_COMPACTION:
            yield from ((s.partition_path, s.file_id) for s in timeline.plan(table.storage, instant).rewrites)


def _taken_before(table: HoodieTable, timeline: Timeline) -> str | None:
    """What the newest plan says that took all logs."""
    plans = (i for i in timeline.instants if i.action == COMPACTION or (i.action == COMMIT and i.is_completed))
    return newest_told(table, plans, COMPACTION, TAKEN_BEFORE)


def newest_told(table: HoodieTable, instants: Iterable[Instant], action: str, key: str) -> str | None:
    """What the newest of these actions' plans says under a key of its extra metadata, among those that say anything.

    ``instants``: oldest first; ``action``: what their plans' requested files are called. Actions without a plan are passed
    over.
    """
    for instant in reversed(tuple(instants)):
        rel = f"{table.config.timeline_folder}/{requested_name(Instant(instant.time, action, instant.state))}"
        try:
            data = table.storage.read(rel)
        except FileNotFoundError:
            continue
        plan = read_record(data, table.storage.where(rel)) if data else {}
        told = (plan.get("extraMetadata") or {}).get(key)
        if told:
            return str(told)
    return None


def _is_whole(table: HoodieTable) -> bool:
    """Whether the active timeline has every write there ever was."""
    return not any(not name.startswith(".keep") for name in table.storage.names(table.config.history_folder))
