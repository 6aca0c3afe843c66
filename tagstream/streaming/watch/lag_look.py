"""A look at the topic: how many records it holds that no batch of the stream has committed, and since when.

Spark tells the number when a batch ends. Before the first, while a batch runs for long, and for what each partition has and
how old that is, the broker is asked.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.epoch import read_up_to
from tagstream.streaming.source.topic import Ends, oldest_from, topic_offsets
from tagstream.streaming.status.run_status import RunStatus
from tagstream.streaming.status.snapshot import Waiting


class LagLook:
    """Taken while the batches of a run are at work."""

    def __init__(self, status: RunStatus, job: JobContext, spark: SparkSession) -> None:
        self._status, self._job, self._spark = status, job, spark

    def __call__(self) -> None:
        """Ask for the ends of the topic, and for the age of what waits where something does."""
        job = self._job
        topic, settings = job.options.kafka_topic, job.options.kafka_options
        if topic is None or job.options.source_class != "kafka":
            return
        begin = read_up_to(job.root.files, "commits", job.starting_offsets or job.options.starting_offsets)
        if begin is None:
            return
        waits = waiting(topic_offsets(self._spark, topic, settings), begin)
        left = {part: at for part, (at, records) in waits.items() if records}
        oldest = oldest_from(self._spark, topic, settings, left, job.clock_ms())
        self._status.waits(Waiting(part, records, oldest.get(part)) for part, (_, records) in waits.items())


def waiting(ends: Mapping[int, Ends], begin: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """By partition the offset of the first record that waits, and how many do.

    A partition that ``begin`` does not name counts from its first record.
    """
    found = {}
    for part, end in ends.items():
        at = max(begin.get(part, end.earliest), end.earliest)
        found[part] = at, max(0, end.latest - at)
    return found
