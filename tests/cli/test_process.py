"""The services' own process: beside a job that has the lease, and alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tagstream.cli import services_run as process
from tagstream.cli.services_run import ProcessOptions, one_round
from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.streaming.services.compaction import CompactionInOtherProcess
from tagstream.streaming.services.service import Turn
from tagstream.table.locks.lock import TableLock
from tagstream.table.locks.options import LockOptions
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.compaction import begin_compaction, complete_compaction
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.compaction_worker import STALE_MS, hand_in, look, offer
from tagstream.table.services.failed_writes import sweep
from tagstream.table.services.options import CompactionOptions
from tagstream.table.write.commit import publish_files
from tagstream.table.write.markers import TEMP_FOLDER
from tests.cli.running import run_json
from tests.table.services.compaction_compacting import ALL, fill, made, plans, rows, slices_with_logs, sound
from tests.table.writer import CrashError, Writer, row

OPTIONS = ProcessOptions("one", compaction=CompactionOptions(max_delta_commits=1), clean=None, archive=None)

NO_LOCK = TableLock(None, LockOptions())


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def nothing(_: str) -> None:
    pass


@dataclass
class Job:
    """As much of a job as its part of the matter needs: the table, its lease, and the small files that nobody asks for."""

    table: HoodieTable
    env: SimpleNamespace
    small_files: SimpleNamespace

    @staticmethod
    def of(table: HoodieTable, lease: LeaseKeeper) -> Job:
        env = SimpleNamespace(lease=lease, check=lease.check, lock=NO_LOCK, clock_ms=now_ms)
        return Job(table, env, SimpleNamespace(reload=lambda _view, _groups: None))

    def turn(self) -> list[str]:
        """The instants that a job which has just begun completes."""
        now = Turn(None, nothing, self.table.timeline, nothing)
        return CompactionInOtherProcess(self).finish(now)  # type: ignore[arg-type]


@pytest.fixture
def writer(tmp_path: Path) -> Writer:
    found = made(tmp_path, metadata=True)
    found.now_ms = now_ms() - 100_000
    return fill(found)


@pytest.fixture
def job(writer: Writer) -> Iterator[Job]:
    """A job that has planned a compaction and goes on."""
    lease = LeaseKeeper(writer.table.storage, now_ms)
    lease.acquire("the job")
    assert schedule_compaction(writer.table, ALL, now_ms, force=True) is not None
    yield Job.of(writer.table, lease)
    lease.release()


def do(writer: Writer, options: ProcessOptions = OPTIONS) -> int:
    return one_round(writer.table, options, now_ms, nothing)


@pytest.mark.table_versions(6, 9)
@pytest.mark.parametrize("processes", [1, 2])
def test_beside_a_job(version: int, processes: int, writer: Writer, job: Job) -> None:
    before, (plan,) = rows(writer.table), plans(writer.table)
    options = replace(OPTIONS, processes=processes)
    assert job.turn() == []  # nobody offers
    assert do(writer, options) == 0  # offered
    assert do(writer, options) == 0  # the job has not begun it yet
    assert job.turn() == []
    assert look(writer.table, plan.time, now_ms()).begun
    assert do(writer, options) == 1
    assert do(writer, options) == 0  # handed in
    assert rows(writer.table) == before
    writer.now_ms = now_ms()
    writer.write([row(3, "p1", 60, "beside")])
    assert job.turn() == [plan.time]
    assert plans(writer.table) == []
    writer.now_ms = now_ms()
    sound(writer)
    assert list(writer.table.storage.walk_files(".hoodie/.temp")) == []
    assert do(writer, options) == 0


@pytest.mark.table_versions(6, 9)
def test_alone(version: int, writer: Writer) -> None:
    assert do(writer) == 1
    assert slices_with_logs(writer.table) == []
    writer.now_ms = now_ms()
    sound(writer)
    writer.write([row(3, "p1", 60)])
    told = run_json(
        "services",
        "run",
        "--target-base-path",
        writer.table.base_path,
        "--once",
        "--hoodie-conf",
        "hoodie.compact.inline.max.delta.commits=1",
    )
    assert (told["rounds"], told["services"]) == (2, 1)
    writer.now_ms = now_ms()
    sound(writer)


def test_what_a_killed_process_left_is_taken_away(writer: Writer) -> None:
    """Its commit is published, and the staged copy still lies there."""
    newest = writer.table.timeline().completed_writes[-1]
    left = f"{TEMP_FOLDER}/.{newest.time}.compaction.staged"
    writer.table.storage.replace(left, b"{}")
    assert do(writer) == 1
    assert not writer.table.storage.exists(left)
    sound(writer)


def test_two_processes_at_once(writer: Writer, job: Job) -> None:
    """The second waits while the first gives signs of life; where both have worked, the first result counts."""
    (plan,) = plans(writer.table)
    do(writer)
    assert do(writer, replace(OPTIONS, worker="two")) == 0
    assert look(writer.table, plan.time, now_ms()).worker == "one"
    late = look(writer.table, plan.time, now_ms() + STALE_MS + 1)
    assert late.is_free
    job.turn()
    statuses = []
    for worker in ("one", "two"):
        tasks = process.compaction_tasks(writer.table, plan.time, {"one": 1, "two": 2}[worker])
        statuses.append([task.run() for task in tasks])
    assert hand_in(writer.table, plan.time, "two", statuses[1])
    assert not hand_in(writer.table, plan.time, "one", statuses[0])
    assert job.turn() == [plan.time]
    (commit,) = (i for i in writer.table.timeline().completed_writes if i.time == plan.time)
    written = writer.table.timeline().metadata(writer.table.storage, commit).all_stats()
    assert sorted(s.path for s in written) == sorted(s.stat.path for s in statuses[1])
    assert not hand_in(writer.table, plan.time, "one", statuses[0])
    writer.now_ms = now_ms()
    sound(writer)
    assert list(writer.table.storage.walk_files(".hoodie/.temp")) == []


@pytest.mark.parametrize("step", ["offered", "begun", "worked", "handed in"])
def test_the_process_is_gone_and_another_takes_its_place(
    step: str, writer: Writer, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    (plan,) = plans(writer.table)
    do(writer)
    if step != "offered":
        job.turn()
    if step == "worked":

        def dies(*_: object) -> bool:
            raise CrashError

        with monkeypatch.context() as patched:
            patched.setattr(process, "hand_in", dies)
            with pytest.raises(CrashError):
                do(writer)
    if step == "handed in":
        assert do(writer) == 1
    other, later = replace(OPTIONS, worker="two"), lambda: now_ms() + STALE_MS + 1
    assert do(writer, other) == 0
    one_round(writer.table, other, later, nothing)
    job.turn()
    if plans(writer.table):
        one_round(writer.table, other, later, nothing)
        job.turn()
    assert plans(writer.table) == []
    writer.now_ms = now_ms()
    sound(writer)
    assert list(writer.table.storage.walk_files(".hoodie/.temp")) == []
    assert plan.time in {i.time for i in writer.table.timeline().completed_writes}


@pytest.mark.parametrize("handed_in", [False, True])
def test_the_job_is_gone_and_the_process_completes_it(handed_in: bool, writer: Writer, job: Job) -> None:
    do(writer)
    job.turn()
    if handed_in:
        assert do(writer) == 1
    job.env.lease.release()
    assert do(writer) == 1
    assert plans(writer.table) == []
    writer.now_ms = now_ms()
    sound(writer)
    job.env.lease = LeaseKeeper(writer.table.storage, now_ms)
    job.env.lease.acquire("the job")
    assert job.turn() == []


def test_a_job_that_does_it_itself_after_all(writer: Writer, job: Job) -> None:
    """It begins anew; what the process then hands in is of no use, and is swept away."""
    (plan,) = plans(writer.table)
    do(writer)
    job.turn()
    tasks = process.compaction_tasks(writer.table, plan.time, 1)
    stale = [task.run() for task in tasks]
    begin_compaction(writer.table, plan.time, now_ms)
    statuses = [task.run() for task in process.compaction_tasks(writer.table, plan.time, 2)]
    complete_compaction(writer.table, plan.time, statuses, now_ms)
    assert not hand_in(writer.table, plan.time, "one", stale)
    offer(writer.table, plan.time, "one")  # a sign of life that came late
    sweep(writer.table)
    assert list(writer.table.storage.walk_files(".hoodie/.temp")) == []
    writer.now_ms = now_ms()
    sound(writer)


def test_a_plan_of_hudi_is_left_to_hudi(tmp_path: Path) -> None:
    from tests.table.reference import unpack

    table = HoodieTable.open(str(unpack("mor_v6_compaction_pending", tmp_path)))
    lease = LeaseKeeper(table.storage, now_ms)
    lease.acquire("the job")
    assert one_round(table, OPTIONS, now_ms, nothing) == 0
    assert not table.storage.exists(f".hoodie/.temp/{plans(table)[0].time}/tagstream.worker")
    lease.release()


@pytest.mark.table_versions(6, 9)
def test_a_job_that_died_while_it_gave_the_files_their_names(version: int, writer: Writer, job: Job) -> None:
    """The next one completes the plan at once: nothing is done again but the giving of names."""
    before, (plan,) = rows(writer.table), plans(writer.table)
    do(writer)
    job.turn()
    assert do(writer) == 1
    found = look(writer.table, plan.time, now_ms()).statuses
    assert found
    publish_files(writer.table, plan.time, found)  # and the process is killed here
    assert job.turn() == [plan.time]
    assert plans(writer.table) == []
    assert rows(writer.table) == before
    writer.now_ms = now_ms()
    sound(writer)
