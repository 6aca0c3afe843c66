"""Which failures start the query anew, how often, and after which pause."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from tagstream.state.errors import IndexDamagedError
from tagstream.streaming.errors import BadRecordsError, TaskFileError
from tagstream.streaming.job.restart import Restart, restart_after
from tagstream.table.errors import ForeignCommitError, InstantConflictError, PendingClusteringError


def after(error: Exception, before: Restart | None = None, *, committed: int = 0) -> Restart | None:
    sink: Any = SimpleNamespace(committed=committed, failure=error)
    return restart_after(error, sink, before)


@pytest.mark.parametrize("kind", [ForeignCommitError, InstantConflictError])
def test_other_writers_may_be_first_as_often_as_they_like(kind: type[Exception]) -> None:
    restart, pauses = None, []
    for count in range(1, 101):
        restart = after(kind("another writer"), restart)
        assert restart is not None
        assert (restart.count, restart.rebuild, restart.why) == (count, False, "another writer")
        pauses.append(restart.pause_s)
    assert pauses[0] == 0.0
    assert all(a <= b for a, b in pairwise(pauses))
    assert pauses[-1] == 30.0


def test_a_batch_in_between_begins_the_count_anew() -> None:
    first = after(ForeignCommitError("x"))
    second = after(ForeignCommitError("x"), first)
    assert second is not None
    assert second.count == 2
    third = after(ForeignCommitError("x"), second, committed=1)
    assert third is not None
    assert third.count == 1


def test_a_clustering_is_named() -> None:
    restart = after(PendingClusteringError("is being clustered", "20260101000000000"))
    assert restart is not None
    assert restart.clustering == "20260101000000000"


def test_a_rebuilt_index_that_is_damaged_again_is_final() -> None:
    first = after(IndexDamagedError("a file is missing"))
    assert first is not None
    assert first.rebuild
    assert after(IndexDamagedError("a file is missing"), first) is None
    assert after(IndexDamagedError("a file is missing"), first, committed=1) is not None


def test_other_errors_are_final() -> None:
    assert after(BadRecordsError("bad")) is None


def test_files_of_tasks_that_are_gone_again_and_again_are_final() -> None:
    """Another program cleans the folder: a person must move it."""
    restart = None
    for _ in range(5):
        restart = after(TaskFileError("file: gone"), restart)
        assert restart is not None
    assert after(TaskFileError("file: gone"), restart) is None
