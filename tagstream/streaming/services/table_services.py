"""The table services between two batches: compaction, clustering, expiry of partitions, cleaning, archiving.

The first three may also run during batches. The batch is committed when they begin. A failed service is reported, and tried
again after the next batch. The stream continues, and the table stays readable after a failure of a service. Only a lost
lease ends the run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tagstream.bootstrap import deleted_keys
from tagstream.streaming.batch import added_keys
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.recovery.live_writers import is_waited_for
from tagstream.streaming.services.archiving import Archiving
from tagstream.streaming.services.cleaning import Cleaning
from tagstream.streaming.services.clustering import Clustering
from tagstream.streaming.services.compaction import make_compaction
from tagstream.streaming.services.expiry import Expiry
from tagstream.streaming.services.service import Reach, TableService, Turn
from tagstream.table.errors import LeaseLostError, TagstreamError
from tagstream.table.steps import steps_of
from tagstream.table.timeline.timeline import FileGroupId, Timeline

LOG = logging.getLogger("tagstream")
_FORGET_EVERY = 100
_NO_BATCH = -1  # steps that run only between batches


def make_services(job: JobContext, spark: SparkSession) -> list[TableService]:
    """All table services, in the order in which they run. A new one is added here."""
    return [make_compaction(job, spark), Clustering(job, spark), Expiry(job), Cleaning(job, spark), Archiving(job)]


class TableServices:
    """The services of one run. ``on_commit`` is called with each instant that a service has completed."""

    def __init__(self, job: JobContext, spark: SparkSession) -> None:
        self._job = job
        self._services = make_services(job, spark)
        self._timeline: Timeline | None = None
        self.failed: dict[str, str] = {}

    def after_batch(self, batch_id: int, on_commit: Callable[[str], None], timeline: Timeline | None = None) -> None:
        """Do all due work, on the thread of the batches. ``timeline``: the state after the batch's commit."""
        self._job.hooks.step("table services", batch_id)
        self._timeline = timeline
        if not self._job.env.lease.leads():
            return  # another stream does them
        if self._job.env.lease.is_shared and batch_id % _FORGET_EVERY == 0:
            deleted_keys.forget_old(self._job.table.storage, self._job.env.clock_ms())
            added_keys.forget_old(self._job.table.storage, self._job.env.clock_ms())
        if self._is_too_early():  # the metadata table has one writer at a time, and slices may be in use
            return
        for service in self._services:
            now = Turn(batch_id, self._reach(service, batch_id), self._look, on_commit, self._hold)
            self._attempt(service, partial(service.turn, now))

    def give_way(self, batch_id: int, groups: Collection[FileGroupId]) -> None:
        """Before a batch that writes to these file groups, or replaces them, gives its files their final names: undo running
        work on one of them.
        """
        for service in self._services:
            if service.running:
                service.give_way(groups, self._reach(service, batch_id))

    def finish(self, batch_id: int | None, on_commit: Callable[[str], None], *, wait: bool = False) -> None:
        """While no batch runs: complete the work that has run during batches; ``wait``: for its end.

        ``batch_id``: the newest batch, None before the first of this run.
        """
        running = [service for service in self._services if service.running]
        if not running or not self._job.env.lease.leads():
            return
        self._timeline = None
        if self._is_too_early():
            return
        for service in running:
            now = Turn(batch_id, self._reach(service, _NO_BATCH), self._look, on_commit, self._hold)
            self._attempt(service, partial(service.finish, now, wait=wait))

    def _is_too_early(self) -> bool:
        """Whether a writer is active that does not take the same lock."""
        return any(is_waited_for(self._job, pending) for pending in self._look().pending_writes)

    def close(self) -> None:
        """Stop the work during batches; a later start executes its plan."""
        for service in self._services:
            service.close()

    def _look(self) -> Timeline:
        """The timeline between two batches, read once, and again after each step of a service."""
        if self._timeline is None:
            self._timeline = self._job.table.timeline()
        return self._timeline

    @contextmanager
    def _hold(self, what: str) -> Iterator[None]:
        lock = self._job.env.lock
        with lock.hold(what):
            if lock.is_shared:  # others may have written until now
                self._timeline = None
            yield

    def _reach(self, service: TableService, batch_id: int) -> Reach:
        def reach(step: str) -> None:
            self._timeline = None
            self._job.env.crash.reach(step, batch_id)

        return steps_of(service.steps, reach)

    def _attempt(self, service: TableService, work: Callable[[], list[str]]) -> None:
        """Run a service. An error is reported once, and does not stop the other services."""
        completed: list[str] = []
        error: str | None = None
        try:
            completed = work()
        except LeaseLostError:
            raise
        except (TagstreamError, OSError, PySparkException) as e:
            self._timeline = None
            error = str(e).strip().split("\n", maxsplit=1)[0]
            if self.failed.get(service.name) != error:
                LOG.warning(
                    "%s of table %s failed: %s; it will be tried again", service.name, self._job.table.base_path, error
                )
            self.failed[service.name] = error
        else:
            self.failed.pop(service.name, None)
        self._job.hooks.service(service.name, len(completed), error)
