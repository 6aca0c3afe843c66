"""Leave nothing unfinished on the timeline: what a dead writer left is taken back, a live one is waited for.

A pending write is this project's own leftover when its inflight file says so, or a write profile of the checkpoint names
it: the job holds the table's lease, so whoever began it is dead, and it is taken back at once. Every other one counts as
alive while it gives signs of life: a heartbeat, timeline files or markers that are not older than Hudi's own limit for a
silent writer. A clustering plan is no leftover, however old it is: others carry it out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import StopRequested
from tagstream.streaming.recovery.rollbacks import has_unsettled_rollbacks, metadata_writer, settle_rollbacks
from tagstream.table.errors import PendingClusteringError, TableError
from tagstream.table.metadata.write.metadata_writer import time_after
from tagstream.table.services.clustering.groups import pending_action
from tagstream.table.services.clustering.withdraw import rollback_clustering
from tagstream.table.services.compaction.claim import is_planned_here
from tagstream.table.services.restore.restore import resume_restore
from tagstream.table.services.rollback import rollback
from tagstream.table.services.sweep import sweep, sweep_copies
from tagstream.table.storage.storage import FileEntry, Storage
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.heartbeat import DEFAULT_TIMEOUT_MS, is_alive
from tagstream.table.timeline.instant import RESTORE, Instant, State
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.commit import WRITER_KEY
from tagstream.table.write.markers import marker_folder
from tagstream.table.write.write_profile import WriteProfile

LOG = logging.getLogger("tagstream")
_WAIT_S = 0.2
_SAY_AGAIN_MS = 60_000
_PROFILES = 3
CLUSTERING_WAIT_MS = 3_600_000


def settle(job: JobContext, looked: Timeline | None = None, late: Sequence[FileEntry] | None = None) -> Timeline:
    """Finish what was begun of a restore and of rollbacks, take back pending writes of dead writers, wait for live ones,
    remove late files. Returns the timeline as it is then: one look, where nothing had to be done.

    ``looked``: the caller has just found that the lease is ours, and this timeline; ``late``: and this with
    ``look_for_late``.
    """
    if looked is None:
        job.lease.check()  # a restart within this process may come long after the last look
        looked = job.table.timeline()
    timeline = looked
    if any(i.action == RESTORE for i in timeline.pending):
        restored = resume_restore(job.table, job.clock_ms, job.lease.check)
        if restored is not None:
            LOG.warning("table %s: restore %s, which was cut off, is finished", job.table.base_path, restored.instant)
            job.table = job.table.reload()
        timeline = job.table.timeline()
    if has_unsettled_rollbacks(job, timeline):
        settle_rollbacks(job)
        timeline = job.table.timeline()
    if timeline.pending_writes:
        for pending in timeline.pending_writes:
            if wait_for(job, pending):
                roll_back(job, pending.time)
        timeline = job.table.timeline()
    sweep(job.table, late if timeline is looked else None)
    job.late_copies = bool(sweep_copies(job.table, timeline))
    return timeline


def wait_for(job: JobContext, pending: Instant, *, give_up: Callable[[], bool] = lambda: False) -> bool:
    """Wait while a write's writer is alive. True when it is dead and the write still pending; False when there is no need
    to take it back: its writer settled it, or ``give_up`` said that the wait has become useless."""
    said_ms: int | None = None
    while True:
        now = job.table.timeline().find(pending.time)
        if now is None or now.is_completed or give_up():
            return False
        if not is_at_work(job, now):
            return True
        if said_ms is None or job.clock_ms() - said_ms >= _SAY_AGAIN_MS:
            LOG.warning(
                "table %s: another writer is at work (%s is pending and its writer alive); waiting for it to end",
                job.table.base_path,
                pending.file_name(),
            )
            said_ms = job.clock_ms()
        _pause(job, "another writer was at work")


def wait_for_clustering(job: JobContext, instant: str) -> None:
    """Wait until a planned clustering was carried out or taken back; PendingClusteringError when nobody does it.

    One that this project has planned is taken back at once: this process has the lease, so nobody else carries it out. So is
    another's where the job is told to.
    """
    if _is_planned_here(job, instant) or job.options.services.takes_back_clusterings:
        if instant not in job.table.timeline().pending_clusterings.values():
            return
        LOG.warning(
            "table %s: clustering %s was planned and not carried out, and the batch has rows for its file groups: it is "
            "taken back",
            job.table.base_path,
            instant,
        )
        rollback_clustering(job.table, instant, new_instant(job), job.lease.check)
        return
    began = said_ms = job.clock_ms()
    while instant in job.table.timeline().pending_clusterings.values():
        now = job.clock_ms()
        if now - began > CLUSTERING_WAIT_MS:
            raise PendingClusteringError(
                f"table {job.table.base_path}: clustering {instant} is planned and nobody has carried it out for "
                f"{CLUSTERING_WAIT_MS // 60_000} minutes. This stream has rows for its file groups, which would be lost "
                "when it completes: run it with Hudi (run_clustering) and start again, or have it taken back with "
                "hoodie.clustering.rollback.pending.replacecommit.on.conflict=true",
                instant,
            )
        if said_ms == began or now - said_ms >= _SAY_AGAIN_MS:
            LOG.warning("table %s: waiting for clustering %s to be carried out", job.table.base_path, instant)
            said_ms = now + 1
        _pause(job, f"clustering {instant} was waited for")


def _is_planned_here(job: JobContext, instant: str) -> bool:
    planned = Instant(instant, pending_action(job.table), State.REQUESTED).file_name()
    try:
        return is_planned_here(job.table, planned)
    except FileNotFoundError:
        return False


def is_at_work(job: JobContext, pending: Instant) -> bool:
    """Whether somebody may still be at a pending write: not our own leftover, and with signs of life."""
    if pending.time == job.instant or _is_own(job, pending):
        return False
    return is_alive(job.table.storage, pending.time, job.clock_ms()) or _is_fresh(job, pending)


def _pause(job: JobContext, what: str) -> None:
    if job.stop.wait(_WAIT_S):
        raise StopRequested(f"asked to end by {job.stop.signal_name} while {what}")


def _is_own(job: JobContext, pending: Instant) -> bool:
    """Whether a run of this project began it. The inflight file tells; before there is one, the profile pinned for it."""
    table = job.table
    inflight = Instant(pending.time, pending.action, State.INFLIGHT).file_name()
    rel = f"{table.config.timeline_folder}/{inflight}"
    try:
        if WRITER_KEY in CommitMetadata.from_bytes(table.storage.read(rel), rel).extra:
            return True
    except FileNotFoundError:
        pass
    return pending.time in _pinned_instants(job.profiles)


def _pinned_instants(profiles: Storage) -> set[str]:
    """Instants of the newest write profiles: a run pins one before it requests the instant."""
    names = sorted((name for name in profiles.names("") if name[0].isdigit()), reverse=True)
    return {
        WriteProfile.from_json(profiles.read(name).decode(), profiles.where(name)).instant for name in names[:_PROFILES]
    }


def _is_fresh(job: JobContext, pending: Instant) -> bool:
    """Whether its timeline files or markers are so young that a writer without heartbeats may still be at it."""
    names = {Instant(pending.time, pending.action, s).file_name() for s in (State.REQUESTED, State.INFLIGHT)}
    storage, since = job.table.storage, job.clock_ms() - DEFAULT_TIMEOUT_MS
    if any(
        e.mtime_ms >= since for e in storage.list(job.table.config.timeline_folder, tuple(names)) if e.name in names
    ):
        return True
    folders = [marker_folder(pending.time)]
    while folders:
        folder = folders.pop()
        for entry in storage.list(folder):
            if entry.mtime_ms >= since:
                return True
            if entry.is_dir:
                folders.append(f"{folder}/{entry.name}")
    return False


def roll_back(job: JobContext, instant: str) -> None:
    """Take back a pending write.

    The index first: what it says of an instant that is rolled back already would never be taken back.
    """
    job.lease.check()
    if job.index is not None and not job.index.rollback_commit(instant):
        raise TableError(
            f"the {job.index.name} index could not take back instant {instant} of {job.table.base_path}; see its log, and "
            "start again"
        )
    rollback(job.table, instant, new_instant(job))


def new_instant(job: JobContext, timeline: Timeline | None = None) -> str:
    """An instant time after every other on the timeline and on the metadata table's, whatever the clock says.

    One time must not stand for two actions there: readers look by the time alone when a log file was completed.
    ``timeline``: the look to go by; without one, a fresh one.
    """
    timeline = timeline if timeline is not None else job.table.timeline()
    writer = job.metadata.writer if job.metadata is not None else metadata_writer(job)
    return time_after(timeline.newest or "", job.table, writer, job.clock_ms)
