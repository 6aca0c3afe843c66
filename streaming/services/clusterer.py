"""Clustering between two batches, and the index behind it.

Nobody may write to the file groups of a plan until it is carried out, so it is planned and carried out in one go. The keys
are in other file groups then: an index that the stream keeps as its state catches up with them as with another writer's
commit, by reading the new files alone, and the query goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tagstream.bootstrap.catch_up import plan_catch_up
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.recovery.catching_up import catch_up
from tagstream.streaming.recovery.settle import new_instant
from tagstream.streaming.services.spark_tasks import run_in_spark
from tagstream.table.errors import LeaseLostError, TagstreamError
from tagstream.table.services.clustering.execute import (
    ClusteringResult,
    begin_clustering,
    clustering_tasks,
    complete_clustering,
)
from tagstream.table.services.clustering.groups import pending_action
from tagstream.table.services.clustering.options import ClusteringOptions
from tagstream.table.services.clustering.plan import Memory, schedule_clustering
from tagstream.table.services.clustering.withdraw import rollback_clustering
from tagstream.table.services.compaction.claim import may_take_up

LOG = logging.getLogger("tagstream")
Reach = Callable[[str], None]
_KEPT_IN_MEMORY = "INMEMORY"


@dataclass(frozen=True)
class Clustered:
    """A clustering that was completed. ``known``: the index knows where the keys are now; else the query starts again and
    learns it. ``seconds``: from its beginning to its end."""

    result: ClusteringResult
    known: bool
    seconds: float


class Clusterer:
    """The clusterings of one run, on the thread of the batches."""

    def __init__(self, job: JobContext, spark: SparkSession) -> None:
        self._job, self._spark = job, spark
        self._memory = Memory()

    def turn(self, batch_id: int, reach: Reach) -> Clustered | None:
        """After batch ``batch_id``: carry out a plan that is there and may be taken up, else what is due."""
        job, options = self._job, self._job.options.services.clustering
        if options is None:
            return None
        began_ms = job.clock_ms()
        instant = self._due(options, reach)
        if instant is None:
            return None
        result = self._carry_out(instant, options, reach)
        known = self._follow(result, batch_id + 1)
        reach("clustering_known")
        return Clustered(result, known, (job.clock_ms() - began_ms) / 1000)

    def _due(self, options: ClusteringOptions, reach: Reach) -> str | None:
        job = self._job
        table, now_ms = job.table, job.clock_ms()
        pending = sorted(set(table.timeline().pending_clusterings.values()))
        if pending:
            return next((time for time in pending if may_take_up(table, time, now_ms, pending_action(table))), None)
        return schedule_clustering(table, options, job.clock_ms, job.lease.check, reach, memory=self._memory)

    def _carry_out(self, instant: str, options: ClusteringOptions, reach: Reach) -> ClusteringResult:
        job = self._job
        try:
            begin_clustering(job.table, instant, job.clock_ms, job.lease.check, reach)
            tasks = clustering_tasks(job.table, instant, job.run, options.max_memory, job.writer)
            statuses = run_in_spark(self._spark, tasks)
            reach("clustering_files")
            return complete_clustering(job.table, instant, statuses, job.clock_ms, job.lease.check, reach)
        except LeaseLostError:
            raise
        except (TagstreamError, OSError, PySparkException):
            # The batches must not wait for what could not be carried out.
            rollback_clustering(job.table, instant, new_instant(job), job.lease.check)
            raise

    def _follow(self, result: ClusteringResult, first_batch: int) -> bool:
        """Tell the index; False where it must be started again."""
        job = self._job
        if job.index is not None:  # it asks the table, but for one that is loaded when the query starts
            return job.index.name != _KEPT_IN_MEMORY
        plan = plan_catch_up(job.table, (result.instant,), job.options.index_partition_regex)
        if plan.too_big(len(job.meta.labels)):
            LOG.warning(
                "clustering %s moved the keys of %s files: the index is loaded anew",
                result.instant,
                f"{plan.plan.files:,}",
            )
            return False
        job.index_epoch = catch_up(job, self._spark, plan, first_batch)
        return True
