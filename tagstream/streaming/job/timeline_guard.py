"""The table's timeline as the job must find it before each batch and before each commit.

Before a commit everything that others have done since the batch began is looked at once more. A write that is pending is
waited for: it may have read the slices from before this batch, and would take our rows away when it completes. Then:

- a commit that touched a file group of the batch, or keys that may be the batch's, or the schema: the batch is done again
- any other commit: the batch stands, and the index takes the commit in before the next batch
- a new compaction plan over a file group of the batch: done again, into the slice that begins with the plan. From table
  version 8 on a log file belongs to that slice anyway, by its time of completion; only a base file is then done again
- a pending clustering of a file group of the batch: waited for, then done again
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import cast

from tagstream.streaming.batch.commit_record import CommitRecord, digest
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.metadata_keeper import check_kept
from tagstream.streaming.batch.spark_checkpoint import Epoch
from tagstream.streaming.recovery.foreign_commits import find_swallowed, work_of
from tagstream.streaming.recovery.pending_writes import (
    is_at_work,
    is_being_rolled_back,
    new_instant,
    roll_back,
    settle,
    wait_for,
)
from tagstream.table.errors import ForeignCommitError, InstantConflictError, PendingClusteringError
from tagstream.table.meta_client.hoodie_table import HoodieTable, without_meta_fields
from tagstream.table.meta_client.table_config import without_fields
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.services.failed_writes import look_for_late
from tagstream.table.storage.storage import at_once
from tagstream.table.timeline.commit_metadata import FileKind, WriteStatus
from tagstream.table.timeline.instant import Instant, State
from tagstream.table.timeline.timeline import FileGroupId, Timeline

LOG = logging.getLogger("tagstream")


class TimelineGuard:
    """Knows the commits that the index covers; what else appears on the timeline, or goes, ends the query.

    The job then brings the index up to the table (``streaming.recovery.cover``) and starts the query again.
    """

    def __init__(self, job: JobContext) -> None:
        self._job = job
        self._covered = job.position.covered
        self._version = job.table.config.version
        self._start: Timeline | None = None
        self._seen: Timeline | None = None
        # As the batch's commit has left it, where that is known without another look.
        self.after_commit: Timeline | None = None

    @property
    def follows(self) -> str:
        """Digest of the completed writes that the index covers now."""
        return digest(self._covered)

    def before_batch(self, read: Callable[[], Epoch]) -> tuple[Epoch, tuple[str, CommitRecord] | None]:
        """The epoch that ``read`` gives, and the commit that already holds this batch (instant and record: a replay), else
        None with no leftovers.

        ForeignCommitError when the timeline is not the one that the index covers.
        """
        job, known = self._job, self._job.table
        where = job.root.files if job.root.files.is_remote else known.storage
        # Of the table as it was known: one that was upgraded meanwhile is refused before the look counts.
        late = partial(look_for_late, known)
        epoch, job.table, _, looked, found = at_once(
            where, read, known.reload, job.env.lease.check, known.timeline, late
        )
        self._refuse_upgraded(job.table)
        check_kept(job.table, job.metadata)
        job.table.check_writable(keeps_metadata=job.metadata is not None)
        timeline = settle(job, looked, found)
        self._refuse_restored(timeline)
        new = self._new(timeline)
        if new:
            raise ForeignCommitError(
                f"table {job.table.base_path}: commit {new[0].time} was made by another writer while this job runs; its "
                "rows are not in the index yet"
            )
        self._covered = frozenset(i.time for i in timeline.completed_writes)
        self._start, self.after_commit = timeline, None
        job.history.timeline = timeline
        made = job.position.batches.get(epoch.batch_id)
        return epoch, made if made is not None and made[1].same_batch(epoch) else None

    def next_instant(self) -> str:
        """An instant time after every other on the timeline, pending and completed, whatever the clock says."""
        return new_instant(self._job, self._start)

    def roll_back(self, instant: str) -> None:
        """Take back a pending write of ours or of a dead writer."""
        roll_back(self._job, instant)

    def before_complete(self, instant: str, statuses: Iterable[WriteStatus], *, adds_keys: bool) -> Timeline:
        """Last look before the commit becomes visible: still the one writer, table still ours, nothing in between. Returns
        the timeline that it has seen.

        ``adds_keys``: the batch wrote record keys that the table did not have in that file group.
        """
        job = self._job
        groups = _groups(statuses)
        by_commit = job.table.config.names_logs_by_commit
        in_plans = _groups(s for s in statuses if s.kind is not FileKind.APPEND) if by_commit else groups
        while True:
            # A metadata table may have appeared, an upgrade may have happened.
            looks = at_once(job.table.storage, job.env.lease.check, job.table.reload, job.table.timeline)
            now, timeline = looks[1], cast(Timeline, looks[2])
            self._seen = timeline
            self._refuse_upgraded(now)
            check_kept(now, job.metadata)
            now.check_writable(keeps_metadata=job.metadata is not None)
            self._refuse_restored(timeline)
            self._refuse_plans(timeline, groups, in_plans)
            pending = [i for i in timeline.pending_writes if i.time != instant]
            if is_being_rolled_back(job, timeline, instant):
                raise InstantConflictError(
                    f"table {job.table.base_path}: another writer is rolling back instant {instant}, which this job has not "
                    "completed yet; the batch is done again"
                )
            if not self._is_pending(timeline, instant):
                return timeline  # another writer rolled it back: the protocol says so, and there is nothing to wait for
            if not pending:
                self._refuse_overlap(timeline, groups, adds_keys=adds_keys)
                return timeline
            for other in pending:
                if is_at_work(job, other) and not wait_for(job, other, give_up=lambda: not self._has_inflight(instant)):
                    continue
                if self._has_inflight(instant):
                    roll_back(job, other.time)

    def committed(self, instant: str) -> None:
        """Our own commit is covered by the index."""
        self._covered |= {instant}

    def completed(self, completed: Instant) -> None:
        """The batch's commit, of which :meth:`before_complete` was the last look."""
        self.committed(completed.time)
        self.after_commit = None if self._seen is None else self._seen.with_completed(completed)

    def _new(self, timeline: Timeline) -> list[Instant]:
        return [i for i in timeline.completed_writes if i.time not in self._covered]

    def _refuse_upgraded(self, table: HoodieTable) -> None:
        """The tasks of a query know one layout of the timeline."""
        if table.config.version != self._version:
            raise ForeignCommitError(
                f"table {table.base_path} was changed from version {self._version} to {table.config.version} by another "
                "writer while this job runs"
            )

    def _refuse_restored(self, timeline: Timeline) -> None:
        """Nothing that the index covers may be gone, but for what was archived meanwhile. The newest was not: where it is
        behind the timeline's start, that has moved over a gap which a restore has left."""
        completed = frozenset(i.time for i in timeline.completed_writes)
        gone = {time for time in self._covered - completed if not timeline.is_archived(time)}
        newest = max(self._covered, default=None)
        if newest is not None and newest not in completed:
            gone.add(newest)
        if gone:
            raise ForeignCommitError(
                f"table {self._job.table.base_path}: commit {min(gone)} is gone from the timeline while this job runs: the "
                "table was restored to an earlier state"
            )

    def _refuse_plans(
        self, timeline: Timeline, groups: frozenset[FileGroupId], in_plans: frozenset[FileGroupId]
    ) -> None:
        """``in_plans``: the file groups over which no compaction may have been planned meanwhile."""
        path = self._job.table.base_path
        before = self._start.pending_compactions if self._start is not None else {}
        for group in in_plans & timeline.pending_compactions.keys() - before.keys():
            raise ForeignCommitError(
                f"table {path}: compaction {timeline.pending_compactions[group]} was planned over {_name(group)} while the "
                "batch was written; the batch is done again, into the slice that begins with the plan"
            )
        for group in groups & timeline.pending_clusterings.keys():
            clustering = timeline.pending_clusterings[group]
            raise PendingClusteringError(
                f"table {path}: {_name(group)} is being clustered by another writer (instant {clustering} is pending): "
                "rows written to it now would be lost when it completes. The batch is done again after it",
                clustering,
            )

    def _refuse_overlap(self, timeline: Timeline, groups: frozenset[FileGroupId], *, adds_keys: bool) -> None:
        """What was completed since the batch began must have nothing to do with the batch."""
        job = self._job
        new = self._new(timeline)
        for other in new:
            work = work_of(timeline.metadata(job.table.storage, other))
            made = f"table {job.table.base_path}: commit {other.time} was made by another writer while this job runs"
            if groups & work.groups:
                raise ForeignCommitError(
                    f"{made}, to {_name(min(groups & work.groups))}, which the batch writes to too"
                )
            if adds_keys and work.adds_keys:
                raise ForeignCommitError(f"{made}; it may have added keys that the batch adds too")
            if work.schema is not None and _adds_to(
                job.decode.stored_json, without_fields(work.schema, job.decode.dropped)
            ):
                raise ForeignCommitError(f"{made}; it changed the table's schema")
        if new and find_swallowed(job.table, timeline, tuple(i.time for i in new), job.env.meta.stream_id):
            raise ForeignCommitError(
                f"table {job.table.base_path}: commit {new[0].time} did not see rows of this stream"
            )

    def _is_pending(self, timeline: Timeline, instant: str) -> bool:
        return any(i.time == instant and not i.is_completed for i in timeline.instants)

    def _has_inflight(self, instant: str) -> bool:
        job = self._job
        name = Instant(instant, job.action, State.INFLIGHT).file_name()
        return job.table.storage.exists(f"{job.table.config.timeline_folder}/{name}")


def _groups(statuses: Iterable[WriteStatus]) -> frozenset[FileGroupId]:
    return frozenset((s.stat.partition_path, s.stat.file_id) for s in statuses)


def _adds_to(own: str, other: str) -> bool:
    """Whether another writer's schema has a column that ours lacks, or has with another type."""
    ours, theirs = avro_to_arrow(own), avro_to_arrow(without_meta_fields(other))
    return any(f.name not in ours.names or ours.field(f.name).type != f.type for f in theirs)


def _name(group: FileGroupId) -> str:
    return f"file group {group[1]} of partition {group[0]!r}"
