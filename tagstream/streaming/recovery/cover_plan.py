"""What must be done before a query starts so that the index covers the table. This module only decides.

- a new checkpoint for a table with rows: load the index from the table
- commits of other writers, or of a newer copy of the checkpoint: catch up with them
- a commit of another writer that removed rows of this stream, because it did not see them: retire the query. A new query
  reads the source again from the start of the oldest own commit that the other writer did not see.
- other writers' commits that a restore removed, or a damaged file of the index: load the index again
- own commits that a restore removed, or an incomplete checkpoint: retire the query. A new query with a new index load
  starts where the newest remaining commit ended.
- a table without commits for a checkpoint with batches: stop the job
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from tagstream.bootstrap.errors import IndexCoverageError
from tagstream.state.errors import IndexDamagedError
from tagstream.state.index_loads import complete_catch_ups
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
from tagstream.streaming.recovery.takeover import QueryIndexLoad
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.instant import ROLLBACK
from tagstream.table.timeline.timeline import Timeline

Kind = Literal["nothing", "load", "catch up", "retire", "reread"]
_SHOWN = 10
_MOST_CATCH_UPS = 2_000  # a start reads a small file of each
NOTHING_KNOWN = Coverage((), (), (), frozenset(), {})


@dataclass(frozen=True)
class CoverStep:
    """The next step, and the reason (a sentence without its full stop). `found`: the comparison that it is based on.

    `since`: source offsets to read again from ("reread"). `damaged`: a file of the index cannot be read ("load").
    """

    kind: Kind
    why: str = ""
    found: Coverage = NOTHING_KNOWN
    since: Any = None
    damaged: bool = False


def next_step(
    index: IndexPlace, table: HoodieTable, timeline: Timeline, state: CheckpointState, taken: QueryIndexLoad | None
) -> CoverStep:
    """Compare index and table, and decide on the next step. IndexCoverageError where the user must decide.

    `state`: of Spark's checkpoint. `taken`: the index load of the query, None where its index began empty.
    """
    path = table.base_path
    if state.query_id is None and index.manifests.names(""):
        return CoverStep("retire", f"Spark's part of checkpoint {index.query_folder.root} is missing")
    if not timeline.completed_writes:
        undone = _rolled_back(index, table, timeline, state)
        if undone is not None:
            return CoverStep(
                "retire",
                f"table {path} has no commit any more: {undone} of this stream and all others were rolled back. The records "
                "of those commits are read from the source again",
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
            f"earlier state (newest commit now {timeline.newest_completed}). The records of those commits are read from "
            "the source again",
        )
    if found.vanished:
        return CoverStep(
            "load",
            f"table {path} no longer has commit {found.vanished[0]} of another writer{_more(found.vanished)}",
        )
    if not found.uncovered:
        caught_up = len(complete_catch_ups(index.layout, index.index_load))
        if caught_up > _MOST_CATCH_UPS and not index.pull:
            why = f"the index of table {path} has caught up {caught_up:,} times with other writers since it was loaded"
            return CoverStep("load", why, found=found)
        return CoverStep("nothing", found=found)
    hurt = _find_hurt(index, table, timeline, state, found)
    if hurt:
        return CoverStep("reread", _hurt(path, hurt), found, hurt[0].record.start_offsets)
    if len(found.uncovered) >= len(timeline.completed_writes) and not found.knows_any:
        return CoverStep("load", f"table {path} has rows that the index lacks")
    several = len(found.uncovered) > 1
    which = f"{found.uncovered[0]}{f' to {found.uncovered[-1]}' if several else ''}"
    made = "by another writer, or by a newer copy of this checkpoint"
    if all(is_planned_service(table, timeline, time) for time in found.uncovered):
        made = "compactions or clusterings that this program planned and that were completed after the last batch"
    return CoverStep(
        "catch up",
        f"table {path} has {len(found.uncovered)} commit{'s' if several else ''} that the index lacks ({which}; "
        f"{made})",
        found,
    )


def _rolled_back(index: IndexPlace, table: HoodieTable, timeline: Timeline, state: CheckpointState) -> str | None:
    """A commit of the stream that a rollback on the timeline has undone. It proves that the stream wrote this table."""
    own = {*finished_instants(index, state), *begins_after(index, state)}
    done = (i for i in timeline.instants if i.action == ROLLBACK and i.is_completed)
    return next((time for found in done for time in rollback_targets(table, found) if time in own), None)


def _check_empty(index: IndexPlace, path: str, state: CheckpointState, taken: QueryIndexLoad | None) -> None:
    """IndexCoverageError for a table without commits and a checkpoint with batches or a loaded index."""
    if state.finished is None and taken is None:
        return
    what = f"has finished batch {state.finished}" if state.finished is not None else "has an index that was loaded"
    raise IndexCoverageError(
        f"checkpoint {index.query_folder.root} {what}, but table {path} has no commit: the table was deleted or "
        "created again. "
        "Restore the table, or delete the checkpoint to stream everything again"
    )


def _find_hurt(
    index: IndexPlace, table: HoodieTable, timeline: Timeline, state: CheckpointState, found: Coverage
) -> tuple[Swallowed, ...]:
    """Commits of this stream whose rows other writers' new commits removed, if no query reads them again yet."""
    instants = found.uncovered
    if index.pull or state.query_id is None:
        if index.resuming:
            return ()
        # No file says which commits were checked. But a run of this stream has checked all that are older than its last.
        own = newest_own_commit(table, timeline, index.stream_id)
        instants = tuple(time for time in instants if own is not None and time > own)
    return find_swallowed(table, timeline, instants, index.stream_id)


def _hurt(path: str, hurt: tuple[Swallowed, ...]) -> str:
    groups = sorted({f"{file_id} of partition {partition!r}" for s in hurt for partition, file_id in s.groups})
    shown = ", ".join(groups[:_SHOWN]) + (f" and {len(groups) - _SHOWN} more" if len(groups) > _SHOWN else "")
    return (
        f"table {path}: commit {hurt[0].by} of another writer was built on slices older than commit {hurt[0].instant} of "
        f"this stream{_more(tuple(s.instant for s in hurt))} and removed its rows from file groups {shown}. They are read "
        "from the source again. Two writers of one table need locks (docs/operations/concurrency.md)"
    )


def _more(instants: tuple[str, ...]) -> str:
    return f" (and {len(instants) - 1} more)" if len(instants) > 1 else ""
