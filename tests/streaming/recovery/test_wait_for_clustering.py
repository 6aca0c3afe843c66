"""A clustering that another writer planned: waited for, or taken back where the job is told to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tagstream.streaming.options.service_options import ServiceOptions
from tagstream.streaming.recovery import pending_writes as settle
from tagstream.table.errors import PendingClusteringError
from tagstream.table.locks.lock import TableLock
from tagstream.table.locks.options import LockOptions

PLAN = "20260101000000000"

NO_LOCK = TableLock(None, LockOptions())


class Waits:
    """Where the job would stand still; the clock goes on, and the other writer may carry its plan out."""

    def __init__(self, pending: dict[Any, str], ends_after: int) -> None:
        self.now, self.count, self.pending, self.ends_after = 0, 0, pending, ends_after
        self.signal_name = ""

    def wait(self, _: float) -> bool:
        self.count += 1
        self.now += 600_000
        if self.count == self.ends_after:
            self.pending.clear()
        return False


def job(pending: dict[Any, str], takes_back: bool, ends_after: int = 0) -> Any:
    stop = Waits(pending, ends_after)
    timeline = SimpleNamespace(pending_clusterings=pending)
    return SimpleNamespace(
        options=SimpleNamespace(services=ServiceOptions(rolls_back_clusterings=takes_back)),
        table=SimpleNamespace(base_path="t", timeline=lambda: timeline),
        env=SimpleNamespace(clock_ms=lambda: stop.now, check=lambda: None, lock=NO_LOCK, stop=stop),
    )


@pytest.fixture
def taken_back(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    monkeypatch.setattr(settle, "_is_planned_here", lambda _job, _instant: False)
    monkeypatch.setattr(settle, "new_instant", lambda _job: "20260101000000001")
    monkeypatch.setattr(settle, "rollback_clustering", lambda _table, instant, _as, _check: found.append(instant))
    return found


def test_another_writers_plan_is_waited_for(taken_back: list[str]) -> None:
    waiting = job({("p", "f"): PLAN}, False, ends_after=3)
    settle.wait_for_clustering(waiting, PLAN)
    assert (waiting.env.stop.count, taken_back) == (3, [])


def test_after_an_hour_the_job_ends_and_says_what_to_do(taken_back: list[str]) -> None:
    with pytest.raises(PendingClusteringError, match=r"rollback\.pending\.replacecommit\.on\.conflict=true"):
        settle.wait_for_clustering(job({("p", "f"): PLAN}, False), PLAN)
    assert taken_back == []


def test_a_job_that_is_told_to_takes_it_back_at_once(taken_back: list[str]) -> None:
    told = job({("p", "f"): PLAN}, True)
    settle.wait_for_clustering(told, PLAN)
    assert (told.env.stop.count, taken_back) == (0, [PLAN])


def test_one_that_was_carried_out_by_then_is_left_alone(taken_back: list[str]) -> None:
    settle.wait_for_clustering(job({}, True), PLAN)
    assert taken_back == []
