"""Cleaning: between two batches, or during batches.

An async clean is planned and begun between two batches. A thread of the driver deletes its files while batches continue;
batches do not read or write these files. The clean is completed between two batches.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.services.service import PlannedService, Turn
from tagstream.streaming.services.spark_tasks import Background
from tagstream.table.services.cleaning import (
    CleanResult,
    begin_clean,
    clean,
    complete_clean,
    delete_files,
    pending_cleans,
    schedule_clean,
)
from tagstream.table.services.pending_clean import StoredPlan
from tagstream.table.steps import Step

LOG = logging.getLogger("tagstream")


@dataclass(frozen=True)
class _Running:
    instant: str
    plan: StoredPlan
    work: Background[None]
    began: float


class Cleaning(PlannedService):
    """The cleans of one run."""

    name: ClassVar[str] = "cleaning"
    steps: ClassVar[str] = "clean"

    def __init__(self, job: JobContext, spark: SparkSession) -> None:
        self._job, self._spark = job, spark
        self._options, self.is_async = job.options.services.clean, job.options.services.cleans_beside
        self._running: _Running | None = None

    @property
    def running(self) -> bool:
        """Whether files are being deleted during batches, or were deleted and their clean is not completed."""
        return self._running is not None

    def turn(self, now: Turn) -> list[str]:
        """Inline, every plan on the timeline is executed, and then a new plan if one is due.

        Where other writers take the table's lock, one plan is executed, and the lock is free while files are deleted.
        """
        options, job = self._options, self._job
        if options is None or self.is_async or job.env.lock.is_shared:
            return super().turn(now)
        began = time.monotonic()
        done = clean(job.table, options, job.env.clock_ms, job.env.lease.check, now.reach, timeline=now.look())
        return self._completed(done, began)

    def plan(self, now: Turn) -> str | None:
        """The oldest plan on the timeline, else a new one."""
        options, job = self._options, self._job
        if options is None:
            return None
        pending = pending_cleans(now.look())
        if pending:
            return pending[0]
        return schedule_clean(job.table, options, job.env.clock_ms, job.env.check, now.reach, now.look())

    def run(self, instant: str, now: Turn) -> None:
        """Begin the plan and the deletion of its files."""
        job, began = self._job, time.monotonic()
        plan = begin_clean(job.table, instant, job.env.lease.check, now.reach)
        if plan is None:
            return
        job.env.lease.check()
        table = job.table
        work = Background(self._spark, f"clean {instant}", lambda: delete_files(table, plan), is_async=True)
        self._running = _Running(instant, plan, work, began)

    def finish(self, now: Turn, *, wait: bool = False) -> list[str]:
        """Complete the clean whose files are deleted. After an error the plan is executed again."""
        running, job = self._running, self._job
        if running is None or not (wait or running.work.ended):
            return []
        self._running = None
        running.work.result()
        now.reach(Step.CLEAN_DELETED)
        with now.hold(f"clean {running.instant}"):
            done = complete_clean(job.table, running.instant, running.plan, job.env.clock_ms, job.env.check, now.reach)
        return self._completed(done, running.began)

    def close(self) -> None:
        """Wait for the files that are being deleted; a later start completes the clean."""
        if self._running is not None:
            self._running.work.cancel()
            self._running = None

    def _completed(self, result: CleanResult | None, began: float) -> list[str]:
        if result is None:
            return []
        if result.instants:
            LOG.info(
                "clean %s: %s files deleted, in %.1f s",
                result.instants[-1],
                f"{len(result.deleted):,}",
                time.monotonic() - began,
            )
        return list(result.instants)
