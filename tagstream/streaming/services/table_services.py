"""What is done for the table between two batches: compaction, clustering, cleaning, archiving, in Hudi's order.

The first three may also run during batches. The batch is committed when they begin. A failure here is reported,
and tried again after the next batch: the stream goes on, and no service leaves a table that cannot be read. Only a
lost lease ends the run.

An async clean is planned and begun between two batches. Its files are deleted on a thread of the driver while
batches go on, which read and write none of them. It is completed between two batches again: so one thread at a
time writes to the timeline and to the metadata table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.report import size
from tagstream.streaming.process import steps_of
from tagstream.streaming.services.clustering import Clustered, Clusterer
from tagstream.streaming.services.compaction import Compacted, Compactor
from tagstream.streaming.services.spark_tasks import Background
from tagstream.table.errors import LeaseLostError, TagstreamError
from tagstream.table.services.archiving import archive_table
from tagstream.table.services.cleaning import (
    CleanResult,
    begin_clean,
    clean,
    complete_clean,
    delete_files,
    pending_cleans,
    schedule_clean,
)
from tagstream.table.services.options import CleanOptions
from tagstream.table.services.pending_clean import StoredPlan
from tagstream.table.timeline.commit_metadata import WriteStatus
from tagstream.table.timeline.timeline import Timeline

Reach = Callable[[str], None]


@dataclass(frozen=True)
class Cleaned:
    """Cleans that were completed. ``seconds``: from the beginning of the first to the end of the last."""

    result: CleanResult
    seconds: float


@dataclass(frozen=True)
class _Running:
    instant: str
    plan: StoredPlan
    work: Background[None]
    began: float


class Cleaner:
    """The cleans of one run; all but the deleting of files on the thread of the batches, or while no batch runs."""

    def __init__(self, job: JobContext, spark: SparkSession) -> None:
        self._job, self._spark = job, spark
        self._options, self._beside = job.options.services.clean, job.options.services.cleans_beside
        self._running: _Running | None = None

    @property
    def running(self) -> bool:
        """Whether files are deleted beside the batches, or were and their clean is not completed."""
        return self._running is not None

    def turn(self, reach: Reach, look: Callable[[], Timeline]) -> Cleaned | None:
        """Between two batches: complete what has run beside them, plan what is due, carry it out or begin to.

        ``look`` gives the timeline as it is now; a step of which ``reach`` is told makes it look again.
        """
        options, job = self._options, self._job
        if options is None:
            return None
        if not self._beside:
            begun = time.monotonic()
            done = clean(job.table, options, job.env.clock_ms, job.env.lease.check, reach, timeline=look())
            return None if done is None else Cleaned(done, time.monotonic() - begun)
        finished = self.finish(reach)
        if self._running is None:
            pending = pending_cleans(look())
            instant = (
                pending[0]
                if pending
                else schedule_clean(job.table, options, job.env.clock_ms, job.env.lease.check, reach, look())
            )
            if instant is not None:
                self._begin(instant, reach)
        return finished

    def finish(self, reach: Reach, *, wait: bool = False) -> Cleaned | None:
        """Complete the clean whose files are deleted; ``wait``: for that. Errors are raised here, and it is tried again."""
        running, job = self._running, self._job
        if running is None or not (wait or running.work.ended):
            return None
        self._running = None
        running.work.result()
        reach("clean_deleted")
        done = complete_clean(job.table, running.instant, running.plan, job.env.clock_ms, job.env.lease.check, reach)
        return None if done is None else Cleaned(done, time.monotonic() - running.began)

    def close(self) -> None:
        """Wait for the files that are being deleted; a later start completes the clean."""
        if self._running is not None:
            self._running.work.cancel()
            self._running = None

    def _begin(self, instant: str, reach: Reach) -> None:
        job, begun = self._job, time.monotonic()
        plan = begin_clean(job.table, instant, job.env.lease.check, reach)
        if plan is None:
            return
        job.env.lease.check()
        table = job.table
        work = Background(self._spark, f"clean {instant}", lambda: delete_files(table, plan), beside=True)
        self._running = _Running(instant, plan, work, begun)


LOG = logging.getLogger("tagstream")


class TableServices:
    """The services of one run. ``on_commit`` is told of each instant that a service has completed."""

    def __init__(self, job: JobContext, spark: SparkSession) -> None:
        self._job = job
        self._compactor = Compactor(job, spark)
        self._clusterer = Clusterer(job, spark)
        self._cleaner = Cleaner(job, spark)
        self._timeline: Timeline | None = None
        self.failed: dict[str, str] = {}

    def after_batch(self, batch_id: int, on_commit: Callable[[str], None], timeline: Timeline | None = None) -> None:
        """All that is due, on the thread of the batches. ``timeline``: as the batch's commit has left it."""
        job = self._job
        job.hooks.step("table services", batch_id)
        self._timeline = timeline
        if self._look().pending_writes:
            return  # another writer is at work: the metadata table has one writer at a time, and slices may be in use
        with self._attempt("compaction") as done:
            done += self._take_in(self._compactor.turn(self._reach("compaction", batch_id), self._look), on_commit)
        with self._attempt("clustering") as done:
            done += self._regrouped(self._clusterer.turn(batch_id, self._reach("clustering", batch_id)), on_commit)
        with self._attempt("cleaning") as done:
            done += self._cleaned(self._cleaner.turn(self._reach("clean", batch_id), self._look))
        with self._attempt("archiving") as done:
            done += self._archive(batch_id)

    def give_way(self, batch_id: int, statuses: Iterable[WriteStatus]) -> None:
        """Before a batch publishes these files: what runs beside it over one of their file groups is taken back."""
        if self._clusterer.running:
            self._job.env.lease.check()
            groups = {(s.stat.partition_path, s.stat.file_id) for s in statuses}
            self._clusterer.give_way(groups, self._reach("clustering", batch_id))

    def finish(self, batch_id: int | None, on_commit: Callable[[str], None], *, wait: bool = False) -> None:
        """While no batch runs and none is begun: complete what has run beside the batches; ``wait``: for it, at the end.

        ``batch_id``: the newest batch, None before the first of this run.
        """
        running = self._compactor.running, self._clusterer.running and batch_id is not None, self._cleaner.running
        if not any(running) or self._job.table.timeline().pending_writes:
            return
        if running[0]:
            with self._attempt("compaction") as done:
                done += self._take_in(self._compactor.finish(self._reach("compaction", -1), wait=wait), on_commit)
        if running[1] and batch_id is not None:
            with self._attempt("clustering") as done:
                found = self._clusterer.finish(batch_id, self._reach("clustering", -1), wait=wait)
                done += self._regrouped(found, on_commit)
        if running[2]:
            with self._attempt("cleaning") as done:
                done += self._cleaned(self._cleaner.finish(self._reach("clean", -1), wait=wait))

    def close(self) -> None:
        """Give up what runs beside the batches; a later start begins it anew."""
        self._compactor.close()
        self._clusterer.close()
        self._cleaner.close()

    def _take_in(self, done: Sequence[Compacted], on_commit: Callable[[str], None]) -> Sequence[str]:
        job = self._job
        for compacted in done:
            on_commit(compacted.instant)
            view = job.table.view()
            job.small_files.reload(view, {(s.stat.partition_path, s.stat.file_id) for s in compacted.statuses})
            LOG.info(
                "compaction %s: %s file groups, %s written, in %.1f s",
                compacted.instant,
                f"{len(compacted.statuses):,}",
                size(sum(s.stat.file_size for s in compacted.statuses)),
                compacted.seconds,
            )
        return [compacted.instant for compacted in done]

    def _regrouped(self, done: Clustered | None, on_commit: Callable[[str], None]) -> Sequence[str]:
        job = self._job
        if done is None:
            return ()
        result = done.result
        if done.known:
            on_commit(result.instant)
        new = {(s.stat.partition_path, s.stat.file_id) for s in result.statuses}
        gone = {(partition, file_id) for partition, ids in result.replaced.items() for file_id in ids}
        job.small_files.reload(job.table.view(), new | gone)
        LOG.info(
            "clustering %s: %s file groups became %s, %s written, in %.1f s",
            result.instant,
            f"{len(gone):,}",
            f"{len(new):,}",
            size(sum(s.stat.file_size for s in result.statuses)),
            done.seconds,
        )
        return [result.instant]

    def _cleaned(self, done: Cleaned | None) -> Sequence[str]:
        if done is None:
            return ()
        result = done.result
        if result.instants:
            LOG.info(
                "clean %s: %s files deleted, in %.1f s",
                result.instants[-1],
                f"{len(result.deleted):,}",
                done.seconds,
            )
        return result.instants

    def _archive(self, batch_id: int) -> Sequence[str]:
        job, options = self._job, self._job.options.services
        if options.archive is None:
            return ()
        cleaning = options.clean or CleanOptions()
        done = archive_table(
            job.table,
            options.archive,
            cleaning,
            job.env.clock_ms,
            job.env.lease.check,
            self._reach("archive", batch_id),
            timeline=self._look(),
        )
        if done is None:
            return ()
        LOG.info("archived %s actions, up to %s", f"{len(done.instants):,}", done.instants[-1].time)
        return (done.instants[-1].time,)

    def _look(self) -> Timeline:
        """The timeline between two batches, looked at once, and again when a service has done a step."""
        if self._timeline is None:
            self._timeline = self._job.table.timeline()
        return self._timeline

    def _reach(self, service: str, batch_id: int) -> Callable[[str], None]:
        def reach(step: str) -> None:
            self._timeline = None
            self._job.env.crash.reach(step, batch_id)

        return steps_of(service, reach)

    @contextmanager
    def _attempt(self, service: str) -> Iterator[list[str]]:
        """Gives a list for the instants that the service completes."""
        done: list[str] = []
        error: str | None = None
        try:
            yield done
        except LeaseLostError:
            raise
        except (TagstreamError, OSError, PySparkException) as e:
            self._timeline = None
            error = str(e).strip().split("\n", maxsplit=1)[0]
            if self.failed.get(service) != error:
                LOG.warning("%s of table %s failed: %s; it is tried again", service, self._job.table.base_path, error)
            self.failed[service] = error
        else:
            self.failed.pop(service, None)
        self._job.hooks.service(service, len(done), error)
