"""Clustering, and the update of the index after it.

Nobody may write to the file groups of a plan until it is executed. Inline, it is planned and executed between two batches.
Async, its tasks run as a separate Spark job while batches continue, and it is completed between two batches. A batch with
rows for its file groups, or one that replaces them, has precedence: the plan is removed from the timeline before the
batch's files get their final names. At this time no file of the plan has its final name. It is also removed if another
writer has written to its file groups or replaced them, or (with PreferWriterConflictResolutionStrategy) is about to.

A clustering moves keys to other file groups. The state index catches up as with another writer's commit: it reads only the
new files, and the query continues.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tagstream.bootstrap.catch_up import plan_catch_up
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.report import size
from tagstream.streaming.recovery.cover import catch_up
from tagstream.streaming.recovery.live_writers import preferred_write
from tagstream.streaming.recovery.pending_writes import new_instant
from tagstream.streaming.services.service import PlannedService, Reach, Turn
from tagstream.streaming.services.spark_tasks import Background, run_in_spark
from tagstream.table.errors import LeaseLostError, PlanOverlapError, TagstreamError
from tagstream.table.services.clustering import (
    ClusteringResult,
    begin_clustering,
    clustering_tasks,
    complete_clustering,
    rollback_clustering,
    unschedule_clustering,
)
from tagstream.table.services.clustering_plan import Memory, schedule_clustering
from tagstream.table.services.planned import may_take_up
from tagstream.table.services.plans import pending_action
from tagstream.table.steps import Step
from tagstream.table.timeline.commit_metadata import WriteStatus
from tagstream.table.timeline.timeline import FileGroupId

LOG = logging.getLogger("tagstream")
_MOST_DOUBLINGS = 5


@dataclass(frozen=True)
class _Running:
    instant: str
    groups: frozenset[FileGroupId]
    work: Background[list[WriteStatus]]
    began_ms: int


class Clustering(PlannedService):
    """The clusterings of one run."""

    name: ClassVar[str] = "clustering"
    steps: ClassVar[str] = "clustering"

    def __init__(self, job: JobContext, spark: SparkSession) -> None:
        self._job, self._spark = job, spark
        self.is_async = job.options.services.clusters_beside
        self._memory = Memory()
        self._running: _Running | None = None
        self._conflicts = self._rest = 0

    @property
    def running(self) -> bool:
        """Whether tasks run during batches, or have ended with a plan that is not completed."""
        return self._running is not None

    def turn(self, now: Turn) -> list[str]:
        """No clustering is planned after the batch in which one is completed."""
        return self.finish(now) if self.running else super().turn(now)

    def plan(self, now: Turn) -> str | None:
        """The oldest plan on the timeline that may be executed, else a new one."""
        job, options = self._job, self._job.options.services.clustering
        if options is None:
            return None
        if self._rest:
            self._rest -= 1
            return None
        table, now_ms = job.table, job.env.clock_ms()
        pending = sorted(set(table.timeline().pending_clusterings.values()))
        if pending:
            return next((time for time in pending if may_take_up(table, time, now_ms, pending_action(table))), None)
        return schedule_clustering(table, options, job.env.clock_ms, job.env.check, now.reach, memory=self._memory)

    def run(self, instant: str, now: Turn) -> None:
        """Begin the plan and its tasks."""
        job = self._job
        options = job.options.services.clustering
        assert options is not None, "it is planned"
        with self._or_rolled_back(instant):
            began_ms = job.env.clock_ms()
            begin_clustering(job.table, instant, job.env.clock_ms, job.env.lease.check, now.reach)
            tasks = clustering_tasks(
                job.table, instant, job.file_run, options.max_memory, job.env.writer, options.resize
            )
            groups = frozenset(
                group for group, time in job.table.timeline().pending_clusterings.items() if time == instant
            )
            if self.is_async:  # new rows are written to other file groups
                job.small_files.reload(job.table.view(), groups)
            work = Background(
                self._spark, f"clustering {instant}", lambda: run_in_spark(self._spark, tasks), is_async=self.is_async
            )
        self._running = _Running(instant, groups, work, began_ms)

    def finish(self, now: Turn, *, wait: bool = False) -> list[str]:
        """Complete the clustering whose tasks have ended."""
        running, job = self._running, self._job
        if running is None or now.batch_id is None or not (wait or running.work.ended):
            return []
        with self._or_rolled_back(running.instant):
            statuses = running.work.result()
            now.reach(Step.CLUSTERING_FILES)
            with now.hold(f"clustering {running.instant}"):
                preferred = preferred_write(job, running.instant, running.groups)
                if preferred is not None:
                    self._withdraw(running, f"write {preferred} of another writer has precedence", now.reach)
                    return []
                try:
                    result = complete_clustering(
                        job.table, running.instant, statuses, job.env.clock_ms, job.env.check, now.reach
                    )
                except PlanOverlapError:
                    self._withdraw(
                        running, "another writer has written to its file groups, or replaced them", now.reach
                    )
                    return []
        self._running, self._conflicts = None, 0
        known = self._follow(result, now.batch_id + 1)
        now.reach(Step.CLUSTERING_KNOWN)
        if known:
            now.on_commit(result.instant)
        self._completed(result, (job.env.clock_ms() - running.began_ms) / 1000)
        return [result.instant]

    def give_way(self, groups: Collection[FileGroupId], reach: Reach) -> None:
        """Before a batch that writes to these file groups, or replaces them, gives its files their final names: remove a
        plan with one of them.

        The next clustering is due after the usual number of commits, which doubles with each removal in a row.
        """
        running, job = self._running, self._job
        if running is None:
            return
        job.env.lease.check()
        if running.groups.isdisjoint(groups):
            return
        self._withdraw(running, "a batch has rows for its file groups, or replaces them", reach)

    def _withdraw(self, running: _Running, why: str, reach: Reach) -> None:
        job, self._running = self._job, None
        running.work.cancel()
        with job.env.lock.hold(f"rollback of clustering {running.instant}"):
            unschedule_clustering(job.table, running.instant, job.env.check, reach)
        job.small_files.reload(job.table.view(), running.groups)
        options = job.options.services.clustering
        assert options is not None, "it runs"
        self._rest = options.max_commits << min(self._conflicts, _MOST_DOUBLINGS)
        self._conflicts += 1
        LOG.warning(
            "clustering %s of table %s was rolled back: %s. The next one is planned after %s batches",
            running.instant,
            job.table.base_path,
            why,
            f"{self._rest:,}",
        )

    def close(self) -> None:
        """Stop the running tasks. The plan is kept, and a later start executes or removes it."""
        if self._running is not None:
            self._running.work.cancel()
            self._running = None

    @contextmanager
    def _or_rolled_back(self, instant: str) -> Iterator[None]:
        """The batches must not wait for a plan that could not be executed."""
        try:
            yield
        except LeaseLostError:
            raise
        except (TagstreamError, OSError, PySparkException):
            self._running, job = None, self._job
            with job.env.lock.hold(f"rollback of clustering {instant}"):
                rollback_clustering(job.table, instant, new_instant(job), job.env.check)
            raise

    def _completed(self, result: ClusteringResult, seconds: float) -> None:
        job = self._job
        new = {(s.stat.partition_path, s.stat.file_id) for s in result.statuses}
        gone = {(partition, file_id) for partition, ids in result.replaced.items() for file_id in ids}
        job.small_files.reload(job.table.view(), new | gone)
        LOG.info(
            "clustering %s: %s file groups became %s, %s written, in %.1f s",
            result.instant,
            f"{len(gone):,}",
            f"{len(new):,}",
            size(sum(s.stat.file_size for s in result.statuses)),
            seconds,
        )

    def _follow(self, result: ClusteringResult, first_batch: int) -> bool:
        """Update the index; False if it must be started again."""
        job = self._job
        if job.env.index is not None:  # such an index reads the table, or keeps file groups in memory
            return job.env.index.clustered(job.table, result.statuses, result.replaced)
        plan = plan_catch_up(job.table, (result.instant,), job.options.state.partition_regex)
        if plan.too_big(len(job.env.meta.labels), job.layout.ordering):
            LOG.warning(
                "clustering %s moved the keys of %s files: the index is loaded again",
                result.instant,
                f"{plan.plan.files:,}",
            )
            return False
        job.position.catch_up = catch_up(job, self._spark, plan, first_batch)
        return True
