"""Cleaning between two batches, or beside them.

Beside the batches (async), a clean is planned and begun between two of them, its files are deleted on a thread of the driver
while batches go on, which read and write none of them, and it is completed between two again: so one thread at a time writes
to the timeline and to the metadata table.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.services.background import Background
from tagstream.table.services.cleaning.clean import (
    CleanResult,
    begin_clean,
    clean,
    complete_clean,
    delete_files,
    pending_cleans,
    schedule_clean,
)
from tagstream.table.services.cleaning.records import StoredPlan
from tagstream.table.timeline.timeline import Timeline

Reach = Callable[[str], None]


@dataclass(frozen=True)
class Cleaned:
    """Cleans that were completed. ``seconds``: from the beginning of the first to the end of the last."""

    result: CleanResult
    seconds: float


@dataclass(frozen=True)
class _Running:
    instant: str
    plan: StoredPlan
    work: Background[None]
    began: float


class Cleaner:
    """The cleans of one run; all but the deleting of files on the thread of the batches, or while no batch runs."""

    def __init__(self, job: JobContext, spark: SparkSession) -> None:
        self._job, self._spark = job, spark
        self._options, self._beside = job.options.services.clean, job.options.services.cleans_beside
        self._running: _Running | None = None

    @property
    def running(self) -> bool:
        """Whether files are deleted beside the batches, or were and their clean is not completed."""
        return self._running is not None

    def turn(self, reach: Reach, look: Callable[[], Timeline]) -> Cleaned | None:
        """Between two batches: complete what has run beside them, plan what is due, carry it out or begin to.

        ``look`` gives the timeline as it is now; a step of which ``reach`` is told makes it look again.
        """
        options, job = self._options, self._job
        if options is None:
            return None
        if not self._beside:
            begun = time.monotonic()
            done = clean(job.table, options, job.clock_ms, job.lease.check, reach, timeline=look())
            return None if done is None else Cleaned(done, time.monotonic() - begun)
        finished = self.finish(reach)
        if self._running is None:
            pending = pending_cleans(look())
            instant = (
                pending[0]
                if pending
                else schedule_clean(job.table, options, job.clock_ms, job.lease.check, reach, look())
            )
            if instant is not None:
                self._begin(instant, reach)
        return finished

    def finish(self, reach: Reach, *, wait: bool = False) -> Cleaned | None:
        """Complete the clean whose files are deleted; ``wait``: for that. Errors are raised here, and it is tried again."""
        running, job = self._running, self._job
        if running is None or not (wait or running.work.ended):
            return None
        self._running = None
        running.work.result()
        reach("clean_deleted")
        done = complete_clean(job.table, running.instant, running.plan, job.clock_ms, job.lease.check, reach)
        return None if done is None else Cleaned(done, time.monotonic() - running.began)

    def close(self) -> None:
        """Wait for the files that are being deleted; a later start completes the clean."""
        if self._running is not None:
            self._running.work.cancel()
            self._running = None

    def _begin(self, instant: str, reach: Reach) -> None:
        job, begun = self._job, time.monotonic()
        plan = begin_clean(job.table, instant, job.lease.check, reach)
        if plan is None:
            return
        job.lease.check()
        table = job.table
        work = Background(self._spark, f"clean {instant}", lambda: delete_files(table, plan), beside=True)
        self._running = _Running(instant, plan, work, begun)
