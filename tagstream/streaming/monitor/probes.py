"""Probes of what a run depends on besides its table: Spark's tasks, the topic, the index, the quarantine.

- Spark: how many tasks of the current batch are done. The number grows during a long batch, but not in a stuck one.
- the topic: how many records no batch of the stream has committed, and since when. Spark reports the number when a batch
  ends. The broker is asked before the first batch, during a long batch, and for the numbers and ages by partition.
- the index in the checkpoint: the sizes of key groups before a batch has reported them.
- the quarantine: how many bad records the checkpoint has, and the newest reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from pyspark.sql import SparkSession

from tagstream.state.checkpoint import QUARANTINE, current_query_folder
from tagstream.state.index_view import counts_at, read_heads, sizes_at
from tagstream.state.scratch import scratch_folder
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.quarantine import quarantined_batches, read_quarantine
from tagstream.streaming.batch.spark_checkpoint import read_up_to
from tagstream.streaming.monitor.run_status import RunStatus
from tagstream.streaming.monitor.snapshot import GroupSize, Quarantine, Tasks, Waiting
from tagstream.streaming.source.kafka_topic import Ends, oldest_from, topic_offsets
from tagstream.table.storage.opening import private
from tagstream.table.storage.storage import Storage


class TaskProbe:
    """Counts the tasks of the current batch. ``group``: returns the run id of Spark's query, which is the group of its
    jobs; None before the query has started.
    """

    def __init__(
        self, status: RunStatus, spark: SparkSession, group: Callable[[], str | None], clock_ms: Callable[[], int]
    ) -> None:
        self._status, self._spark, self._group, self._clock_ms = status, spark, group, clock_ms
        self._last: Tasks | None = None

    def __call__(self) -> None:
        """Count the tasks of the running stages, without those of other queries in the same application."""
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
                if info.isEmpty():  # skipped, or not started
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


class LagProbe:
    """Reads the lag from the broker, also while a batch runs."""

    def __init__(self, status: RunStatus, job: JobContext, spark: SparkSession) -> None:
        self._status, self._job, self._spark = status, job, spark

    def __call__(self) -> None:
        """Read the topic's end offsets, and the age of the oldest uncommitted record of each partition that has one."""
        job = self._job
        topic, settings = job.options.kafka.topic, job.options.kafka.consumer
        if topic is None or job.options.source.kind != "kafka":
            return
        begin = read_up_to(
            job.query_folder.files, "commits", job.position.starting_offsets or job.options.kafka.starting_offsets
        )
        if begin is None:
            return
        waits = waiting(topic_offsets(self._spark, topic, settings), begin)
        left = {part: at for part, (at, records) in waits.items() if records}
        oldest = oldest_from(self._spark, topic, settings, left, job.env.clock_ms())
        self._status.waits(Waiting(part, records, oldest.get(part)) for part, (_, records) in waits.items())


def waiting(ends: Mapping[int, Ends], begin: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """By partition: the offset of the first uncommitted record, and the number of uncommitted records.

    ``begin``: the next offset to read, by partition. A partition that it does not name counts from its first record.
    """
    found = {}
    for part, end in ends.items():
        at = max(begin.get(part, end.earliest), end.earliest)
        found[part] = at, max(0, end.latest - at)
    return found


MOST_GROUPS = 1024  # reading takes a few ms per key group; with more groups only what batches report is shown


class IndexProbe:
    """Reads the sizes of the key groups once per index load, after index and table were made consistent."""

    def __init__(self, status: RunStatus, job: JobContext) -> None:
        self._status, self._job = status, job
        self._seen: tuple[str, int] | None = None

    def __call__(self) -> None:
        """Read the counters of every key group, unless that was already done."""
        job = self._job
        now = (job.query_folder.files.root, job.position.index_load)
        if self._seen == now or job.env.index is not None or len(job.env.meta.labels) > MOST_GROUPS:
            return
        with scratch_folder("tagstream-status-") as scratch:
            heads = read_heads(job.env.checkpoint, scratch, meta=job.env.meta)
            layout = replace(heads.layout, lock_wait_s=0.0)
            found = []
            for label in job.env.meta.labels:  # a loop over key groups, which are few
                pointer = heads.pointers[label]
                counts = counts_at(layout, label, pointer, heads.index_load, heads.catch_up)
                found.append(GroupSize(label, counts.live, counts.tombstones, sum(sizes_at(layout, label, pointer))))
        self._status.groups(found, whole=True)
        self._seen = now


BATCHES_A_PROBE, REASONS = 16, 5


class QuarantineProbe:
    """Counts the bad records in the checkpoint.

    A batch is read once, newest batches first. The newest batch is read again, since it may have another attempt.
    ``records``: returns the bad records of this run so far; while that does not change, nothing is read.
    """

    def __init__(self, status: RunStatus, checkpoint: Storage, records: Callable[[], int]) -> None:
        self._status, self._checkpoint, self._records = status, checkpoint, records
        self._found: dict[int, int] = {}
        self._reasons: dict[str, int] = {}
        self._seen: int | None = None
        self._query_folder = ""

    def __call__(self) -> None:
        """Read new batches."""
        records = self._records()
        if self._seen == records:
            return
        query_folder = current_query_folder(self._checkpoint).files
        if query_folder.root != self._query_folder:  # another query, with other batches
            self._query_folder, self._found, self._reasons = query_folder.root, {}, {}
        quarantine = private(query_folder.below(QUARANTINE))
        batches = quarantined_batches(quarantine)
        settled = set(batches[:-1])
        self._found = {batch: count for batch, count in self._found.items() if batch in settled}
        due = [batch for batch in reversed(batches) if batch not in self._found]
        for batch in islice(due, BATCHES_A_PROBE):
            self._found[batch] = 0
            for _, _, record in read_quarantine(quarantine, batch):  # a row loop: bad records are few
                self._found[batch] += 1
                self._reasons[record["reason"]] = max(batch, self._reasons.get(record["reason"], batch))
        newest = sorted(self._reasons.items(), key=lambda one: (-one[1], one[0]))[:REASONS]
        whole = len(due) <= BATCHES_A_PROBE
        self._seen = records if whole else None
        self._reasons = dict(newest)
        told = tuple((batch, reason) for reason, batch in newest)
        self._status.quarantine(Quarantine(sum(self._found.values()), whole, told))
