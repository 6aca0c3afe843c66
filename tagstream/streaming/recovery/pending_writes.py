"""Leave no unfinished write on the timeline: roll back writes of dead writers, and wait for live writers.

A pending write was begun by this project when its inflight file says so, or a write profile of the checkpoint names it.
Unless it is of another stream that shares the table and is alive, its writer is dead, because this job holds a lease. Its
write is rolled back at once. Any other writer counts as alive while its heartbeat, timeline files or markers are younger
than Hudi's limit for a silent writer. A clustering plan is not an unfinished write, however old it is: another program
executes it.

Rollbacks of dead writers are finished, and those of live writers are waited for. A Hudi writer with its default policy
(``hoodie.clean.failed.writes.policy=EAGER``) treats every pending write as failed and rolls it back when it starts. It
reads the timeline first and deletes later. So a batch that was committed in between is on the timeline, but its files
are gone. Such a commit is removed from the timeline, too. Its records are then read again from the source, as those of
any commit that a restore removed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tagstream.bootstrap import deleted_keys
from tagstream.streaming.batch import added_keys
from tagstream.streaming.batch.commit_record import parse
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import StopRequested
from tagstream.streaming.recovery.live_writers import SAY_AGAIN_MS, WAIT_S, is_at_work, is_waited_for, pause, wait_for
from tagstream.table.errors import (
    CorruptFileError,
    LockError,
    MetadataCompactedError,
    MetadataTableMismatchError,
    PendingClusteringError,
    TableError,
    TableNotFoundError,
    UnsupportedTableError,
)
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_writer import MetadataWriter, fresh_times, time_after
from tagstream.table.metadata.rollback import forget_undone
from tagstream.table.services.clustering import rollback_clustering
from tagstream.table.services.failed_writes import sweep, sweep_copies
from tagstream.table.services.plans import is_planned_here, pending_action
from tagstream.table.services.restore import resume_restore
from tagstream.table.services.rollback import resume_rollbacks, rollback, withdraw
from tagstream.table.storage.storage import FileEntry
from tagstream.table.timeline.avro_timeline import SYNC_MARKER, read_record
from tagstream.table.timeline.instant import RESTORE, ROLLBACK, Instant, State
from tagstream.table.timeline.lease import DEFAULT_TIMEOUT_MS
from tagstream.table.timeline.timeline import Timeline

LOG = logging.getLogger("tagstream")
CLUSTERING_WAIT_MS = 3_600_000


def has_unsettled_rollbacks(job: JobContext, timeline: Timeline) -> bool:
    """Whether :func:`settle_rollbacks` has something to do: a rollback is unfinished, or was completed since the last
    call.
    """
    return any(
        i.action == ROLLBACK and not (i.is_completed and i.time in job.position.rollbacks_seen)
        for i in timeline.instants
    )


def settle_rollbacks(job: JobContext) -> None:
    """Finish all rollbacks, and remove own commits from the timeline whose files a rollback has deleted.

    Waits while another writer works on a rollback. StopRequested when the job is stopped meanwhile.
    """
    _wait_for_rollbacks(job)
    with job.env.lock.hold("unfinished rollbacks"):  # other streams roll back under it
        _settle_rollbacks(job)


def _wait_for_rollbacks(job: JobContext) -> None:
    """Wait while a writer of another kind works on a rollback. StopRequested when the job is stopped."""
    said = False
    while any(_is_at_work(job, begun) for begun in job.table.timeline().pending_rollbacks):
        if not said:
            LOG.warning("table %s: another writer is rolling back a write; waiting for it to end", job.table.base_path)
            said = True
        if job.env.stop.wait(WAIT_S):
            raise StopRequested(f"stopped by {job.env.stop.signal_name} while it waited for another writer's rollback")


def _settle_rollbacks(job: JobContext) -> None:
    timeline = job.table.timeline()
    for instant in timeline.instants:
        if instant.action == ROLLBACK and instant.time not in job.position.rollbacks_seen:
            for target in rollback_targets(job.table, instant):
                _take_off(job, timeline, instant, target)
            if instant.is_completed:
                job.position.rollbacks_seen.add(instant.time)
    resume_rollbacks(job.table)
    _correct_metadata(job)


def _correct_metadata(job: JobContext) -> None:
    """Remove files of rolled-back writes from the metadata table. A paused driver may have written them there
    afterwards.
    """
    writer = metadata_writer(job)
    if writer is None:
        return
    job.env.lease.check()
    try:
        undone = ", ".join(forget_undone(writer, fresh_times(job.table, writer, job.env.clock_ms)))
    except MetadataCompactedError as error:
        job.table.drop_metadata_table(job.env.clock_ms())
        job.table = job.table.reload()
        LOG.warning(
            "table %s: dropped its metadata table, the next start makes a new one from the table's files: %s",
            job.table.base_path,
            error,
        )
        return
    if undone:
        LOG.warning(
            "table %s: the metadata table listed files of the rolled-back instant %s, because a paused driver completed its "
            "part of the metadata table after the rollback. The files are removed from the metadata table",
            job.table.base_path,
            undone,
        )


def metadata_writer(job: JobContext) -> MetadataWriter | None:
    """The writer of the table's metadata table; None where it has none, or one that this writer cannot keep in sync."""
    try:
        return MetadataWriter.open(job.table)
    except (UnsupportedTableError, MetadataTableMismatchError, TableNotFoundError, CorruptFileError):
        return None  # the next start drops it, or the partitions that cannot be kept in sync


def rollback_targets(table: HoodieTable, instant: Instant) -> tuple[str, ...]:
    """The instants that a rollback undoes; empty when its file was just replaced by the file of its next state."""
    requested = Instant(instant.time, ROLLBACK, State.REQUESTED)
    data = _read(table, instant if instant.is_completed else requested)
    if not data:
        return ()
    record = read_record(data, instant.file_name())
    if instant.is_completed:
        return tuple(record.get("commitsRollback") or ())
    target = (record.get("instantToRollback") or {}).get("commitTime")
    return () if target is None else (target,)


def is_being_rolled_back(job: JobContext, timeline: Timeline, instant: str) -> bool:
    """Whether a pending rollback undoes ``instant``."""
    return any(instant in rollback_targets(job.table, begun) for begun in timeline.pending_rollbacks)


def _is_at_work(job: JobContext, begun: Instant) -> bool:
    """Whether another program's rollback has young files. A rollback by this project is a dead run's: this job holds
    the lease, and other streams do not release the lock before a rollback is complete.
    """
    if SYNC_MARKER in _read(job.table, Instant(begun.time, ROLLBACK, State.REQUESTED)):
        return False
    since = job.env.clock_ms() - DEFAULT_TIMEOUT_MS
    entries = job.table.storage.list(job.table.config.timeline_folder, (f"{begun.time}.",))
    return any(entry.mtime_ms >= since for entry in entries)


def _take_off(job: JobContext, timeline: Timeline, rollback: Instant, target: str) -> None:
    found = timeline.find(target)
    if found is None or not found.is_completed:
        return
    record = parse(timeline.metadata(job.table.storage, found).extra)
    if record is None:
        return  # a commit of another writer, which its user must repair
    LOG.warning(
        "table %s: another writer rolled back commit %s of stream %s (rollback %s) while the commit was completed, and "
        "deleted its files. The commit is removed from the timeline and its records are read from the source again. Set "
        "hoodie.clean.failed.writes.policy=LAZY and a lock provider for the other writer (docs/operations/concurrency.md)",
        job.table.base_path,
        target,
        record.stream_id,
        rollback.time,
    )
    job.env.lease.check()
    job.table.storage.delete(f"{job.table.config.timeline_folder}/{found.file_name()}")


def _read(table: HoodieTable, instant: Instant) -> bytes:
    try:
        return table.storage.read(f"{table.config.timeline_folder}/{instant.file_name()}")
    except FileNotFoundError:
        return b""


def settle(job: JobContext, looked: Timeline | None = None, late: Sequence[FileEntry] | None = None) -> Timeline:
    """Finish pending restores and rollbacks, roll back writes of dead writers, wait for live ones, remove late files.

    Live writers that take the same lock as this job, and live streams that share the table, are not waited for.

    ``looked``: the timeline, when the caller has just read it and checked the lease. ``late``: late files, when the
    caller has just listed them with ``list_temp``. Returns the timeline after that; it is read only once where
    nothing had to be done.
    """
    if looked is None:
        job.env.lease.check()  # a restart within this process may come long after the last check
        looked = job.table.timeline()
    timeline = looked
    if any(i.action == RESTORE for i in timeline.pending):
        with job.env.lock.hold("an interrupted restore"):
            restored = resume_restore(job.table, job.env.clock_ms, job.env.check)
        if restored is not None:
            LOG.warning("table %s: finished the interrupted restore %s", job.table.base_path, restored.instant)
            job.table = job.table.reload()
        timeline = job.table.timeline()
    if has_unsettled_rollbacks(job, timeline):
        settle_rollbacks(job)
        timeline = job.table.timeline()
    if timeline.pending_writes:
        for pending in timeline.pending_writes:
            if not is_waited_for(job, pending) and is_at_work(job, pending):
                continue  # before it commits, its writer takes the lock and compares its work with newer commits
            if wait_for(job, pending):
                roll_back(job, pending.time)
        timeline = job.table.timeline()
    sweep(job.table, late if timeline is looked else None)
    job.history.late_copies = bool(sweep_copies(job.table, timeline))
    return timeline


def wait_for_clustering(job: JobContext, instant: str) -> None:
    """Wait until another program has executed or rolled back a planned clustering.

    A plan by this project is rolled back at once, unless another stream does the table services: this process has the
    lease, so no other process executes it. So is another program's plan where the options ask for it.
    PendingClusteringError when the wait takes too long.
    """
    own = _is_planned_here(job, instant) and not job.env.lease.others_lead()
    if own or job.options.services.rolls_back_clusterings:
        if instant not in job.table.timeline().pending_clusterings.values():
            return
        LOG.warning(
            "table %s: rolling back clustering %s, which was planned but not executed: the batch has rows for its file "
            "groups",
            job.table.base_path,
            instant,
        )
        with job.env.lock.hold(f"rollback of {instant}"):
            rollback_clustering(job.table, instant, new_instant(job), job.env.check)
        return
    began = said_ms = job.env.clock_ms()
    while instant in job.table.timeline().pending_clusterings.values():
        now = job.env.clock_ms()
        if now - began > CLUSTERING_WAIT_MS:
            raise PendingClusteringError(
                f"table {job.table.base_path}: clustering {instant} is planned, but was not executed for "
                f"{CLUSTERING_WAIT_MS // 60_000} minutes. This stream has rows for its file groups, which would be lost "
                "when it completes: run it with Hudi (run_clustering) and start again, or let this job roll it back with "
                "hoodie.clustering.rollback.pending.replacecommit.on.conflict=true",
                instant,
            )
        if said_ms == began or now - said_ms >= SAY_AGAIN_MS:
            LOG.warning("table %s: waiting until another program executes clustering %s", job.table.base_path, instant)
            said_ms = now + 1
        pause(job, f"it waited for clustering {instant}")


def _is_planned_here(job: JobContext, instant: str) -> bool:
    planned = Instant(instant, pending_action(job.table), State.REQUESTED).file_name()
    try:
        return is_planned_here(job.table, planned)
    except FileNotFoundError:
        return False


def roll_back(job: JobContext, instant: str) -> None:
    """Roll back a pending write.

    The index is rolled back first: once the table has rolled back the instant, nothing would remove its entries from
    the index. Where other writers take the same lock, a rollback is recorded only if it must be (``rollback.withdraw``).
    """
    job.env.lease.check()
    if job.env.index is not None and not job.env.index.rollback_commit(instant):
        raise TableError(
            f"the {job.env.index.name} index could not roll back instant {instant} of {job.table.base_path}; see its log, "
            "and start again"
        )
    with job.env.lock.hold(f"rollback of {instant}"):
        if job.env.lease.is_shared and not _is_pending(job, instant):
            return  # another stream has rolled it back, or its writer has
        if not (job.env.lock.is_shared and withdraw(job.table, instant)):
            rollback(job.table, instant, new_instant(job))
        if job.env.lease.is_shared:
            deleted_keys.forget(job.table.storage, instant)
            added_keys.forget(job.table.storage, instant)


def roll_back_own(job: JobContext) -> None:
    """Roll back the batch that this process began last, if it is pending. Its heartbeat stays until the next one begins.

    Where the lock cannot be taken, the next start of a query does it.
    """
    instant = job.history.instant
    if instant is not None and _is_pending(job, instant):
        try:
            roll_back(job, instant)
        except LockError as error:
            LOG.warning("table %s: instant %s is not rolled back yet: %s", job.table.base_path, instant, error)


def _is_pending(job: JobContext, instant: str) -> bool:
    found = job.table.timeline().find(instant)
    return found is not None and not found.is_completed


def new_instant(job: JobContext, timeline: Timeline | None = None) -> str:
    """A new instant time, later than every other on the timeline and on the metadata table's, whatever the clock says.

    No two actions may have the same time: readers find the completion of a log file by its instant time alone.
    ``timeline``: the timeline to use; None to read it.
    """
    timeline = timeline if timeline is not None else job.table.timeline()
    writer = job.metadata.writer if job.metadata is not None else metadata_writer(job)
    return time_after(timeline.newest or "", job.table, writer, job.env.clock_ms)
