"""What is done for the table between two batches: compaction, clustering, cleaning, archiving, in Hudi's order.

The batch is committed when they begin. What fails here is told and tried again after the next batch: the stream goes on,
and no service leaves a table that cannot be read. Only a lost lease ends the run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.crash import steps_of
from tagstream.streaming.progress.report import size
from tagstream.streaming.services.clusterer import Clusterer
from tagstream.streaming.services.compactor import Compactor
from tagstream.streaming.services.elsewhere import Compacted
from tagstream.table.errors import LeaseLostError, TagstreamError
from tagstream.table.services.archiving.archive_table import archive_table
from tagstream.table.services.cleaning.clean import clean
from tagstream.table.services.cleaning.options import CleanOptions
from tagstream.table.timeline.timeline import Timeline

LOG = logging.getLogger("tagstream")


class TableServices:
    """The services of one run. ``on_commit`` is told of each instant that a service has completed."""

    def __init__(self, job: JobContext, spark: SparkSession) -> None:
        self._job = job
        self._compactor = Compactor(job, spark)
        self._clusterer = Clusterer(job, spark)
        self._timeline: Timeline | None = None
        self.failed: dict[str, str] = {}

    def after_batch(self, batch_id: int, on_commit: Callable[[str], None]) -> None:
        """All that is due, on the thread of the batches."""
        job = self._job
        job.step("table services", batch_id)
        self._timeline = None
        if self._look().pending_writes:
            return  # another writer is at work: the metadata table has one writer at a time, and slices may be in use
        with self._attempt("compaction") as done:
            done += self._take_in(self._compactor.turn(self._reach("compaction", batch_id), self._look), on_commit)
        with self._attempt("clustering") as done:
            done += self._cluster(batch_id, on_commit)
        with self._attempt("cleaning") as done:
            done += self._clean(batch_id)
        with self._attempt("archiving") as done:
            done += self._archive(batch_id)

    def finish(self, on_commit: Callable[[str], None], *, wait: bool = False) -> None:
        """While no batch runs and none is begun: complete what has run beside the batches; ``wait``: for it, at the end."""
        if not self._compactor.running or self._job.table.timeline().pending_writes:
            return
        with self._attempt("compaction") as done:
            done += self._take_in(self._compactor.finish(self._reach("compaction", -1), wait=wait), on_commit)

    def close(self) -> None:
        """Give up what runs beside the batches; a later start begins it anew."""
        self._compactor.close()

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

    def _cluster(self, batch_id: int, on_commit: Callable[[str], None]) -> Sequence[str]:
        job = self._job
        done = self._clusterer.turn(batch_id, self._reach("clustering", batch_id))
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

    def _clean(self, batch_id: int) -> Sequence[str]:
        job, options = self._job, self._job.options.services.clean
        if options is None:
            return ()
        begun = time.monotonic()
        done = clean(
            job.table, options, job.clock_ms, job.lease.check, self._reach("clean", batch_id), timeline=self._look()
        )
        if done is not None and done.instants:
            LOG.info(
                "clean %s: %s files deleted, in %.1f s",
                done.instants[-1],
                f"{len(done.deleted):,}",
                time.monotonic() - begun,
            )
        return () if done is None else done.instants

    def _archive(self, batch_id: int) -> Sequence[str]:
        job, options = self._job, self._job.options.services
        if options.archive is None:
            return ()
        cleaning = options.clean or CleanOptions()
        done = archive_table(
            job.table,
            options.archive,
            cleaning,
            job.clock_ms,
            job.lease.check,
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
            self._job.crash.reach(step, batch_id)

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
        self._job.service(service, len(done), error)
