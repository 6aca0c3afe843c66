"""Compaction beside the stream.

Inline, a plan is made and carried out between two batches. Beside the batches (async), it is made between two of them, its
tasks run as a Spark job of their own while batches go on, and it is completed between two again: so one thread at a time
writes to the timeline and to the metadata table, and no lock is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.options.service_options import CompactionMode
from tagstream.streaming.services.background import Background
from tagstream.streaming.services.elsewhere import Compacted, CompactionsElsewhere
from tagstream.streaming.services.spark_tasks import run_in_spark
from tagstream.table.services.compaction.claim import may_take_up
from tagstream.table.services.compaction.execute import begin_compaction, compaction_tasks, complete_compaction
from tagstream.table.services.compaction.plan import schedule_compaction
from tagstream.table.timeline.instant import COMPACTION
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.timeline.write_status import WriteStatus

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
        complete_compaction(job.table, self._instant, statuses, job.clock_ms, job.lease.check, reach)
        seconds = (job.clock_ms() - self._began_ms) / 1000
        return [Compacted(self._instant, tuple(statuses), seconds)]

    def close(self) -> None:
        """Give up what runs; its plan stays, and a later start begins it anew."""
        if self._running is not None:
            self._running.cancel()
            self._running = None

    def _due(self, reach: Reach, timeline: Timeline) -> str | None:
        """A plan to carry out: one that is on the timeline and may be taken up, else a new one."""
        job, now_ms = self._job, self._job.clock_ms()
        table = job.table
        pending = [i.time for i in timeline.pending if i.action == COMPACTION]
        if pending:
            if self.mode is CompactionMode.SCHEDULE:
                return None
            return next((time for time in pending if may_take_up(table, time, now_ms)), None)
        options = job.options.services.compaction
        return schedule_compaction(table, options, job.clock_ms, job.lease.check, reach, timeline=timeline)

    def _begin(self, instant: str, reach: Reach) -> None:
        job = self._job
        self._instant, self._began_ms = instant, job.clock_ms()
        begin_compaction(job.table, instant, job.clock_ms, job.lease.check, reach)
        options = job.options.services.compaction
        tasks = compaction_tasks(job.table, instant, job.run, options, job.writer)
        beside = self.mode is CompactionMode.ASYNC
        self._running = Background(
            self._spark, f"compaction {instant}", lambda: run_in_spark(self._spark, tasks), beside=beside
        )
