"""Compaction: between two batches, during batches, or in a process of its own.

Inline, a plan is made and carried out between two batches. Async, it is made between two batches, its tasks run as
a Spark job of their own while batches go on, and it is completed between two batches again. So one thread at a
time writes to the timeline and to the metadata table, and no lock is needed. Compactions that a process of their
own carries out (`tagstream services run`) are begun and completed here, too.

Logs are compacted before a column's type is widened: hudi-rs reads no log whose types are narrower than the
table's. Base files of older types it reads, as every engine does. So slices with logs become base files first,
with the types that they have, and later logs have the new types.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.options.service_options import CompactionMode
from tagstream.streaming.services.spark_tasks import Background, run_in_spark
from tagstream.table.services.compaction import begin_compaction, compact, compaction_tasks, complete_compaction
from tagstream.table.services.compaction_plan import may_take_up, schedule_compaction
from tagstream.table.services.compaction_task import CompactionTask
from tagstream.table.services.compaction_worker import complete_after_another, look, pending_plans
from tagstream.table.services.options import Strategy
from tagstream.table.timeline.commit_metadata import WriteStatus
from tagstream.table.timeline.instant import COMPACTION
from tagstream.table.timeline.timeline import Timeline

_LOOK_MS = 2_000


@dataclass(frozen=True)
class Compacted:
    """A compaction that was completed. ``seconds``: from its beginning to its end."""

    instant: str
    statuses: tuple[WriteStatus, ...]
    seconds: float


class CompactionsElsewhere:
    """What the job does for them, between two batches or while none runs."""

    def __init__(self, job: JobContext) -> None:
        self._job = job
        self._began: dict[str, int] = {}
        self._looked_ms = 0

    def turn(self, reach: Callable[[str], None], *, at_most_every_ms: int = 0) -> list[Compacted]:
        """Complete those whose result is there, begin those that a process offers to carry out."""
        job, now_ms = self._job, self._job.env.clock_ms()
        if now_ms - self._looked_ms < at_most_every_ms:
            return []
        self._looked_ms = now_ms
        table, done = job.table, []
        for instant in pending_plans(table):
            found = look(table, instant, now_ms)
            if found.begun and found.statuses is not None:
                reach("compaction_files")
                complete = complete_compaction if instant in self._began else complete_after_another
                complete(table, instant, found.statuses, job.env.clock_ms, job.env.lease.check, reach)
                began = self._began.pop(instant, now_ms)
                done.append(Compacted(instant, found.statuses, (job.env.clock_ms() - began) / 1000))
            elif not found.begun and found.worker is not None:
                begin_compaction(table, instant, job.env.clock_ms, job.env.lease.check, reach)
                self._began[instant] = now_ms
        return done

    def idle(self, reach: Callable[[str], None]) -> list[Compacted]:
        """As :meth:`turn`, from a loop that comes by often."""
        return self.turn(reach, at_most_every_ms=_LOOK_MS)


LOG = logging.getLogger("tagstream")
Reach = Callable[[str], None]


class Compactor:
    """The compactions of one run; all but the tasks on the thread of the batches, or while no batch runs."""

    def __init__(self, job: JobContext, spark: SparkSession) -> None:
        options, config = job.options, job.table.config
        self._job, self._spark = job, spark
        self.mode = options.services.compaction_mode(
            config.version, merge_on_read=config.is_merge_on_read, continuous=options.continuous
        )
        self._running: Background[list[WriteStatus]] | None = None
        self._instant, self._began_ms = "", 0
        self._elsewhere = CompactionsElsewhere(job)

    @property
    def running(self) -> bool:
        """Whether tasks run beside the batches, or may run in another process."""
        return self._running is not None or self.mode is CompactionMode.SCHEDULE

    def turn(self, reach: Reach, look: Callable[[], Timeline]) -> list[Compacted]:
        """Between two batches: complete what has run beside them, plan what is due, carry it out or begin to.

        ``look`` gives the timeline as it is now; a step of which ``reach`` is told makes it look again.
        """
        done = self.finish(reach) if self._running is not None else []
        if self.mode is CompactionMode.OFF or self._running is not None:
            return done
        if self.mode is CompactionMode.SCHEDULE:
            done += self._elsewhere.turn(reach)
        instant = self._due(reach, look())
        if instant is None or self.mode is CompactionMode.SCHEDULE:
            return done
        self._begin(instant, reach)
        if self.mode is CompactionMode.INLINE:
            done += self.finish(reach, wait=True)
        return done

    def finish(self, reach: Reach, *, wait: bool = False) -> list[Compacted]:
        """Complete the compaction whose tasks have ended; ``wait``: for those of this process. Errors are raised here."""
        running = self._running
        if self.mode is CompactionMode.SCHEDULE:
            return self._elsewhere.idle(reach)
        if running is None or not (wait or running.ended):
            return []
        job = self._job
        try:
            statuses = running.result()
        finally:
            self._running = None
        reach("compaction_files")
        complete_compaction(job.table, self._instant, statuses, job.env.clock_ms, job.env.lease.check, reach)
        seconds = (job.env.clock_ms() - self._began_ms) / 1000
        return [Compacted(self._instant, tuple(statuses), seconds)]

    def close(self) -> None:
        """Give up what runs; its plan stays, and a later start begins it anew."""
        if self._running is not None:
            self._running.cancel()
            self._running = None

    def _due(self, reach: Reach, timeline: Timeline) -> str | None:
        """A plan to carry out: one that is on the timeline and may be taken up, else a new one."""
        job, now_ms = self._job, self._job.env.clock_ms()
        table = job.table
        pending = [i.time for i in timeline.pending if i.action == COMPACTION]
        if pending:
            if self.mode is CompactionMode.SCHEDULE:
                return None
            return next((time for time in pending if may_take_up(table, time, now_ms)), None)
        options = job.options.services.compaction
        return schedule_compaction(table, options, job.env.clock_ms, job.env.lease.check, reach, timeline=timeline)

    def _begin(self, instant: str, reach: Reach) -> None:
        job = self._job
        self._instant, self._began_ms = instant, job.env.clock_ms()
        begin_compaction(job.table, instant, job.env.clock_ms, job.env.lease.check, reach)
        options = job.options.services.compaction
        tasks = compaction_tasks(job.table, instant, job.run, options, job.env.writer)
        beside = self.mode is CompactionMode.ASYNC
        self._running = Background(
            self._spark, f"compaction {instant}", lambda: run_in_spark(self._spark, tasks), beside=beside
        )


def compact_logs(job: JobContext, spark: SparkSession) -> list[str]:
    """Compact every slice that has logs, pending plans first; the instants, none where there was nothing to do.

    A plan that another process is carrying out stays: until it is done hudi-rs cannot read its slices.
    """
    options = replace(job.options.services.compaction, strategy=Strategy.UNBOUNDED)

    def execute(tasks: Sequence[CompactionTask]) -> list[WriteStatus]:
        return run_in_spark(spark, tasks)

    def carry_out(instant: str) -> None:
        env = job.env
        compact(job.table, instant, env.clock_ms, env.lease.check, execute=execute, options=options, files=env.writer)
        done.append(instant)

    done: list[str] = []
    pending = [i.time for i in job.table.timeline().pending if i.action == COMPACTION]
    for instant in pending:
        if may_take_up(job.table, instant, job.env.clock_ms()):
            carry_out(instant)
        else:
            LOG.warning(
                "compaction %s of table %s is another process's: until it is done hudi-rs cannot read its file groups, "
                "since their logs have narrower types than the table has from now on",
                instant,
                job.table.base_path,
            )
    new = schedule_compaction(job.table, options, job.env.clock_ms, job.env.lease.check, force=True, look_at_all=True)
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
