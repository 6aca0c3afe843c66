"""Which locations count: those of commits that the timeline knows, in file groups that are still there."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.index.base import TableAsOf
from tagstream.index.hbase.errors import HbaseRowError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.instant import REPLACE_COMMIT, ROLLBACK
from tagstream.table.timeline.timeline import Timeline

_CLUSTER = "CLUSTER"


@dataclass(frozen=True, eq=False)
class Commits:
    """What a look at the timeline says about locations; a picklable value that travels with the tasks.

    A commit counts as in Hudi's ``checkIfValidCommit``: some commit is completed, and this one is or is older than the
    timeline's start. A write that was rolled back before the oldest commit would look older, too, so ``rolled_back`` are
    those that the timeline still tells of. ``seen_until`` is the newest time the look knows, of whatever state.
    ``dropped`` and ``clustered`` are file groups (partition path, zero byte, file id) that a replace commit took away, by
    kind.
    """

    completed: pa.Array
    start: str | None
    rolled_back: pa.Array
    seen_until: str
    dropped: pa.Array
    clustered: pa.Array

    @staticmethod
    def of(look: TableAsOf) -> Commits:
        """From the timeline of a look, nothing newer than its ``as_of``."""
        timeline, as_of = look.timeline, look.as_of
        completed = [i.time for i in timeline.completed_writes if as_of is not None and i.time <= as_of]
        clusterings = _clusterings(look.table, timeline)
        groups = {f"{partition}\0{file_id}": time for (partition, file_id), time in timeline.replaced.items()}
        return Commits(
            pa.array(completed, pa.string()),
            # Without a completed commit nothing can be older than the first.
            timeline.start if completed else None,
            pa.array(_rolled_back(look.table, timeline), pa.string()),
            timeline.newest or "",
            pa.array([group for group, time in groups.items() if time not in clusterings], pa.string()),
            pa.array([group for group, time in groups.items() if time in clusterings], pa.string()),
        )

    def count(self, times: pa.ChunkedArray) -> pa.ChunkedArray:
        """Whether each commit time is that of a commit that counts."""
        good = pc.is_in(times, value_set=self.completed)
        if self.start is None:
            return good
        return pc.or_(good, pc.and_not(pc.less(times, self.start), pc.is_in(times, value_set=self.rolled_back)))

    def are_void(self, times: pa.ChunkedArray) -> pa.ChunkedArray:
        """Whether each is certainly no commit and never will be: known to the look, and does not count."""
        return pc.and_not(pc.less_equal(times, self.seen_until), self.count(times))

    def are_there(self, locations: pa.Table) -> pa.ChunkedArray:
        """Whether the file group of each location still holds the row.

        Raises HbaseRowError for a group that a clustering took away without telling the index: its rows are elsewhere.
        """
        if len(self.dropped) + len(self.clustered) == 0:
            return pa.chunked_array([pa.repeat(True, locations.num_rows)])
        groups = pc.binary_join_element_wise(locations["partition_path"], locations["file_id"], "\0")
        moved = pc.is_in(groups, value_set=self.clustered)
        if pc.any(moved).as_py():
            row = locations.filter(moved).slice(0, 1).to_pylist()[0]
            raise HbaseRowError(
                f"HBase has row {row['row']!r} in file group {row['file_id']} of partition {row['partition_path']!r}, which "
                "a clustering replaced without writing to this index: fill the index anew, and let only writers with the "
                "HBASE index cluster this table"
            )
        return pc.invert(pc.is_in(groups, value_set=self.dropped))


def _clusterings(table: HoodieTable, timeline: Timeline) -> frozenset[str]:
    """Times of completed replace commits that only rewrote rows."""
    replacing = set(timeline.replaced.values())
    found = (i for i in timeline.completed_writes if i.action == REPLACE_COMMIT and i.time in replacing)
    return frozenset(i.time for i in found if timeline.metadata(table.storage, i).operation.upper() == _CLUSTER)


def _rolled_back(table: HoodieTable, timeline: Timeline) -> list[str]:
    """Times of the writes that the active timeline's rollbacks took back."""
    done = (i for i in timeline.instants if i.action == ROLLBACK and i.is_completed)
    return [time for rollback in done for time in timeline.rolled_back_by(table.storage, rollback)]
