"""Every way in which a checkpoint and a table can disagree is named; only agreement passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bootstrap.coverage import CheckpointState, TableCommit, check_coverage
from bootstrap.errors import IndexCoverageError

MINE = "q1"


def commit(batch: int, query: str | None = MINE) -> TableCommit:
    return TableCommit("20260101000000000", query, batch if query else None)


@pytest.mark.parametrize(
    ("newest", "state"),
    [
        (None, CheckpointState(None, None, None)),  # both new
        (None, CheckpointState(MINE, 0, None)),  # died before the first commit
        (commit(0), CheckpointState(MINE, 0, None)),  # died between the first commit and Spark's log
        (commit(3), CheckpointState(MINE, 3, 3)),
        (commit(3), CheckpointState(MINE, 4, 3)),  # batch 4 planned, not committed
        (commit(4), CheckpointState(MINE, 4, 3)),  # batch 4 committed, not logged: a replay
    ],
)
def test_agreement_passes(newest: TableCommit | None, state: CheckpointState) -> None:
    check_coverage("/t", "/c", newest, state)


@pytest.mark.parametrize(
    ("newest", "state", "words"),
    [
        (None, CheckpointState(MINE, 2, 2), "has no commit"),
        (commit(0, None), CheckpointState(MINE, 2, 2), "another writer"),
        (commit(0), CheckpointState(None, None, None), "no query yet"),
        (commit(5, "q2"), CheckpointState(MINE, 5, 5), "query q2"),
        (commit(3), CheckpointState(MINE, 4, 4), "commits are missing"),
        (commit(6), CheckpointState(MINE, 4, 4), "older copy"),
        (replace(commit(4), alone=False), CheckpointState(MINE, 4, 4), "completed late"),
    ],
)
def test_disagreement_is_named(newest: TableCommit | None, state: CheckpointState, words: str) -> None:
    with pytest.raises(IndexCoverageError, match=words):
        check_coverage("/t", "/c", newest, state)
