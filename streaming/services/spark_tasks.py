"""Tasks of a service on Spark's executors, those with most logs first, so that none is left alone at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession

from tagstream.table.services.compaction.task import CompactionTask
from tagstream.table.timeline.write_status import WriteStatus

POOL = "tagstream-services"
_POOL_KEY = "spark.scheduler.pool"
_MOST = 10_000  # of Spark's tasks in a job


def run_in_spark(spark: SparkSession, tasks: Sequence[CompactionTask]) -> list[WriteStatus]:
    """Carry the tasks out on the executors; the error of one that failed as often as Spark allows."""
    if not tasks:
        return []
    context = spark.sparkContext
    ordered = sorted(tasks, key=lambda task: -len(task.inputs.operation.log_files))
    done = context.parallelize(ordered, min(len(ordered), _MOST)).mapPartitions(_carry_out).collect()
    return [WriteStatus.from_json(text) for text in done]


def use_own_pool(context: SparkContext, group: str) -> None:
    """What this thread asks of Spark shares the cores with the batches from now on, and can be cancelled by name."""
    context.setLocalProperty(_POOL_KEY, POOL)
    context.setJobGroup(group, "a table service of this stream", interruptOnCancel=False)


def _carry_out(tasks: Iterable[CompactionTask]) -> Iterator[str]:
    running = TaskContext.get()
    attempt = running.attemptNumber() if running is not None else 0
    for task in tasks:
        yield task.run(attempt).to_json()
