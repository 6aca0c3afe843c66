"""Looks at what a run depends on besides its table: Spark's tasks, the topic, the index, the quarantine.

- Spark: how many tasks of the current batch are done. A long batch moves on; one that is stuck does not.
- the topic: how many records it has that no batch of the stream has committed, and since when. Spark reports the
  number when a batch ends. Before the first batch, while a batch runs for long, and for the number and age of each
  partition's records, the broker is asked.
- the index in the checkpoint: the sizes of key groups before any batch has reported them.
- the quarantine: how many bad records the checkpoint keeps, and the newest reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from pyspark.sql import SparkSession

from tagstream.state.checkpoint import QUARANTINE, current_root
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
        begin = read_up_to(job.root.files, "commits", job.position.starting_offsets or job.options.starting_offsets)
        if begin is None:
            return
        waits = waiting(topic_offsets(self._spark, topic, settings), begin)
        left = {part: at for part, (at, records) in waits.items() if records}
        oldest = oldest_from(self._spark, topic, settings, left, job.env.clock_ms())
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


MOST_GROUPS = 1024  # of more, each a few ms, what batches tell must do


class IndexLook:
    """Taken once for each generation of the index, after index and table were brought together."""

    def __init__(self, status: RunStatus, job: JobContext) -> None:
        self._status, self._job = status, job
        self._seen: tuple[str, int] | None = None

    def __call__(self) -> None:
        """Read the counters of every key group, unless that was done."""
        job = self._job
        now = (job.root.files.root, job.position.generation)
        if self._seen == now or job.env.index is not None or len(job.env.meta.labels) > MOST_GROUPS:
            return
        with scratch_folder("tagstream-status-") as scratch:
            heads = read_heads(job.env.checkpoint, scratch, meta=job.env.meta)
            layout = replace(heads.layout, lock_wait_s=0.0)
            found = []
            for label in job.env.meta.labels:  # a step a key group, of which there are few
                pointer = heads.pointers[label]
                counts = counts_at(layout, label, pointer, heads.generation, heads.epoch)
                found.append(GroupSize(label, counts.live, counts.tombstones, sum(sizes_at(layout, label, pointer))))
        self._status.groups(found, whole=True)
        self._seen = now


BATCHES_A_LOOK, REASONS = 16, 5


class QuarantineLook:
    """A batch is read once, newest batches first, and again while it is the newest: its attempt may begin again.

    ``records``: bad records of this run so far; while they do not change there is nothing new.
    """

    def __init__(self, status: RunStatus, checkpoint: Storage, records: Callable[[], int]) -> None:
        self._status, self._checkpoint, self._records = status, checkpoint, records
        self._found: dict[int, int] = {}
        self._reasons: dict[str, int] = {}
        self._seen: int | None = None
        self._root = ""

    def __call__(self) -> None:
        """Read what is new."""
        records = self._records()
        if self._seen == records:
            return
        root = current_root(self._checkpoint).files
        if root.root != self._root:  # another query, with batches of its own
            self._root, self._found, self._reasons = root.root, {}, {}
        quarantine = private(root.below(QUARANTINE))
        batches = quarantined_batches(quarantine)
        settled = set(batches[:-1])
        self._found = {batch: count for batch, count in self._found.items() if batch in settled}
        due = [batch for batch in reversed(batches) if batch not in self._found]
        for batch in islice(due, BATCHES_A_LOOK):
            self._found[batch] = 0
            for _, _, record in read_quarantine(quarantine, batch):  # a row loop: bad records are few
                self._found[batch] += 1
                self._reasons[record["reason"]] = max(batch, self._reasons.get(record["reason"], batch))
        newest = sorted(self._reasons.items(), key=lambda one: (-one[1], one[0]))[:REASONS]
        whole = len(due) <= BATCHES_A_LOOK
        self._seen = records if whole else None
        self._reasons = dict(newest)
        told = tuple((batch, reason) for reason, batch in newest)
        self._status.quarantine(Quarantine(sum(self._found.values()), whole, told))
