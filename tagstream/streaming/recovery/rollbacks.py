"""Rollbacks on the timeline before a batch: a dead writer's are finished, a live one's are waited for.

A writer of Hudi with its default policy (``hoodie.clean.failed.writes.policy=EAGER``) takes every pending write for that
of a dead writer and rolls it back when it starts. It looks first and deletes later: a batch that was committed in between
is on the timeline while its files are gone. Such a commit is taken off the timeline too, and its records are then read again
from the source like those of any commit that a restore took away.
"""

from __future__ import annotations

import logging

from tagstream.streaming.batch.commit_record import parse
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import StopRequested
from tagstream.table.errors import (
    CorruptFileError,
    MetadataCompactedError,
    MetadataTableMismatchError,
    TableNotFoundError,
    UnsupportedTableError,
)
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.write.metadata_writer import MetadataWriter, fresh_times
from tagstream.table.metadata.write.rollback import forget_undone
from tagstream.table.services.rollback import resume_rollbacks
from tagstream.table.timeline.avro_timeline import SYNC_MARKER, read_record
from tagstream.table.timeline.heartbeat import DEFAULT_TIMEOUT_MS
from tagstream.table.timeline.instant import ROLLBACK, Instant, State
from tagstream.table.timeline.timeline import Timeline

LOG = logging.getLogger("tagstream")
_WAIT_S = 0.2


def has_unsettled_rollbacks(job: JobContext, timeline: Timeline) -> bool:
    """Whether :func:`settle_rollbacks` has anything to do: a rollback is unfinished, or new since it last looked."""
    return any(
        i.action == ROLLBACK and not (i.is_completed and i.time in job.rollbacks_seen) for i in timeline.instants
    )


def settle_rollbacks(job: JobContext) -> None:
    """Leave no rollback unfinished, and no commit of ours on the timeline whose files a rollback has taken."""
    said = False
    while any(_is_at_work(job, begun) for begun in job.table.timeline().pending_rollbacks):
        if not said:
            LOG.warning("table %s: another writer is rolling a write back; waiting for it to end", job.table.base_path)
            said = True
        if job.stop.wait(_WAIT_S):
            raise StopRequested(f"asked to end by {job.stop.signal_name} while another writer was at work")
    timeline = job.table.timeline()
    for instant in timeline.instants:
        if instant.action == ROLLBACK and instant.time not in job.rollbacks_seen:
            for target in rollback_targets(job.table, instant):
                _take_off(job, timeline, instant, target)
            if instant.is_completed:
                job.rollbacks_seen.add(instant.time)
    resume_rollbacks(job.table)
    _correct_metadata(job)


def _correct_metadata(job: JobContext) -> None:
    """The metadata table lists no file of a write that was rolled back, whenever a driver that stood still woke up."""
    writer = metadata_writer(job)
    if writer is None:
        return
    job.lease.check()
    try:
        undone = ", ".join(forget_undone(writer, fresh_times(job.table, writer, job.clock_ms)))
    except MetadataCompactedError as error:
        job.table.drop_metadata_table(job.clock_ms())
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
    since = job.clock_ms() - DEFAULT_TIMEOUT_MS
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
        "hoodie.clean.failed.writes.policy=LAZY and a lock provider for the other writer (docs/concurrency.md)",
        job.table.base_path,
        target,
        record.stream_id,
        rollback.time,
    )
    job.lease.check()
    job.table.storage.delete(f"{job.table.config.timeline_folder}/{found.file_name()}")


def _read(table: HoodieTable, instant: Instant) -> bytes:
    try:
        return table.storage.read(f"{table.config.timeline_folder}/{instant.file_name()}")
    except FileNotFoundError:
        return b""
