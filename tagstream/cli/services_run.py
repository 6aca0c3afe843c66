"""``tagstream services run``: the table services in a separate process.

While a job holds the table's writer lease, this process runs the tasks of the job's compactions and returns the results. The
job begins and completes the compactions. While no process holds the lease, this process takes it for as long as a service
runs, and does all services.

The process repeats its rounds until a signal ends it, or with ``--once`` until a round finds nothing to do.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType

from tagstream.cli.command import Clock, Command
from tagstream.cli.exclusive import Exclusive, command_lock
from tagstream.cli.output import Fact, Output
from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.streaming.options.cli import entries_of
from tagstream.streaming.options.options import services_of
from tagstream.streaming.options.service_options import CompactionMode
from tagstream.streaming.process import ANY_BATCH, CrashPlan
from tagstream.table.errors import InstantConflictError, LeaseLostError, TagstreamError
from tagstream.table.locks.lock import TableLock
from tagstream.table.locks.options import LockOptions
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.partitions import drop_unwritable
from tagstream.table.services.archiving import archive_table
from tagstream.table.services.cleaning import clean
from tagstream.table.services.compaction import compact, compaction_tasks
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.compaction_task import CompactionTask
from tagstream.table.services.compaction_worker import complete_after_another, hand_in, look, offer, pending_plans
from tagstream.table.services.failed_writes import sweep
from tagstream.table.services.options import ArchiveOptions, CleanOptions, CompactionOptions
from tagstream.table.services.planned import may_take_up
from tagstream.table.steps import Step, steps_of
from tagstream.table.timeline.commit_metadata import WriteStatus
from tagstream.table.timeline.instant import COMPACTION

SIGN_OF_LIFE_S = 15.0
_RUNS = 2**31
Say = Callable[[str], None]
Reach = Callable[[str], None]


@dataclass(frozen=True)
class ProcessOptions:
    """``worker``: unique name of this process. ``processes``: number of processes that run tasks in parallel; 1: only this.

    ``compacts`` False: no compaction while no job runs.
    """

    worker: str
    processes: int = 1
    compaction: CompactionOptions = field(default_factory=CompactionOptions)
    compacts: bool = True
    clean: CleanOptions | None = field(default_factory=CleanOptions)
    archive: ArchiveOptions | None = field(default_factory=ArchiveOptions)


def one_round(
    table: HoodieTable,
    options: ProcessOptions,
    clock_ms: Callable[[], int],
    say: Say,
    reach: Reach = lambda _: None,
    lock: TableLock | None = None,
) -> int:
    """Do all services that are due now. Return how many have done something. Errors are those of the services.

    ``lock``: of the table's other writers. It is held while something is planned or published, if no job runs.
    ``say`` gets a line of text for each result. ``reach`` gets the names of the services' steps, and while a job runs also
    ``worker_offered``, ``worker_staged`` (the new files exist, but no other process knows them) and ``worker_handed_in``.
    """
    table = table.reload()
    lease = LeaseKeeper(table.storage, clock_ms)
    here = _Round(table, options, clock_ms, say, reach)
    lock = lock or TableLock(None, LockOptions())
    try:
        lease.acquire(f"{table.base_path} (services)")
    except LeaseLostError:
        return here.beside_a_job()
    try:
        alone = Exclusive(lease, lock)
        with alone.hold("services of the table"):
            table, told = drop_unwritable(table, clock_ms())
        for text in told:
            say(f"table {table.config.name}: {text}")
        return replace(here, table=table).alone(alone)
    finally:
        lease.release()


@dataclass(frozen=True)
class _Round:
    table: HoodieTable
    options: ProcessOptions
    clock_ms: Callable[[], int]
    say: Say
    reach: Reach

    def beside_a_job(self) -> int:
        """Execute the first free plan that the job has begun. Return 1 if there was one."""
        table, options = self.table, self.options
        for instant in pending_plans(table):
            found = look(table, instant, self.clock_ms())
            own = found.worker == options.worker
            if found.statuses is not None or not (own or found.is_free):
                continue
            offer(table, instant, options.worker)
            self.reach(Step.WORKER_OFFERED)
            if not found.begun:
                continue  # the job begins the compaction between two batches
            with _signs_of_life(table, instant, options.worker):
                tasks = compaction_tasks(table, instant, self.clock_ms() // 1000 % _RUNS, options.compaction)
                statuses = list(_carry_out(tasks, options.processes))
            self.reach(Step.WORKER_STAGED)
            if hand_in(table, instant, options.worker, statuses):
                self.reach(Step.WORKER_HANDED_IN)
                self.say(f"compaction {instant}: {len(statuses):,} base files are written; the job completes it")
                return 1
            self.say(f"compaction {instant}: another process was first")
        return 0

    def alone(self, held: Exclusive) -> int:
        """Do all services that are due. ``held``: the lease and the lock."""
        table, options = self.table, self.options
        if table.timeline().pending_writes and not held.lock.is_shared:
            return 0  # of a job that was killed: its next start rolls them back
        done = 0
        if table.config.is_merge_on_read and options.compacts:
            done += self._compact(held)
        if options.clean is not None:
            with held.hold("clean"):
                cleaned = clean(table, options.clean, self.clock_ms, held.check, steps_of("clean", self.reach))
            if cleaned is not None and cleaned.instants:
                self.say(f"clean {cleaned.instants[-1]}: {len(cleaned.deleted):,} files deleted")
                done += 1
        if options.archive is not None:
            cleaning = options.clean or CleanOptions()
            with held.hold("archiving"):
                archived = archive_table(table, options.archive, cleaning, self.clock_ms, held.check, self.reach)
            if archived is not None:
                self.say(f"archived {len(archived.instants):,} actions")
                done += 1
        if done:
            sweep(table)  # files of another such process that was killed
        return done

    def _compact(self, held: Exclusive) -> int:
        check, table, options, clock_ms = held.check, self.table, self.options, self.clock_ms
        now_ms, reach = clock_ms(), steps_of("compaction", self.reach)
        pending = [i.time for i in table.timeline().pending if i.action == COMPACTION]
        todo = [time for time in pending if may_take_up(table, time, now_ms)]
        if not pending:
            with held.hold("planning of a compaction"):
                planned = schedule_compaction(table, options.compaction, clock_ms, check, reach=reach)
            todo = [] if planned is None else [planned]

        def execute(tasks: Sequence[CompactionTask]) -> Iterator[WriteStatus]:
            return _carry_out(tasks, options.processes)

        def carry_out(instant: str) -> None:
            compact(table, instant, clock_ms, check, reach, execute=execute, options=options.compaction, hold=held.hold)

        for instant in todo:
            found = look(table, instant, now_ms)
            if found.begun and found.statuses is not None:  # the results are there, but the job has ended since
                try:
                    with held.hold(f"compaction {instant}"):
                        complete_after_another(table, instant, found.statuses, clock_ms, check, reach)
                except InstantConflictError:
                    carry_out(instant)
            else:
                carry_out(instant)
            self.say(f"compaction {instant} is completed")
        return len(todo)


def _carry_out(tasks: Sequence[CompactionTask], processes: int) -> Iterator[WriteStatus]:
    """Run the tasks in parallel, the largest first."""
    ordered = sorted(tasks, key=lambda task: -task.weight)
    if processes == 1 or len(ordered) < 2:
        yield from (task.run() for task in ordered)
        return
    # Spawned and not forked, because the client of an object store does not work after a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(ordered)), mp_context=context) as pool:
        for future in as_completed([pool.submit(task.run) for task in ordered]):
            yield future.result()


@contextmanager
def _signs_of_life(table: HoodieTable, instant: str, worker: str) -> Iterator[None]:
    """Renew the offer every few seconds while the block runs."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(SIGN_OF_LIFE_S):
            offer(table, instant, worker)

    thread = threading.Thread(target=beat, name="signs-of-life", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def run_process(arguments: argparse.Namespace, out: Output, clock_ms: Clock) -> int:
    """Run rounds until a signal, or with ``--once`` until a round finds nothing to do. Return the exit code.

    With ``--once`` the first error ends the command. Else the error is shown, and the next round tries again.
    """
    table = HoodieTable.open(arguments.target_base_path)
    table.check_writable(keeps_metadata=True)
    options = _options(arguments, clock_ms())
    lock = command_lock(table, arguments, clock_ms, "services run")
    crash = CrashPlan.from_env(os.environ, os.getpgrp())
    ended = threading.Event()
    before = {number: signal.signal(number, _ender(ended)) for number in (signal.SIGTERM, signal.SIGINT)}
    rounds = services = 0
    said = ""
    try:
        while not ended.is_set():
            rounds += 1
            try:
                done = one_round(table, options, clock_ms, out.note, lambda point: crash.reach(point, ANY_BATCH), lock)
                said = ""
            except (TagstreamError, OSError) as error:
                if arguments.once:
                    raise
                done = 0
                if not isinstance(error, LeaseLostError) and str(error) != said:  # a starting job may take the lease
                    said = str(error)
                    out.note(f"{said}; the next round tries again")
            services += done
            if not done:
                if arguments.once:
                    break
                ended.wait(arguments.poll_seconds)
    finally:
        lock.close()
        for number, handler in before.items():
            signal.signal(number, handler)
    out.facts(
        [
            Fact("table", "table", table.config.name),
            Fact("rounds", "rounds", rounds, "count"),
            Fact("services", "services that did something", services, "count"),
        ]
    )
    return 0


def _options(arguments: argparse.Namespace, now_ms: int) -> ProcessOptions:
    told = services_of(entries_of(arguments.props, arguments.hoodie_conf))
    return ProcessOptions(
        worker=f"{socket.gethostname()} {os.getpid()} {now_ms}",
        processes=arguments.processes or os.cpu_count() or 1,
        compaction=told.compaction,
        compacts=told.mode is not CompactionMode.OFF,
        clean=told.clean,
        archive=told.archive,
    )


def _ender(ended: threading.Event) -> Callable[[int, FrameType | None], None]:
    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    return end


def _add_flags(run: argparse.ArgumentParser) -> None:
    run.add_argument("--target-base-path", metavar="PATH", required=True, help="base path of the table")
    run.add_argument(
        "--props",
        metavar="FILE",
        action="append",
        default=[],
        help="the job's properties file, for its keys about services",
    )
    run.add_argument(
        "--hoodie-conf", metavar="KEY=VALUE", action="append", default=[], help="one property; may be repeated"
    )
    run.add_argument("--once", action="store_true", help="end when there is nothing to do, or at the first error")
    run.add_argument("--poll-seconds", type=float, metavar="S", default=5.0, help="pause between rounds (default: 5)")
    run.add_argument("--processes", type=int, metavar="N", help="tasks in parallel (default: one per core)")


COMMANDS = (
    Command(
        "services",
        "run",
        "execute the compactions that a job plans, and all services while no job runs",
        _add_flags,
        run_process,
    ),
)
