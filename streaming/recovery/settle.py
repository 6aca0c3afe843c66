"""Leave nothing unfinished on the timeline: what a dead writer left is taken back, a live one is waited for."""

from __future__ import annotations

import logging

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import StopRequested
from tagstream.table.errors import TableError
from tagstream.table.file_group.names import next_instant
from tagstream.table.services.rollback import resume_rollbacks, rollback
from tagstream.table.services.sweep import sweep
from tagstream.table.timeline.heartbeat import DEFAULT_TIMEOUT_MS, is_alive
from tagstream.table.timeline.instant import Instant, State

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
            roll_back(job, pending.time)
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


def roll_back(job: JobContext, instant: str) -> None:
    """Take back a pending write.

    The index first: what it says of an instant that is rolled back already would never be taken back.
    """
    if job.index is not None and not job.index.rollback_commit(instant):
        raise TableError(
            f"the {job.index.name} index could not take back instant {instant} of {job.table.base_path}; see its log, and "
            "start again"
        )
    rollback(job.table, instant, new_instant(job))


def new_instant(job: JobContext) -> str:
    """An instant time after every other on the timeline, pending and completed, whatever the clock says."""
    return next_instant(job.clock_ms(), job.table.timeline().newest, job.table.config.timezone_utc)
