"""Compaction: between two batches, during batches, or in a separate process.

Inline, a plan is made and executed between two batches. Async, it is made between two batches, its tasks run as a separate
Spark job while batches continue, and it is completed between two batches. Compactions whose tasks run in a separate process
(`tagstream services run`) are planned, begun and completed here.

Logs are compacted before a column's type is widened, because hudi-rs does not read logs with narrower types than the
table's. It reads base files with older types, as all engines do. So slices with logs are first compacted with their present
types, and later logs have the new types.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import ClassVar

from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.report import size
from tagstream.streaming.options.service_options import CompactionMode
from tagstream.streaming.recovery.live_writers import wait_for_other_streams
from tagstream.streaming.services.service import PlannedService, TableService, Turn
from tagstream.streaming.services.spark_tasks import Background, run_in_spark
from tagstream.table.services.compaction import begin_compaction, compaction_tasks, complete_compaction
from tagstream.table.services.compaction_plan import is_due, schedule_compaction
from tagstream.table.services.compaction_worker import complete_after_another, look, pending_plans
from tagstream.table.services.options import Strategy
from tagstream.table.services.planned import may_take_up
from tagstream.table.steps import Step
from tagstream.table.timeline.commit_metadata import WriteStatus
from tagstream.table.timeline.instant import COMPACTION
from tagstream.table.timeline.timeline import Timeline

LOG = logging.getLogger("tagstream")
_LOOK_MS = 2_000


def make_compaction(job: JobContext, spark: SparkSession) -> TableService:
    """The compactions of one run, by the options."""
    options, config = job.options, job.table.config
    mode = options.services.compaction_mode(
        config.version, merge_on_read=config.is_merge_on_read, continuous=options.run.continuous
    )
    return CompactionInOtherProcess(job) if mode is CompactionMode.SCHEDULE else Compaction(job, spark, mode)


@dataclass(frozen=True)
class _Running:
    instant: str
    work: Background[list[WriteStatus]]
    began_ms: int


class Compaction(PlannedService):
    """The compactions of one run whose tasks run in this job."""

    name: ClassVar[str] = "compaction"
    steps: ClassVar[str] = "compaction"

    def __init__(self, job: JobContext, spark: SparkSession, mode: CompactionMode) -> None:
        self._job, self._spark = job, spark
        self._is_off, self.is_async = mode is CompactionMode.OFF, mode is CompactionMode.ASYNC
        self._running: _Running | None = None

    @property
    def running(self) -> bool:
        """Whether tasks run during batches, or have ended with a plan that is not completed."""
        return self._running is not None

    def ready(self, now: Turn) -> AbstractContextManager[None]:
        """While a plan of version 6 is made, no other stream of the table has a pending batch."""
        return nullcontext() if self._is_off else _without_pending_batches(self._job, now)

    def plan(self, now: Turn) -> str | None:
        """The oldest plan on the timeline that may be executed, else a new one."""
        if self._is_off:
            return None
        job, timeline = self._job, now.look()
        pending = _pending(timeline)
        if not pending:
            return _schedule(job, now, timeline)
        now_ms = job.env.clock_ms()
        return next((time for time in pending if may_take_up(job.table, time, now_ms)), None)

    def run(self, instant: str, now: Turn) -> None:
        """Begin the plan and its tasks."""
        job, began_ms = self._job, self._job.env.clock_ms()
        begin_compaction(job.table, instant, job.env.clock_ms, job.env.lease.check, now.reach)
        tasks = compaction_tasks(job.table, instant, job.file_run, job.options.services.compaction, job.env.writer)
        work = Background(
            self._spark, f"compaction {instant}", lambda: run_in_spark(self._spark, tasks), is_async=self.is_async
        )
        self._running = _Running(instant, work, began_ms)

    def finish(self, now: Turn, *, wait: bool = False) -> list[str]:
        """Complete the compaction whose tasks have ended."""
        running, job = self._running, self._job
        if running is None or not (wait or running.work.ended):
            return []
        try:
            statuses = running.work.result()
        finally:
            self._running = None
        now.reach(Step.COMPACTION_FILES)
        with now.hold(f"compaction {running.instant}"):
            complete_compaction(job.table, running.instant, statuses, job.env.clock_ms, job.env.check, now.reach)
        seconds = (job.env.clock_ms() - running.began_ms) / 1000
        return [_completed(job, now, running.instant, statuses, seconds)]

    def close(self) -> None:
        """Stop the running tasks. The plan is kept, and a later start executes it."""
        if self._running is not None:
            self._running.work.cancel()
            self._running = None


class CompactionInOtherProcess(TableService):
    """The compactions of one run whose tasks run in another process: they are planned, begun and completed here."""

    name: ClassVar[str] = "compaction"
    steps: ClassVar[str] = "compaction"

    def __init__(self, job: JobContext) -> None:
        self._job = job
        self._began: dict[str, int] = {}
        self._looked_ms = 0

    @property
    def running(self) -> bool:
        """Tasks may run in another process at any time."""
        return True

    def turn(self, now: Turn) -> list[str]:
        """As :meth:`finish`, and make a plan if one is due."""
        done = self._look(now)
        with _without_pending_batches(self._job, now), now.hold(f"planning of {self.name}"):
            timeline = now.look()
            if not _pending(timeline):
                _schedule(self._job, now, timeline)
        return done

    def finish(self, now: Turn, *, wait: bool = False) -> list[str]:  # noqa: ARG002 - the other process is not waited for
        """Complete the plans with a result, and begin those that a process offers to execute."""
        is_early = self._job.env.clock_ms() - self._looked_ms < _LOOK_MS  # this function is called often
        return [] if is_early else self._look(now)

    def _look(self, now: Turn) -> list[str]:
        job, now_ms = self._job, self._job.env.clock_ms()
        self._looked_ms = now_ms
        table, done = job.table, []
        for instant in pending_plans(table):
            found = look(table, instant, now_ms)
            if found.begun and found.statuses is not None:
                now.reach(Step.COMPACTION_FILES)
                complete = complete_compaction if instant in self._began else complete_after_another
                with now.hold(f"compaction {instant}"):
                    complete(table, instant, found.statuses, job.env.clock_ms, job.env.check, now.reach)
                seconds = (job.env.clock_ms() - self._began.pop(instant, now_ms)) / 1000
                done.append(_completed(job, now, instant, found.statuses, seconds))
            elif not found.begun and found.worker is not None:
                begin_compaction(table, instant, job.env.clock_ms, job.env.lease.check, now.reach)
                self._began[instant] = now_ms
        return done


def _pending(timeline: Timeline) -> list[str]:
    """The instants of plans that are not completed, oldest first."""
    return [i.time for i in timeline.pending if i.action == COMPACTION]


@contextmanager
def _without_pending_batches(job: JobContext, now: Turn) -> Iterator[None]:
    """Version 6 has no plan while a write is pending, and of several streams one nearly always has a batch. So the others
    do not begin one while a plan is due."""
    config, options = job.table.config, job.options.services.compaction
    waits = job.env.lease.is_shared and not config.has_completion_times
    if not waits or not is_due(now.look(), options, job.env.clock_ms(), config.timezone_utc):
        yield
        return
    try:
        wait_for_other_streams(job)
        yield
    finally:
        job.env.lease.end_turn()


def _schedule(job: JobContext, now: Turn, timeline: Timeline) -> str | None:
    options = job.options.services.compaction
    return schedule_compaction(job.table, options, job.env.clock_ms, job.env.check, now.reach, timeline=timeline)


def _completed(job: JobContext, now: Turn, instant: str, statuses: Sequence[WriteStatus], seconds: float) -> str:
    """Log and report a compaction of ``seconds``. Returns the instant."""
    now.on_commit(instant)
    job.small_files.reload(job.table.view(), {(s.stat.partition_path, s.stat.file_id) for s in statuses})
    LOG.info(
        "compaction %s: %s file groups, %s written, in %.1f s",
        instant,
        f"{len(statuses):,}",
        size(sum(s.stat.file_size for s in statuses)),
        seconds,
    )
    return instant


def compact_logs(job: JobContext, spark: SparkSession) -> list[str]:
    """Compact every slice that has logs, pending plans first; the instants, none if there was nothing to do.

    A plan that another process executes is kept: until it is completed hudi-rs cannot read its slices.
    """
    options, env = replace(job.options.services.compaction, strategy=Strategy.UNBOUNDED), job.env

    def carry_out(instant: str) -> None:
        begin_compaction(job.table, instant, env.clock_ms, env.lease.check)
        run_id = env.clock_ms() // 1000 % 2**31
        statuses = run_in_spark(spark, compaction_tasks(job.table, instant, run_id, options, env.writer))
        with env.lock.hold(f"compaction {instant}"):
            complete_compaction(job.table, instant, statuses, env.clock_ms, env.check)
        done.append(instant)

    done: list[str] = []
    for instant in _pending(job.table.timeline()):
        if may_take_up(job.table, instant, env.clock_ms()):
            carry_out(instant)
        else:
            LOG.warning(
                "compaction %s of table %s belongs to another process: until it is completed hudi-rs cannot read its file "
                "groups, because their logs have narrower types than the table has from now on",
                instant,
                job.table.base_path,
            )
    with env.lock.hold("planning of the compaction of all logs"):
        new = schedule_compaction(job.table, options, env.clock_ms, env.check, force=True, look_at_all=True)
    if new is not None:
        carry_out(new)
    if done:
        LOG.warning(
            "table %s: all logs were compacted before column types are widened (%s)",
            job.table.base_path,
            ", ".join(done),
        )
        job.table = job.table.reload()
    return done
