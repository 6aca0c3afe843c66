"""Leave nothing unfinished on the timeline: a dead writer's writes are rolled back, a live writer is waited for.

A pending write is this project's own leftover when its inflight file says so, or a write profile of the checkpoint
names it: the job holds the table's lease, so whoever began it is dead, and it is rolled back at once. Every other
one counts as alive while it gives signs of life: a heartbeat, timeline files or markers that are not older than
Hudi's own limit for a silent writer. A clustering plan is not a leftover, however old it is: others carry it out.

A dead writer's rollbacks are finished, and a live writer's are waited for. A writer of Hudi with its default
policy (``hoodie.clean.failed.writes.policy=EAGER``) takes every pending write for that of a dead writer and rolls
it back when it starts. It looks first and deletes later: a batch that was committed in between is on the timeline
while its files are gone. Such a commit is removed from the timeline too, and its records are then read again from
the source like those of any commit that a restore removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from tagstream.streaming.batch.commit_record import parse
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import StopRequested
from tagstream.table.errors import (
    CorruptFileError,
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
from tagstream.table.services.compaction_plan import is_planned_here
from tagstream.table.services.failed_writes import sweep, sweep_copies
from tagstream.table.services.planned import pending_action
from tagstream.table.services.restore import resume_restore
from tagstream.table.services.rollback import resume_rollbacks, rollback
from tagstream.table.storage.storage import FileEntry, Storage
from tagstream.table.timeline.avro_timeline import SYNC_MARKER, read_record
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import RESTORE, ROLLBACK, Instant, State
from tagstream.table.timeline.lease import DEFAULT_TIMEOUT_MS, is_alive
from tagstream.table.timeline.timeline import Timeline
from tagstream.table.write.commit import WRITER_KEY
from tagstream.table.write.markers import marker_folder
from tagstream.table.write.write_context import WriteProfile

LOG = logging.getLogger("tagstream")
_WAIT_S = 0.2


def has_unsettled_rollbacks(job: JobContext, timeline: Timeline) -> bool:
    """Whether :func:`settle_rollbacks` has anything to do: a rollback is unfinished, or new since it last looked."""
    return any(
        i.action == ROLLBACK and not (i.is_completed and i.time in job.position.rollbacks_seen)
        for i in timeline.instants
    )


def settle_rollbacks(job: JobContext) -> None:
    """Leave no rollback unfinished, and no commit of ours on the timeline whose files a rollback has taken."""
    said = False
    while any(_is_at_work(job, begun) for begun in job.table.timeline().pending_rollbacks):
        if not said:
            LOG.warning("table %s: another writer is rolling a write back; waiting for it to end", job.table.base_path)
            said = True
        if job.env.stop.wait(_WAIT_S):
            raise StopRequested(f"asked to end by {job.env.stop.signal_name} while another writer was at work")
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
    """The metadata table lists no file of a write that was rolled back, whenever a driver that stood still woke up."""
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
            "table %s: dropped its metadata table, the next start makes it from the files: %s",
            job.table.base_path,
            error,
        )
        return
    if undone:
        LOG.warning(
            "table %s: the metadata table listed files of %s, which is rolled back: a driver that stood still had completed "
            "its part after that. They are removed from it",
            job.table.base_path,
            undone,
        )


def metadata_writer(job: JobContext) -> MetadataWriter | None:
    """The metadata table of the job's table; None where it has none, or none that can be kept up."""
    try:
        return MetadataWriter.open(job.table)
    except (UnsupportedTableError, MetadataTableMismatchError, TableNotFoundError, CorruptFileError):
        return None  # a start drops it, or what of it cannot be kept in step


def rollback_targets(table: HoodieTable, instant: Instant) -> tuple[str, ...]:
    """The instants that a rollback takes back; none when its file has just been replaced by that of its next state."""
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
    """Whether somebody has begun to roll back a write."""
    return any(instant in rollback_targets(job.table, begun) for begun in timeline.pending_rollbacks)


def _is_at_work(job: JobContext, begun: Instant) -> bool:
    """A rollback of another program with young files. One of ours is a dead run's: this job holds the table's lease."""
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
        return  # another writer's; readers and its own tools must deal with it
    LOG.warning(
        "table %s: another writer rolled back commit %s of stream %s (rollback %s) while it was being completed, and "
        "deleted its files. The commit is taken off the timeline and its records are read from the source again. Set "
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
        job.env.lease.check()  # a restart within this process may come long after the last look
        looked = job.table.timeline()
    timeline = looked
    if any(i.action == RESTORE for i in timeline.pending):
        restored = resume_restore(job.table, job.env.clock_ms, job.env.lease.check)
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
    job.history.late_copies = bool(sweep_copies(job.table, timeline))
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
        if said_ms is None or job.env.clock_ms() - said_ms >= _SAY_AGAIN_MS:
            LOG.warning(
                "table %s: another writer is at work (%s is pending and its writer alive); waiting for it to end",
                job.table.base_path,
                pending.file_name(),
            )
            said_ms = job.env.clock_ms()
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
        rollback_clustering(job.table, instant, new_instant(job), job.env.lease.check)
        return
    began = said_ms = job.env.clock_ms()
    while instant in job.table.timeline().pending_clusterings.values():
        now = job.env.clock_ms()
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
    if pending.time == job.history.instant or _is_own(job, pending):
        return False
    return is_alive(job.table.storage, pending.time, job.env.clock_ms()) or _is_fresh(job, pending)


def _pause(job: JobContext, what: str) -> None:
    if job.env.stop.wait(_WAIT_S):
        raise StopRequested(f"asked to end by {job.env.stop.signal_name} while {what}")


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
    storage, since = job.table.storage, job.env.clock_ms() - DEFAULT_TIMEOUT_MS
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
    job.env.lease.check()
    if job.env.index is not None and not job.env.index.rollback_commit(instant):
        raise TableError(
            f"the {job.env.index.name} index could not take back instant {instant} of {job.table.base_path}; see its log, "
            "and start again"
        )
    rollback(job.table, instant, new_instant(job))


def new_instant(job: JobContext, timeline: Timeline | None = None) -> str:
    """An instant time after every other on the timeline and on the metadata table's, whatever the clock says.

    One time must not stand for two actions there: readers look by the time alone when a log file was completed.
    ``timeline``: the look to go by; without one, a fresh one.
    """
    timeline = timeline if timeline is not None else job.table.timeline()
    writer = job.metadata.writer if job.metadata is not None else metadata_writer(job)
    return time_after(timeline.newest or "", job.table, writer, job.env.clock_ms)
