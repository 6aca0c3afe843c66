"""Clustering, and the index behind it.

Nobody may write to the file groups of a plan until it is carried out. Inline, it is planned and carried out between two
batches, in one go. Beside the batches (async), its tasks run as a Spark job of their own while batches go on, and it is
completed between two again; a batch that has rows for its file groups wins, and the plan is taken from the timeline before
the batch's files get their names: nothing of the plan was published by then.

The keys are in other file groups then: an index that the stream keeps as its state catches up with them as with another
writer's commit, by reading the new files alone, and the query goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tagstream.bootstrap.catch_up import plan_catch_up
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.recovery.cover import catch_up
from tagstream.streaming.recovery.pending_writes import new_instant
from tagstream.streaming.services.spark_tasks import Background, run_in_spark
from tagstream.table.errors import LeaseLostError, TagstreamError
from tagstream.table.services.clustering import (
    ClusteringResult,
    begin_clustering,
    clustering_tasks,
    complete_clustering,
    rollback_clustering,
    unschedule_clustering,
)
from tagstream.table.services.clustering_plan import Memory, schedule_clustering
from tagstream.table.services.compaction_plan import may_take_up
from tagstream.table.services.options import ClusteringOptions
from tagstream.table.services.planned import pending_action
from tagstream.table.timeline.commit_metadata import WriteStatus
from tagstream.table.timeline.timeline import FileGroupId

LOG = logging.getLogger("tagstream")
Reach = Callable[[str], None]
_KEPT_IN_MEMORY = "INMEMORY"
_MOST_DOUBLINGS = 5


@dataclass(frozen=True)
class Clustered:
    """A clustering that was completed. ``known``: the index knows where the keys are now; else the query starts again and
    learns it. ``seconds``: from its beginning to its end."""

    result: ClusteringResult
    known: bool
    seconds: float


@dataclass(frozen=True)
class _Running:
    instant: str
    groups: frozenset[FileGroupId]
    work: Background[list[WriteStatus]]
    began_ms: int


class Clusterer:
    """The clusterings of one run; all but the tasks on the thread of the batches, or while no batch runs."""

    def __init__(self, job: JobContext, spark: SparkSession) -> None:
        self._job, self._spark = job, spark
        self._beside = job.options.services.clusters_beside
        self._memory = Memory()
        self._running: _Running | None = None
        self._conflicts = self._rest = 0

    @property
    def running(self) -> bool:
        """Whether tasks run beside the batches, or have ended and their plan is not completed."""
        return self._running is not None

    def turn(self, batch_id: int, reach: Reach) -> Clustered | None:
        """After batch ``batch_id``: complete what has run beside the batches; carry out, or begin to, a plan that is there
        and may be taken up, else what is due."""
        options = self._job.options.services.clustering
        if options is None:
            return None
        if self._running is not None:
            return self.finish(batch_id, reach)
        if self._rest:
            self._rest -= 1
            return None
        began_ms = self._job.env.clock_ms()
        instant = self._due(options, reach)
        if instant is None:
            return None
        self._begin(instant, options, began_ms, reach)
        return None if self._beside else self.finish(batch_id, reach, wait=True)

    def finish(self, batch_id: int, reach: Reach, *, wait: bool = False) -> Clustered | None:
        """Complete the clustering whose tasks have ended; ``wait``: for them. ``batch_id``: the newest batch. Errors are
        raised here."""
        running, job = self._running, self._job
        if running is None or not (wait or running.work.ended):
            return None
        with self._or_taken_back(running.instant):
            statuses = running.work.result()
            reach("clustering_files")
            result = complete_clustering(
                job.table, running.instant, statuses, job.env.clock_ms, job.env.lease.check, reach
            )
        self._running, self._conflicts = None, 0
        known = self._follow(result, batch_id + 1)
        reach("clustering_known")
        return Clustered(result, known, (job.env.clock_ms() - running.began_ms) / 1000)

    def give_way(self, groups: Iterable[FileGroupId], reach: Reach) -> None:
        """A batch is about to publish files in these file groups: a plan over one of them is taken back.

        The next one is due after as many commits as usual, and after twice as many with each that is taken back in a row.
        """
        running, job = self._running, self._job
        if running is None or running.groups.isdisjoint(groups):
            return
        self._running = None
        running.work.cancel()
        unschedule_clustering(job.table, running.instant, job.env.lease.check, reach)
        job.small_files.reload(job.table.view(), running.groups)
        options = job.options.services.clustering
        assert options is not None, "it runs"
        self._rest = options.max_commits << min(self._conflicts, _MOST_DOUBLINGS)
        self._conflicts += 1
        LOG.warning(
            "clustering %s of table %s was taken back: a batch has rows for its file groups. The next one is planned after "
            "%s batches",
            running.instant,
            job.table.base_path,
            f"{self._rest:,}",
        )

    def close(self) -> None:
        """Give up what runs; its plan stays, and a later start begins it anew, or takes it back."""
        if self._running is not None:
            self._running.work.cancel()
            self._running = None

    def _due(self, options: ClusteringOptions, reach: Reach) -> str | None:
        job = self._job
        table, now_ms = job.table, job.env.clock_ms()
        pending = sorted(set(table.timeline().pending_clusterings.values()))
        if pending:
            return next((time for time in pending if may_take_up(table, time, now_ms, pending_action(table))), None)
        return schedule_clustering(table, options, job.env.clock_ms, job.env.lease.check, reach, memory=self._memory)

    def _begin(self, instant: str, options: ClusteringOptions, began_ms: int, reach: Reach) -> None:
        job = self._job
        with self._or_taken_back(instant):
            begin_clustering(job.table, instant, job.env.clock_ms, job.env.lease.check, reach)
            tasks = clustering_tasks(job.table, instant, job.run, options.max_memory, job.env.writer)
            groups = frozenset(
                group for group, time in job.table.timeline().pending_clusterings.items() if time == instant
            )
            if self._beside:  # new rows go elsewhere
                job.small_files.reload(job.table.view(), groups)
            work = Background(
                self._spark, f"clustering {instant}", lambda: run_in_spark(self._spark, tasks), beside=self._beside
            )
        self._running = _Running(instant, groups, work, began_ms)

    @contextmanager
    def _or_taken_back(self, instant: str) -> Iterator[None]:
        """The batches must not wait for what could not be carried out."""
        try:
            yield
        except LeaseLostError:
            raise
        except (TagstreamError, OSError, PySparkException):
            self._running, job = None, self._job
            rollback_clustering(job.table, instant, new_instant(job), job.env.lease.check)
            raise

    def _follow(self, result: ClusteringResult, first_batch: int) -> bool:
        """Tell the index; False where it must be started again."""
        job = self._job
        if job.env.index is not None:  # it asks the table, but for one that is loaded when the query starts
            return job.env.index.name != _KEPT_IN_MEMORY
        plan = plan_catch_up(job.table, (result.instant,), job.options.index_partition_regex)
        if plan.too_big(len(job.env.meta.labels), job.layout.ordering):
            LOG.warning(
                "clustering %s moved the keys of %s files: the index is loaded anew",
                result.instant,
                f"{plan.plan.files:,}",
            )
            return False
        job.position.epoch = catch_up(job, self._spark, plan, first_batch)
        return True
