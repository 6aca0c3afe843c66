"""Tasks of a service on Spark's executors, the largest first, so that none is left alone at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession

from tagstream.table.timeline.write_status import WriteStatus

POOL = "tagstream-services"
_POOL_KEY = "spark.scheduler.pool"
_MOST = 10_000  # of Spark's tasks in a job


class ServiceTask(Protocol):
    """One piece of a service's work: picklable, and done again with the same result."""

    @property
    def weight(self) -> int:
        """What the work is proportional to, compared with the other tasks."""
        ...

    def run(self, attempt: int = 0) -> WriteStatus | list[WriteStatus]:
        """Stage new files. ``attempt``: attempts that may run at once have different ones."""
        ...


def run_in_spark(spark: SparkSession, tasks: Sequence[ServiceTask]) -> list[WriteStatus]:
    """Carry the tasks out on the executors; the error of one that failed as often as Spark allows."""
    if not tasks:
        return []
    context = spark.sparkContext
    ordered = sorted(tasks, key=lambda task: -task.weight)
    done = context.parallelize(ordered, min(len(ordered), _MOST)).mapPartitions(_carry_out).collect()
    return [WriteStatus.from_json(text) for text in done]


def use_own_pool(context: SparkContext, group: str) -> None:
    """What this thread asks of Spark shares the cores with the batches from now on, and can be cancelled by name."""
    context.setLocalProperty(_POOL_KEY, POOL)
    context.setJobGroup(group, "a table service of this stream", interruptOnCancel=False)


def _carry_out(tasks: Iterable[ServiceTask]) -> Iterator[str]:
    running = TaskContext.get()
    attempt = running.attemptNumber() if running is not None else 0
    for task in tasks:
        done = task.run(attempt)
        yield from (status.to_json() for status in ([done] if isinstance(done, WriteStatus) else done))
