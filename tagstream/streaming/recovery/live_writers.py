"""Which pending writes are of writers that are alive, and waiting for them.

A stream of this project that shares the table is alive while it has its lease. Any other writer counts as alive while its
heartbeat, timeline files or markers are younger than Hudi's limit for a silent writer.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.errors import StopRequested
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import Instant, State
from tagstream.table.timeline.lease import DEFAULT_TIMEOUT_MS, is_alive
from tagstream.table.timeline.timeline import FileGroupId
from tagstream.table.write.commit import WRITER_KEY
from tagstream.table.write.markers import marker_folder
from tagstream.table.write.write_context import WriteProfile

LOG = logging.getLogger("tagstream")
WAIT_S = 0.2
SAY_AGAIN_MS = 60_000
_LONGEST_WAIT_MS = 120_000
_PROFILES = 3


def wait_for(job: JobContext, pending: Instant, *, give_up: Callable[[], bool] = lambda: False) -> bool:
    """Wait while the writer of a pending write is alive.

    Returns True when the writer is dead and the write is still pending, so it must be rolled back. Returns False when
    the writer has completed or rolled back the write, or when ``give_up`` returns True, which ends the wait.
    StopRequested when the job is stopped.
    """
    said_ms: int | None = None
    while True:
        now = job.table.timeline().find(pending.time)
        if now is None or now.is_completed or give_up():
            return False
        if not is_at_work(job, now):
            return True
        if said_ms is None or job.env.clock_ms() - said_ms >= SAY_AGAIN_MS:
            LOG.warning(
                "table %s: another writer is active (%s is pending and its writer is alive); waiting for it to end",
                job.table.base_path,
                pending.file_name(),
            )
            said_ms = job.env.clock_ms()
        pause(job, "it waited for another writer")


def is_at_work(job: JobContext, pending: Instant) -> bool:
    """Whether another writer may still work on a pending write: it is not of this stream and has signs of life."""
    if pending.time == job.history.instant:
        return False
    stream = _stream_of(job, pending)
    if stream is not None:
        return job.env.lease.is_alive(stream)
    return is_alive(job.table.storage, pending.time, job.env.clock_ms()) or _is_fresh(job, pending)


def is_waited_for(job: JobContext, pending: Instant) -> bool:
    """Whether a live writer's write must end before this job reads or commits.

    Not where its writer takes the same lock: other processes do so, or only the other streams of this process.
    """
    if job.env.lock.is_shared:
        return False
    return not job.env.lease.is_shared or _stream_of(job, pending) is None


def preferred_write(job: JobContext, instant: str, groups: frozenset[FileGroupId]) -> str | None:
    """The pending write of a live writer for which the clustering ``instant`` of file groups ``groups`` stops.

    None unless the options give batches precedence. As in Hudi's PreferWriterConflictResolutionStrategy a write counts
    whose inflight file names one of the file groups. Where the options say so, one counts that has only begun, too.
    """
    lock = job.options.lock
    if not lock.prefers_writers:
        return None
    for pending in job.table.timeline().pending_writes:
        if pending.time != instant and is_at_work(job, pending):
            named = _groups_of(job, pending)
            if (lock.clustering_yields_to_pending and not named) or not groups.isdisjoint(named):
                return pending.time
    return None


def wait_for_other_streams(job: JobContext) -> None:
    """Ask the other streams not to begin a batch, and wait until none of theirs is pending. Call ``lease.end_turn`` after.

    The wait ends after two minutes, and at once if another stream has asked before. StopRequested when the job is stopped.
    """
    began = job.env.clock_ms()
    while _has_streams_at_work(job) and job.env.lease.take_turn():
        if job.env.clock_ms() - began >= _LONGEST_WAIT_MS:
            return
        pause(job, "it waited for other streams")


def _has_streams_at_work(job: JobContext) -> bool:
    streams = (_stream_of(job, pending) for pending in job.table.timeline().pending_writes)
    return any(stream is not None and job.env.lease.is_alive(stream) for stream in streams)


def _groups_of(job: JobContext, pending: Instant) -> frozenset[FileGroupId]:
    """The file groups that the inflight file names. This project's inflight files name none."""
    inflight = _inflight(job, pending)
    stats = inflight.all_stats() if inflight is not None else ()
    return frozenset((s.partition_path, s.file_id) for s in stats if s.file_id)


def _inflight(job: JobContext, pending: Instant) -> CommitMetadata | None:
    table = job.table
    name = Instant(pending.time, pending.action, State.INFLIGHT).file_name()
    rel = f"{table.config.timeline_folder}/{name}"
    try:
        return CommitMetadata.from_bytes(table.storage.read(rel), rel)
    except FileNotFoundError:
        return None


def _stream_of(job: JobContext, pending: Instant) -> str | None:
    """The stream of this project that began the write; None for other writers.

    Its inflight file says so; before that exists, a write profile of this stream.
    """
    inflight = _inflight(job, pending)
    writer = inflight.extra.get(WRITER_KEY) if inflight is not None else None
    if writer is not None:
        return str(json.loads(writer).get("stream_id", ""))
    return job.env.meta.stream_id if pending.time in _pinned_instants(job.profiles) else None


def _pinned_instants(profiles: Storage) -> set[str]:
    """Instants of the newest write profiles: a run writes a profile before it requests the instant."""
    names = sorted((name for name in profiles.names("") if name[0].isdigit()), reverse=True)
    return {
        WriteProfile.from_json(profiles.read(name).decode(), profiles.where(name)).instant for name in names[:_PROFILES]
    }


def _is_fresh(job: JobContext, pending: Instant) -> bool:
    """Whether its timeline files or markers are so young that a writer without heartbeats may still be alive."""
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


def pause(job: JobContext, what: str) -> None:
    """Wait a moment. StopRequested when the job is stopped; ``what`` it did, for the text."""
    if job.env.stop.wait(WAIT_S):
        raise StopRequested(f"stopped by {job.env.stop.signal_name} while {what}")
