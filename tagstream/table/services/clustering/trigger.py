"""Whether it is time for another clustering, and what the last ones have left as they made it."""

from __future__ import annotations

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.clustering.groups import SORT_COLUMNS
from tagstream.table.timeline.instant import REPLACE_COMMIT, Instant
from tagstream.table.timeline.plans import CLUSTER
from tagstream.table.timeline.timeline import Timeline

SORTED_BY = SORT_COLUMNS  # in the extra metadata of a clustering of this project


def is_due(table: HoodieTable, timeline: Timeline, max_commits: int) -> bool:
    """Whether so many writes were completed since the last clustering; never while one is pending."""
    if timeline.pending_clusterings:
        return False
    last = last_clustering(table, timeline)
    since = [i for i in timeline.completed_writes if last is None or i.time > last.time]
    return len(since) >= max_commits


def last_clustering(table: HoodieTable, timeline: Timeline) -> Instant | None:
    """The newest completed clustering on the active timeline."""
    for instant in reversed(timeline.completed_writes):
        if instant.action == REPLACE_COMMIT and timeline.metadata(table.storage, instant).operation == CLUSTER:
            return instant
    return None


def settled_groups(table: HoodieTable, timeline: Timeline, sort_columns: tuple[str, ...]) -> frozenset[str]:
    """File ids that clusterings by these columns have written, and no later write on the active timeline has touched."""
    touched: set[str] = set()
    found: set[str] = set()
    for instant in reversed(timeline.completed_writes):
        metadata = timeline.metadata(table.storage, instant)
        ids = {stat.file_id for stat in metadata.all_stats()}
        if metadata.operation == CLUSTER and metadata.extra.get(SORTED_BY, "") == ",".join(sort_columns):
            found |= ids - touched
        touched |= ids
    return frozenset(found)
