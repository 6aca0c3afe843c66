"""What must be done before a query starts so that the index covers the table; decided without doing any of it.

- a new checkpoint, a table with rows: the index is loaded from the table, a new generation
- commits of other writers, or of a newer copy of the checkpoint: caught up with, an epoch
- a commit of another writer that took rows of ours away, since it did not see them: the query is retired, and a new
  one reads the source again from where the oldest of our commits that it did not see began
- others' commits that were restored away, a damaged file of the index: a new generation
- our own commits restored away, or half a checkpoint: Spark's part is retired, and a new query on a new generation
  begins where the newest commit that is left ended
- a table without commits under a checkpoint with batches: the job stops
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tagstream.bootstrap.errors import IndexCoverageError
from tagstream.state.errors import IndexDamagedError
from tagstream.streaming.recovery.coverage import (
    CheckpointState,
    Coverage,
    IndexPlace,
    assess,
    begins_after,
    finished_instants,
)
from tagstream.streaming.recovery.foreign_commits import (
    Swallowed,
    find_swallowed,
    is_planned_service,
    newest_own_commit,
)
from tagstream.streaming.recovery.pending_writes import rollback_targets
from tagstream.streaming.recovery.takeover import Takeover
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.instant import ROLLBACK
from tagstream.table.timeline.timeline import Timeline

Kind = Literal["nothing", "load", "catch up", "retire", "reread"]
_SHOWN = 10
NOTHING_KNOWN = Coverage((), (), (), frozenset(), {})


@dataclass(frozen=True)
class CoverStep:
    """The next thing to do, and why (a sentence without its full stop); `found` is what the decision was made from.

    `since`: offsets to read the source again from ("reread"). `damaged`: a file of the index cannot be read ("load").
    """

    kind: Kind
    why: str = ""
    found: Coverage = NOTHING_KNOWN
    since: Any = None
    damaged: bool = False


def next_step(
    index: IndexPlace, table: HoodieTable, timeline: Timeline, state: CheckpointState, taken: Takeover | None
) -> CoverStep:
    """Compare index and table; IndexCoverageError where a person must decide."""
    path = table.base_path
    if state.query_id is None and index.manifests.names(""):
        return CoverStep("retire", f"Spark's part of checkpoint {index.root.root} is missing")
    if not timeline.completed_writes:
        undone = _rolled_back(index, table, timeline, state)
        if undone is not None:
            return CoverStep(
                "retire",
                f"table {path} has no commit any more: {undone} of this stream and all others were rolled back. What those "
                "commits held is read from the source again",
            )
        _check_empty(index, path, state, taken)
        return CoverStep("nothing")
    try:
        found = assess(index, table, timeline, state)
    except IndexDamagedError as e:
        return CoverStep("load", str(e), damaged=True)
    if found.lost:
        return CoverStep(
            "retire",
            f"table {path} no longer has commit {found.lost[0]} of this stream{_more(found.lost)}: it was restored to an "
            f"earlier state (newest commit now {timeline.newest_completed}). What those commits held is read from the "
            "source again",
        )
    if found.vanished:
        return CoverStep(
            "load",
            f"table {path} no longer has commit {found.vanished[0]} of another writer{_more(found.vanished)}",
        )
    if not found.uncovered:
        return CoverStep("nothing", found=found)
    hurt = _find_hurt(index, table, timeline, state, found)
    if hurt:
        return CoverStep("reread", _hurt(path, hurt), found, hurt[0].record.start_offsets)
    if len(found.uncovered) >= len(timeline.completed_writes) and not found.knows_any:
        return CoverStep("load", f"table {path} has rows that the index does not know")
    several = len(found.uncovered) > 1
    which = f"{found.uncovered[0]}{f' to {found.uncovered[-1]}' if several else ''}"
    made = "of another writer, or of a newer copy of this checkpoint"
    if all(is_planned_service(table, timeline, time) for time in found.uncovered):
        made = "planned by this program: a compaction or clustering that was completed after the last batch"
    return CoverStep(
        "catch up",
        f"table {path} has {len(found.uncovered)} commit{'s' if several else ''} that the index does not know ({which}; "
        f"{made})",
        found,
    )


def _rolled_back(index: IndexPlace, table: HoodieTable, timeline: Timeline, state: CheckpointState) -> str | None:
    """A commit of the stream that a rollback on the timeline has undone: so the table is the one it wrote."""
    own = {*finished_instants(index, state), *begins_after(index, state)}
    done = (i for i in timeline.instants if i.action == ROLLBACK and i.is_completed)
    return next((time for found in done for time in rollback_targets(table, found) if time in own), None)


def _check_empty(index: IndexPlace, path: str, state: CheckpointState, taken: Takeover | None) -> None:
    """A table without commits goes with a checkpoint without batches only."""
    if state.finished is None and taken is None:
        return
    what = f"has finished batch {state.finished}" if state.finished is not None else "has an index that was loaded"
    raise IndexCoverageError(
        f"checkpoint {index.root.root} {what}, but table {path} has no commit: the table was deleted or made anew. Put "
        "the table back, or delete the checkpoint to stream everything again"
    )


def _find_hurt(
    index: IndexPlace, table: HoodieTable, timeline: Timeline, state: CheckpointState, found: Coverage
) -> tuple[Swallowed, ...]:
    """Rows of ours that others' new commits took away, and that nothing has begun to read again."""
    instants = found.uncovered
    if index.pull or state.query_id is None:
        if index.resuming:
            return ()
        # Nothing says which commits were looked at before, but a run of this stream has looked at all before its last.
        own = newest_own_commit(table, timeline, index.stream_id)
        instants = tuple(time for time in instants if own is not None and time > own)
    return find_swallowed(table, timeline, instants, index.stream_id)


def _hurt(path: str, hurt: tuple[Swallowed, ...]) -> str:
    groups = sorted({f"{file_id} of partition {partition!r}" for s in hurt for partition, file_id in s.groups})
    shown = ", ".join(groups[:_SHOWN]) + (f" and {len(groups) - _SHOWN} more" if len(groups) > _SHOWN else "")
    return (
        f"table {path}: commit {hurt[0].by} of another writer was built on slices older than commit {hurt[0].instant} of "
        f"this stream{_more(tuple(s.instant for s in hurt))} and took its rows away in file groups {shown}. They are read "
        "from the source again. Two writers of one table need locks (docs/operations/concurrency.md)"
    )


def _more(instants: tuple[str, ...]) -> str:
    return f" (and {len(instants) - 1} more)" if len(instants) > 1 else ""
