"""The table's timeline as the job must find it before each batch and before each commit."""

from __future__ import annotations

from streaming.commit_record import CommitRecord, digest, newest_commit
from streaming.context import JobContext
from streaming.epoch import Epoch
from streaming.errors import CheckpointError
from table.errors import ForeignCommitError
from table.heartbeat import is_alive
from table.names import next_instant
from table.rollback import resume_rollbacks, rollback
from table.sweep import sweep
from table.timeline import Timeline


def settle(job: JobContext) -> None:
    """Leave nothing unfinished on the timeline: finish begun rollbacks, take back pending writes, remove late files.

    ForeignCommitError when a pending write's heartbeat says that its writer is alive.
    """
    resume_rollbacks(job.table)
    for pending in job.table.timeline().pending_writes:
        if is_alive(job.table.storage, pending.time, job.clock_ms()):
            raise ForeignCommitError(
                f"table {job.table.base_path}: another writer is at work (pending {pending.file_name()} has a fresh "
                "heartbeat); one writer at a time: wait for it to end, then start again"
            )
        rollback(job.table, pending.time, _next_instant(job))
    sweep(job.table)


def _next_instant(job: JobContext) -> str:
    return next_instant(job.clock_ms(), job.table.timeline().newest, job.table.config.timezone_utc)


class TimelineGuard:
    """Knows the newest commit the index covers; whatever else appears on the timeline stops the job by name."""

    def __init__(self, job: JobContext) -> None:
        self._job = job
        self._covered: frozenset[str] | None = None

    @property
    def follows(self) -> str:
        """Digest of the completed writes that the index covers now."""
        return digest(self._covered or ())

    def before_batch(self, epoch: Epoch) -> tuple[str, CommitRecord] | None:
        """The commit that already holds this batch (instant and record: a replay), else None with no leftovers.

        ForeignCommitError on another writer's commit or live pending instant; CheckpointError when the table holds
        this batch number, or a later one, with other offsets.
        """
        job = self._job
        job.lease.check()
        job.table = job.table.reload()
        job.table.check_writable()
        timeline = job.table.timeline()
        completed = frozenset(i.time for i in timeline.completed_writes)
        if self._covered is not None:  # at the first batch the start-up check has just looked at the whole timeline
            self._refuse_changes(completed)
        self._covered = completed
        job.as_of = timeline.newest_completed
        found = self._find(epoch, timeline)
        settle(job)
        return found

    def _find(self, epoch: Epoch, timeline: Timeline) -> tuple[str, CommitRecord] | None:
        """The newest commit when it holds this batch; CheckpointError when it holds this number or a later one."""
        job = self._job
        newest = newest_commit(job.table, timeline)
        if newest is None:
            return None
        instant, record = newest
        if record is None or record.query_id != epoch.query_id:
            if job.taken_over == self.follows:  # the loaded index covers exactly these commits
                return None
            raise self._foreign(instant.time)
        if record.same_batch(epoch):
            return instant.time, record
        if record.batch_id >= epoch.batch_id:
            raise CheckpointError(
                f"table {job.table.base_path}: commit {instant.time} holds batch {record.batch_id} of this query "
                f"with offsets {record.end_offsets}, but checkpoint {job.checkpoint} is about to run batch "
                f"{epoch.batch_id} up to {epoch.end_offsets}: the checkpoint is an older copy. Use the newest copy"
            )
        return None

    def next_instant(self) -> str:
        """An instant time after every other on the timeline, pending and completed, whatever the clock says."""
        return _next_instant(self._job)

    def roll_back(self, instant: str) -> None:
        """Take back a pending write of ours or of a dead writer."""
        rollback(self._job.table, instant, _next_instant(self._job))

    def before_complete(self) -> None:
        """Last look before the commit becomes visible: still the one writer, table still ours, nothing in between."""
        job = self._job
        job.lease.check()
        job.table.reload().check_writable()  # a metadata table may have appeared, an upgrade may have happened
        self._refuse_changes(frozenset(i.time for i in job.table.timeline().completed_writes))

    def committed(self, instant: str) -> None:
        """Our own commit is covered by the index."""
        self._covered = (self._covered or frozenset()) | {instant}

    def _refuse_changes(self, completed: frozenset[str]) -> None:
        """The completed writes must be exactly those that the index covers."""
        covered = self._covered or frozenset()
        if completed - covered:
            raise self._foreign(min(completed - covered))
        if covered - completed:
            raise ForeignCommitError(
                f"table {self._job.table.base_path}: commit {min(covered - completed)} is gone from the timeline while this "
                "job runs: the table was restored, or another writer archived instants. The index has rows that the table "
                "may not have; put the instant back, or stream into a new table with a new checkpoint"
            )

    def _foreign(self, instant: str) -> ForeignCommitError:
        return ForeignCommitError(
            f"table {self._job.table.base_path}: commit {instant} was made by another writer while this job runs; its "
            "rows are not in the index. Stop the other writer and restore the table to "
            f"{max(self._covered or (), default='its start')}; then this job can go on"
        )
