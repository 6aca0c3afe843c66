"""The list of table services as it is walked: any service that keeps to the interface will do."""

from __future__ import annotations

from collections.abc import Callable, Collection
from types import SimpleNamespace
from typing import Any

import pytest

from tagstream.streaming.monitor.run_status import SERVICES
from tagstream.streaming.options.service_options import CompactionMode
from tagstream.streaming.services import table_services
from tagstream.streaming.services.service import PlannedService, Reach, TableService, Turn
from tagstream.streaming.services.table_services import TableServices, make_services
from tagstream.table.errors import LeaseLostError
from tagstream.table.locks.lock import TableLock
from tagstream.table.locks.options import LockOptions
from tagstream.table.timeline.timeline import FileGroupId


class Job:
    """What the walk asks of a job, and what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, str | None]] = []
        self.steps: list[tuple[str, int]] = []
        self.looks = 0
        self.table = SimpleNamespace(base_path="/t", timeline=self._timeline)
        crash = SimpleNamespace(reach=lambda step, batch: self.steps.append((step, batch)))
        lease = SimpleNamespace(is_shared=False, leads=lambda: True)
        self.env = SimpleNamespace(crash=crash, lock=TableLock(None, LockOptions()), lease=lease)
        self.hooks = SimpleNamespace(step=lambda *_: None, service=lambda *given: self.told.append(given))

    def _timeline(self) -> Any:
        self.looks += 1
        return SimpleNamespace(pending_writes=())


class Inline(TableService):
    """One that needs a turn alone."""

    name, steps = "indexing", "index"

    def __init__(self, work: Callable[[Turn], list[str]]) -> None:
        self._work = work

    def turn(self, now: Turn) -> list[str]:
        return self._work(now)


class Async(PlannedService):
    """One whose work runs during batches, and ends when ``ended`` is set."""

    name, steps = "sorting", "sort"

    def __init__(self, *, is_async: bool) -> None:
        self.is_async, self.ended, self.planned = is_async, not is_async, 0
        self.instant: str | None = None
        self.calls: list[str] = []

    @property
    def running(self) -> bool:
        return self.instant is not None

    def plan(self, now: Turn) -> str | None:
        self.planned += 1
        return f"{self.planned:03}" if self.planned < 3 else None

    def run(self, instant: str, now: Turn) -> None:
        self.instant = instant

    def finish(self, now: Turn, *, wait: bool = False) -> list[str]:
        if self.instant is None or not (wait or self.ended):
            return []
        now.on_commit(self.instant)
        done, self.instant = self.instant, None
        return [done]

    def give_way(self, groups: Collection[FileGroupId], reach: Reach) -> None:
        self.calls.append("give way")
        reach("stopped")

    def close(self) -> None:
        self.calls.append("close")


def services(monkeypatch: pytest.MonkeyPatch, job: Job, *found: TableService) -> TableServices:
    monkeypatch.setattr(table_services, "make_services", lambda *_: list(found))
    return TableServices(job, None)  # type: ignore[arg-type]


def ignored(_: str) -> None:
    pass


def test_they_have_their_turns_in_order_and_an_error_of_one_is_its_own(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(now: Turn) -> list[str]:
        now.reach("begun")
        raise OSError("no room left\nat all")

    job, seen = Job(), list[Any]()
    walked = services(monkeypatch, job, Inline(fails), Inline(lambda now: seen.append(now.look()) or ["007"]))
    walked.after_batch(4, ignored)
    assert job.told == [("indexing", 0, "no room left"), ("indexing", 1, None)]
    assert job.steps == [("index_begun", 4)]
    assert (len(seen), job.looks) == (1, 2), "the timeline is read again after a step"
    assert ["no room left" in r.getMessage() for r in caplog.records] == [True]
    assert walked.failed == {}, "the second has the same name, and was well"


def test_a_lost_lease_ends_the_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_: Turn) -> list[str]:
        raise LeaseLostError("gone")

    job = Job()
    with pytest.raises(LeaseLostError):
        services(monkeypatch, job, Inline(lost), Inline(lambda _: ["007"])).after_batch(4, ignored)
    assert job.told == []


def test_a_plan_is_carried_out_in_its_turn_or_during_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    job, committed = Job(), list[str]()
    services(monkeypatch, job, Async(is_async=False)).after_batch(0, committed.append)
    assert committed == ["001"]
    service = Async(is_async=True)
    walked = services(monkeypatch, job, service)
    walked.after_batch(1, committed.append)
    walked.after_batch(2, committed.append)
    walked.finish(2, committed.append)
    assert (service.planned, committed) == (1, ["001"]), "no other is planned while one runs"
    service.ended = True
    walked.after_batch(3, committed.append)
    assert (service.planned, committed) == (2, ["001", "001"]), "the next one begins in the same turn"
    walked.finish(3, committed.append, wait=True)
    assert committed == ["001", "001", "002"]
    looks = job.looks
    walked.finish(3, committed.append)
    assert job.looks == looks, "where nothing runs the timeline is not read"


def test_what_runs_gives_way_to_a_batch_and_all_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    job, service = Job(), Async(is_async=True)
    walked = services(monkeypatch, job, service, Inline(lambda _: []))
    walked.give_way(0, ())
    assert service.calls == []
    walked.after_batch(0, ignored)
    walked.give_way(1, ())
    walked.close()
    assert (service.calls, job.steps) == (["give way", "close"], [("sort_stopped", 1)])


@pytest.mark.parametrize("mode", CompactionMode)
def test_the_list_is_in_the_order_of_hudi(mode: CompactionMode) -> None:
    of_services = SimpleNamespace(
        compaction_mode=lambda *_, **__: mode, clean=None, cleans_beside=False, clusters_beside=False, ttl=None
    )
    config = SimpleNamespace(version=9, is_merge_on_read=True)
    job: Any = SimpleNamespace(
        options=SimpleNamespace(services=of_services, run=SimpleNamespace(continuous=True)),
        table=SimpleNamespace(config=config),
    )
    made = make_services(job, None)  # type: ignore[arg-type]
    assert tuple(service.name for service in made) == SERVICES
    assert [service.running for service in made] == [mode is CompactionMode.SCHEDULE, False, False, False, False]
