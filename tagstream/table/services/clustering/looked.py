"""What an earlier plan has looked at, so that the next one looks at partitions that were written to since.

A plan says in its extra metadata up to when it has seen all writes, by which options, and which partitions had more to join
than it could take. What lies in other partitions is as that plan found it: joined, or not to be joined. Without such a plan,
with other options, or where a later write has been archived, all partitions are looked at.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from hashlib import blake2b

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.clustering.groups import pending_action
from tagstream.table.services.clustering.options import ClusteringOptions, PartitionFilter
from tagstream.table.services.compaction.candidates import newest_told, taken_before
from tagstream.table.timeline.instant import CLUSTERING, REPLACE_COMMIT
from tagstream.table.timeline.timeline import Timeline

_LOOKED = "tagstream.clustering.looked"
# These choose other partitions as time goes by.
_BY_TIME = (PartitionFilter.RECENT_DAYS, PartitionFilter.DAY_ROLLING)
# Of the options: how much work a plan and a task take, and when. They change nothing in what is to be joined.
_OF_NO_ACCOUNT = ("max_commits", "max_groups", "max_memory")


@dataclass(frozen=True)
class Looked:
    """``since``: all writes of an earlier time were seen. ``options``: digest. ``left``: partitions with more to join."""

    since: str
    options: str
    left: frozenset[str] = frozenset()

    @staticmethod
    def at(timeline: Timeline, instant: str, options: ClusteringOptions, left: Iterable[str] = ()) -> Looked | None:
        """A look at a timeline, for a plan of ``instant``; None with options that go by the time."""
        if options.filter in _BY_TIME:
            return None
        return Looked(taken_before(timeline, instant), _digest(options), frozenset(left))

    def to_extra(self) -> dict[str, str]:
        """For a plan's extra metadata."""
        return {_LOOKED: json.dumps({"since": self.since, "options": self.options, "left": sorted(self.left)})}


def partitions_to_look_at(
    table: HoodieTable, timeline: Timeline, options: ClusteringOptions, remembered: Looked | None = None
) -> frozenset[str] | None:
    """Partition paths; None: all. ``remembered``: a look that led to no plan, of which nothing on the timeline tells."""
    if options.filter in _BY_TIME:
        return None
    told = [
        look for look in (_told(table, timeline), remembered) if look is not None and look.options == _digest(options)
    ]
    if not told:
        return None
    newest = max(told, key=lambda look: look.since)  # of two the first one, whose plan has left something
    if timeline.start is None or timeline.start > newest.since:
        return None
    found = set(newest.left)
    for instant in timeline.completed_writes:
        if instant.time >= newest.since:
            metadata = timeline.metadata(table.storage, instant)
            found |= {stat.partition_path for stat in metadata.all_stats()} | set(metadata.replaced or {})
    return frozenset(found)


def _told(table: HoodieTable, timeline: Timeline) -> Looked | None:
    """What the newest plan says that says anything."""
    plans = (i for i in timeline.instants if i.action in (CLUSTERING, REPLACE_COMMIT))
    told = newest_told(table, plans, pending_action(table), _LOOKED)
    if told is None:
        return None
    found = json.loads(told)
    return Looked(found["since"], found["options"], frozenset(found["left"]))


def _digest(options: ClusteringOptions) -> str:
    told = {name: value for name, value in asdict(options).items() if name not in _OF_NO_ACCOUNT}
    return blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=8).hexdigest()
