"""A look at the topic: how many records it holds that no batch of the stream has committed.

Spark says so itself when a batch ends. Before the first, and while a batch runs for long, the broker is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.epoch import newest_batch, raw_offset
from tagstream.streaming.source.topic import Ends, topic_offsets
from tagstream.streaming.status.run_status import RunStatus

_FRESH_MS = 10_000


class LagLook:
    """``told_ms``: when Spark's own progress told the lag last; 0: not yet."""

    def __init__(self, status: RunStatus, job: JobContext, spark: SparkSession, told_ms: Callable[[], int]) -> None:
        self._status, self._job, self._spark, self._told_ms = status, job, spark, told_ms

    def __call__(self) -> None:
        """Ask, unless Spark has just told."""
        job = self._job
        topic = job.options.kafka_topic
        if topic is None or job.clock_ms() - self._told_ms() < _FRESH_MS:
            return
        begin = reached(job)
        if begin is None:
            return
        ends = topic_offsets(self._spark, topic, job.options.kafka_options)
        self._status.lag(waiting(ends, begin))


def reached(job: JobContext) -> Mapping[int, int] | None:
    """Next offset of each partition after the last committed batch; empty: from the beginning. None: not known."""
    done = newest_batch(job.root.files, "commits")
    found = None if done is None else raw_offset(job.root.files, done)
    if found is None:
        found = job.starting_offsets or job.options.starting_offsets
        if found == "earliest":
            return {}
        if found == "latest":
            return None
        found = json.loads(found)
    return {int(p): int(at) for parts in found.values() for p, at in parts.items() if int(at) >= 0}


def waiting(ends: Mapping[int, Ends], begin: Mapping[int, int]) -> int:
    """Records between two sets of offsets; a partition that ``begin`` does not name counts from its first record."""
    return sum(max(0, end.latest - max(begin.get(p, end.earliest), end.earliest)) for p, end in ends.items())
