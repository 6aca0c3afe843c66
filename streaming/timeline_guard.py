"""The table's timeline as the job must find it before each batch and before each commit."""

from __future__ import annotations

from streaming.commit_record import CommitRecord, newest_first
from streaming.context import JobContext
from streaming.epoch import Epoch
from streaming.errors import CheckpointError
from table.errors import ForeignCommitError
from table.heartbeat import is_alive
from table.names import next_instant
from table.rollback import resume_rollbacks, rollback
from table.sweep import sweep


class TimelineGuard:
    """Knows the newest commit the index covers; whatever else appears on the timeline stops the job by name."""

    def __init__(self, job: JobContext) -> None:
        self._job = job
        self._covered = ""

    def before_batch(self, epoch: Epoch) -> tuple[str, CommitRecord] | None:
        """The commit that already holds this batch (instant and record: a replay), else None with no leftovers.

        ForeignCommitError on another writer's commit or live pending instant; CheckpointError when the table holds
        this batch number, or a later one, with other offsets.
        """
        job = self._job
        job.lease.check()
        job.table = job.table.reload()
        job.table.check_writable()
        resume_rollbacks(job.table)
        sweep(job.table)
        timeline = job.table.timeline()
        found = None
        for instant, record in newest_first(job.table, timeline):
            if record is None or record.query_id != epoch.query_id:
                if instant.time > self._covered:
                    raise self._foreign(instant.time)
                break
            if record.same_batch(epoch):
                found = (instant.time, record)
                break
            if record.batch_id >= epoch.batch_id:
                raise CheckpointError(
                    f"table {job.table.storage.root}: commit {instant.time} holds batch {record.batch_id} of this query "
                    f"with offsets {record.end_offsets}, but checkpoint {job.checkpoint} is about to run batch "
                    f"{epoch.batch_id} up to {epoch.end_offsets}: the checkpoint is an older copy. Use the newest copy"
                )
            break
        self._covered = timeline.newest_completed or ""
        job.as_of = timeline.newest_completed
        for pending in timeline.pending_writes:
            if is_alive(job.table.storage, pending.time, job.clock_ms()):
                raise ForeignCommitError(
                    f"table {job.table.storage.root}: another writer is at work (pending {pending.file_name()} has a "
                    "fresh heartbeat); one writer at a time: wait for it to end, then start again"
                )
            self.roll_back(pending.time)
        return found

    def next_instant(self) -> str:
        """An instant time after every other on the timeline, pending and completed, whatever the clock says."""
        table = self._job.table
        return next_instant(self._job.clock_ms(), table.timeline().newest, table.config.timezone_utc)

    def roll_back(self, instant: str) -> None:
        """Take back a pending write of ours or of a dead writer."""
        rollback(self._job.table, instant, self.next_instant())

    def before_complete(self, instant: str) -> None:
        """Last look before the commit becomes visible: still the one writer, table still ours, nothing in between."""
        job = self._job
        job.lease.check()
        job.table.reload().check_writable()  # a metadata table may have appeared, an upgrade may have happened
        for other in job.table.timeline().completed_writes:
            if other.time > self._covered and other.time != instant:
                raise self._foreign(other.time)

    def committed(self, instant: str) -> None:
        """Our own commit is covered by the index."""
        self._covered = instant

    def _foreign(self, instant: str) -> ForeignCommitError:
        return ForeignCommitError(
            f"table {self._job.table.storage.root}: commit {instant} was made by another writer while this job runs; its "
            "rows are not in the index. Stop the other writer; the job can go on when the table is restored to "
            f"{self._covered or 'its start'}, or with a new checkpoint once the index can be loaded from the table"
        )
