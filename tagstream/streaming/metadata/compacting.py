"""The compaction of a metadata table's file groups on Spark's executors: each is read, merged and written by one task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pyspark.sql import SparkSession

from tagstream.table.metadata.write.compaction import CompactionTask, Execute
from tagstream.table.timeline.write_status import WriteStat

_SMALL_BYTES = 1 << 20  # some 150,000 record keys: so little is merged here in a fraction of a second


def on_executors(spark: SparkSession) -> Execute:
    """Carries out large groups there, the largest first, and small ones here."""

    def execute(tasks: Sequence[CompactionTask]) -> Iterator[WriteStat | None]:
        ordered = sorted(tasks, key=lambda task: -task.weight)
        large = [task for task in ordered if task.weight >= _SMALL_BYTES]
        if len(large) > 1:
            yield from _in_spark(spark, large)
            ordered = ordered[len(large) :]
        yield from (task.run() for task in ordered)

    return execute


def _in_spark(spark: SparkSession, tasks: Sequence[CompactionTask]) -> list[WriteStat | None]:
    return spark.sparkContext.parallelize(tasks, len(tasks)).mapPartitions(_run).collect()


def _run(tasks: Iterable[CompactionTask]) -> Iterator[WriteStat | None]:
    return (task.run() for task in tasks)
