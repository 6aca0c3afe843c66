"""Does the index in a checkpoint cover the table? Asked before the first batch: an index that lacks rows of the table
would write each of them a second time, so anything but a certain yes stops the job with what to do.
"""

from __future__ import annotations

from dataclasses import dataclass

from bootstrap.errors import IndexCoverageError

TAKE_OVER = (
    "Or start with a new, empty checkpoint: the index is then loaded from the table, and a Kafka stream goes on where the "
    "table's last commit of it ended"
)


@dataclass(frozen=True)
class TableCommit:
    """The table's newest completed write: its instant, and the query and batch when this project made it.

    ``alone``: the commits before it are exactly those it was made over, none was added or taken away since.
    """

    instant: str
    query_id: str | None
    batch_id: int | None
    alone: bool = True


@dataclass(frozen=True)
class CheckpointState:
    """Spark's query id, its newest planned and newest finished batch; None where there is none yet."""

    query_id: str | None
    planned: int | None
    finished: int | None


def check_coverage(table: str, checkpoint: str, newest: TableCommit | None, state: CheckpointState) -> None:
    """Return if the next batch may run on this index; IndexCoverageError names the mismatch and the next step.

    Spark runs again the batch it planned and did not finish, so the table may be one batch ahead of ``finished``.
    """
    if newest is None:
        if state.finished is not None:
            raise IndexCoverageError(
                f"checkpoint {checkpoint} has finished batch {state.finished}, but table {table} has no commit: the "
                "table was deleted or made anew. Put the table back, or delete the checkpoint to stream everything again"
            )
        return
    if newest.query_id is None:
        raise IndexCoverageError(
            f"table {table}: commit {newest.instant} was made by another writer, and the index in {checkpoint} does "
            f"not know its rows. {TAKE_OVER}"
        )
    if state.query_id is None or newest.query_id != state.query_id:
        raise IndexCoverageError(
            f"table {table} holds commits (newest {newest.instant}, query {newest.query_id}), but checkpoint "
            f"{checkpoint} belongs to {'no query yet' if state.query_id is None else 'query ' + state.query_id}: its "
            "index does not know the table's rows and would write them a second time. Start with the checkpoint that wrote "
            f"the table. {TAKE_OVER}"
        )
    if not newest.alone:
        raise IndexCoverageError(
            f"table {table}: the commits before {newest.instant} are not those this job made it over: another "
            "writer's commit was completed late, or instants were archived or removed. The index may lack rows. "
            f"{TAKE_OVER}"
        )
    assert newest.batch_id is not None
    finished = -1 if state.finished is None else state.finished
    planned = finished if state.planned is None else max(state.planned, finished)
    if newest.batch_id < finished:
        raise IndexCoverageError(
            f"checkpoint {checkpoint} has finished batch {finished}, but the newest commit of table {table} is "
            f"{newest.instant} of batch {newest.batch_id}: commits are missing, the table was restored or a file of "
            f"its timeline was deleted. Put the missing instants back. {TAKE_OVER}"
        )
    if newest.batch_id > planned:
        raise IndexCoverageError(
            f"table {table} holds batch {newest.batch_id} (commit {newest.instant}) of this query, but checkpoint "
            f"{checkpoint} only knows batches up to {planned}: it is an older copy. Use the newest copy. {TAKE_OVER}"
        )
