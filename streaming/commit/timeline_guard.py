"""The table's timeline as the job must find it before each batch and before each commit."""

from __future__ import annotations

import logging

from tagstream.streaming.batch.commit_record import CommitRecord, digest
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.epoch import Epoch
from tagstream.streaming.errors import StopRequested
from tagstream.streaming.recovery.coverage import is_archived
from tagstream.table.errors import ForeignCommitError, TableError
from tagstream.table.file_group.names import next_instant
from tagstream.table.services.rollback import resume_rollbacks, rollback
from tagstream.table.services.sweep import sweep
from tagstream.table.timeline.heartbeat import DEFAULT_TIMEOUT_MS, is_alive
from tagstream.table.timeline.instant import Instant, State
from tagstream.table.timeline.timeline import Timeline

LOG = logging.getLogger("tagstream")
_WAIT_S = 1.0


def settle(job: JobContext, *, running: bool = False) -> None:
    """Leave nothing unfinished on the timeline: finish begun rollbacks, take back pending writes, remove late files.

    A pending write of a live writer is waited for: one with a fresh heartbeat, or, while this job is ``running`` and
    so cannot have left it itself, one that was begun or went on in the last minutes.
    """
    resume_rollbacks(job.table)
    for pending in job.table.timeline().pending_writes:
        if _wait_for(job, pending, running=running):
            _roll_back(job, pending.time)
    sweep(job.table)


def _wait_for(job: JobContext, pending: Instant, *, running: bool) -> bool:
    """Wait while its writer is alive; False when it has settled the write itself."""
    said = False
    while True:
        now = job.table.timeline().find(pending.time)
        if now is None or now.is_completed:
            return False
        alive = is_alive(job.table.storage, pending.time, job.clock_ms()) or (running and _is_fresh(job, now))
        if not alive or pending.time == job.instant:
            return True
        if not said:
            LOG.warning(
                "table %s: another writer is at work (%s is pending and its writer alive); waiting for it to end",
                job.table.base_path,
                pending.file_name(),
            )
            said = True
        if job.stop.wait(_WAIT_S):
            raise StopRequested(f"asked to end by {job.stop.signal_name} while another writer was at work")


def _is_fresh(job: JobContext, pending: Instant) -> bool:
    """Whether the instant's timeline files are so young that a writer without heartbeats may still be at it."""
    names = {Instant(pending.time, pending.action, s).file_name() for s in (State.REQUESTED, State.INFLIGHT)}
    now = job.clock_ms()
    entries = job.table.storage.list(job.table.config.timeline_folder)
    return any(e.name in names and now - e.mtime_ms <= DEFAULT_TIMEOUT_MS for e in entries)


def _roll_back(job: JobContext, instant: str) -> None:
    """The index first: what it says of an instant that is rolled back already would never be taken back."""
    if job.index is not None and not job.index.rollback_commit(instant):
        raise TableError(
            f"the {job.index.name} index could not take back instant {instant} of {job.table.base_path}; see its log, and "
            "start again"
        )
    rollback(job.table, instant, _next_instant(job))


def _next_instant(job: JobContext) -> str:
    return next_instant(job.clock_ms(), job.table.timeline().newest, job.table.config.timezone_utc)


class TimelineGuard:
    """Knows the commits that the index covers; whatever else appears on the timeline, or goes, ends the query.

    The job then brings the index up to the table (``tagstream.streaming.recovery.cover``) and starts the query again.
    """

    def __init__(self, job: JobContext) -> None:
        self._job = job
        self._covered = job.covered
        self._first = True

    @property
    def follows(self) -> str:
        """Digest of the completed writes that the index covers now."""
        return digest(self._covered)

    def before_batch(self, epoch: Epoch) -> tuple[str, CommitRecord] | None:
        """The commit that already holds this batch (instant and record: a replay), else None with no leftovers.

        ForeignCommitError when the timeline is not the one that the index covers.
        """
        job = self._job
        job.lease.check()
        job.table = job.table.reload()
        job.table.check_writable()
        settle(job, running=not self._first)
        self._first = False
        timeline = job.table.timeline()
        self._refuse_changes(timeline)
        job.as_of = timeline.newest_completed
        found = job.batches.get(epoch.batch_id)
        return found if found is not None and found[1].same_batch(epoch) else None

    def next_instant(self) -> str:
        """An instant time after every other on the timeline, pending and completed, whatever the clock says."""
        return _next_instant(self._job)

    def roll_back(self, instant: str) -> None:
        """Take back a pending write of ours or of a dead writer."""
        _roll_back(self._job, instant)

    def before_complete(self) -> None:
        """Last look before the commit becomes visible: still the one writer, table still ours, nothing in between."""
        job = self._job
        job.lease.check()
        job.table.reload().check_writable()  # a metadata table may have appeared, an upgrade may have happened
        self._refuse_changes(job.table.timeline())

    def committed(self, instant: str) -> None:
        """Our own commit is covered by the index."""
        self._covered |= {instant}

    def _refuse_changes(self, timeline: Timeline) -> None:
        """The completed writes must be exactly those that the index covers, but for what was archived meanwhile."""
        completed = frozenset(i.time for i in timeline.completed_writes)
        path = self._job.table.base_path
        if completed - self._covered:
            raise ForeignCommitError(
                f"table {path}: commit {min(completed - self._covered)} was made by another writer while this job runs; its "
                "rows are not in the index yet"
            )
        gone = {time for time in self._covered - completed if not is_archived(timeline, time)}
        if gone:
            raise ForeignCommitError(
                f"table {path}: commit {min(gone)} is gone from the timeline while this job runs: the table was restored to "
                "an earlier state"
            )
        self._covered = completed
