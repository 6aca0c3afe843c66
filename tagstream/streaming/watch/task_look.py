"""A look at Spark: how many tasks of the batch at hand are done. A long batch moves on; one that is stuck does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from tagstream.streaming.status.run_status import RunStatus
from tagstream.streaming.status.snapshot import Tasks


class TaskLook:
    """``group``: the run id of Spark's query, whose jobs have it as their group; None before there is one."""

    def __init__(
        self, status: RunStatus, spark: SparkSession, group: Callable[[], str | None], clock_ms: Callable[[], int]
    ) -> None:
        self._status, self._spark, self._group, self._clock_ms = status, spark, group, clock_ms
        self._last: Tasks | None = None

    def __call__(self) -> None:
        """Count the tasks of the stages that are at work, those of other queries in the same application left out."""
        group = self._group()
        found = None if group is None else self._count(group)
        self._last = found
        self._status.tasks(found)

    def _count(self, group: str) -> Tasks | None:
        context: Any = self._spark.sparkContext._jsc.sc()  # noqa: SLF001 (PySpark's tracker knows no groups of jobs)
        tracker, store = context.statusTracker(), context.statusStore()
        total = done = running = failed = 0
        for number in tracker.getActiveJobIds():
            job = store.job(number)
            if not job.jobGroup().isDefined() or job.jobGroup().get() != group:
                continue
            stages = job.stageIds()
            for place in range(stages.size()):
                info = tracker.getStageInfo(stages.apply(place))
                if info.isEmpty():  # skipped, or not begun
                    continue
                stage = info.get()
                total, done = total + stage.numTasks(), done + stage.numCompletedTasks()
                running, failed = running + stage.numActiveTasks(), failed + stage.numFailedTasks()
        if not total:
            return None
        before = self._last
        same = before is not None and (before.total, before.done) == (total, done)
        moved_ms = before.moved_ms if same and before is not None else self._clock_ms()
        return Tasks(total, done, running, failed, moved_ms)
