"""The table's timeline as the job must find it before each batch and before each commit."""

from __future__ import annotations

from tagstream.streaming.batch.commit_record import CommitRecord, digest
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.epoch import Epoch
from tagstream.streaming.recovery.coverage import is_archived
from tagstream.streaming.recovery.settle import new_instant, roll_back, settle
from tagstream.table.errors import ForeignCommitError
from tagstream.table.timeline.timeline import Timeline


class TimelineGuard:
    """Knows the commits that the index covers; whatever else appears on the timeline, or goes, ends the query.

    The job then brings the index up to the table (``streaming.recovery.cover``) and starts the query again.
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
        return new_instant(self._job)

    def roll_back(self, instant: str) -> None:
        """Take back a pending write of ours or of a dead writer."""
        roll_back(self._job, instant)

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
