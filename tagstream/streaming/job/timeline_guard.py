"""Checks of the table's timeline before each batch and before each commit.

Before a commit, all that others have done since the batch began is checked once more. A pending write is waited for: it
may have read the slices from before this batch, and would replace our rows when it completes. Where all writers take the
same lock (``table.locks``), nothing is waited for: the check and the commit are under the lock, and so are those of the
other writer, which then finds this commit. Then:

- a commit that wrote to a file group of the batch, or to keys that the batch may have, or changed the schema: the batch is
  processed again. File groups that an overwrite replaces are also those of the batch
- any other commit: the batch is committed, and the index catches up with the commit before the next batch
- a new compaction plan over a file group of the batch: the batch is processed again, into the slice that begins with the
  plan. From table version 8 on a log file belongs to that slice anyway, by its completion time; then only a base file makes
  the batch run again
- a pending clustering of a file group of the batch: it is waited for, then the batch is processed again, unless the
  options give batches precedence
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import cast

from pyspark.sql import SparkSession

from tagstream.index.bucket import HoodieBucketIndex
from tagstream.streaming.batch import added_keys
from tagstream.streaming.batch.added_keys import AddedKeys
from tagstream.streaming.batch.commit_record import CommitRecord, digest, parse
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.metadata_keeper import check_kept
from tagstream.streaming.batch.spark_checkpoint import SparkBatch
from tagstream.streaming.job.commit import Outcome
from tagstream.streaming.job.follow import follow, has_other_keys, wait_for_turn
from tagstream.streaming.recovery.foreign_commits import ForeignWork, find_swallowed, work_of
from tagstream.streaming.recovery.live_writers import is_at_work, is_waited_for, wait_for
from tagstream.streaming.recovery.pending_writes import (
    is_being_rolled_back,
    new_instant,
    roll_back,
    settle,
)
from tagstream.table.errors import (
    FileGoneError,
    ForeignCommitError,
    InstantConflictError,
    OverlapError,
    PendingClusteringError,
)
from tagstream.table.meta_client.hoodie_table import HoodieTable, without_meta_fields
from tagstream.table.meta_client.table_config import without_fields
from tagstream.table.schema.schema import avro_to_arrow
from tagstream.table.services.failed_writes import list_temp
from tagstream.table.storage.storage import at_once
from tagstream.table.timeline.commit_metadata import CommitMetadata, FileKind, WriteStatus
from tagstream.table.timeline.instant import Instant, State
from tagstream.table.timeline.timeline import FileGroupId, Timeline

LOG = logging.getLogger("tagstream")
_ROUNDS = 3  # other writers may commit as fast as the index follows them


class TimelineGuard:
    """Has the set of commits that the index covers. The query ends when another commit appears on the timeline, or one
    of them is gone.

    The job then makes the index cover the table (``streaming.recovery.cover``) and starts the query again.
    """

    def __init__(self, job: JobContext) -> None:
        self._job = job
        self._covered = job.position.covered
        self._version = job.table.config.version
        self._follows = job.env.lease.is_shared
        self._start: Timeline | None = None
        self._seen: Timeline | None = None
        self._added: dict[str, added_keys.Hashes | None] = {}  # of other streams' commits since the batch began
        # The timeline after the batch's commit, where it is known without another read.
        self.after_commit: Timeline | None = None

    @property
    def follows(self) -> str:
        """Digest of the completed writes that the index covers now."""
        return digest(self._covered)

    def before_batch(
        self, read: Callable[[], SparkBatch], spark: SparkSession | None = None
    ) -> tuple[SparkBatch, tuple[str, CommitRecord] | None]:
        """Check the timeline before a batch. ``read`` returns the batch as Spark planned it. ``spark`` reads large
        commits of other writers.

        Returns that batch, and the instant and record of the commit that already has it (then it is a replay). That is
        None for a new batch, with no unfinished write on the timeline. ForeignCommitError when the timeline has other
        commits than the index.
        """
        job, known = self._job, self._job.table
        wait_for_turn(job)
        where = job.query_folder.files if job.query_folder.files.is_remote else known.storage
        # For the table as it was before. If it was upgraded meanwhile, it is refused before this result is used.
        late = partial(list_temp, known)
        spark_batch, job.table, _, looked, found = at_once(
            where, read, known.reload, job.env.lease.check, known.timeline, late
        )
        self._refuse_upgraded(job.table)
        check_kept(job.table, job.metadata)
        job.table.check_writable(keeps_metadata=job.metadata is not None)
        timeline = settle(job, looked, found)
        self._refuse_restored(timeline)
        made = job.position.batches.get(spark_batch.batch_id)
        found = made if made is not None and made[1].same_batch(spark_batch) else None
        if self._follows and spark is not None and found is None:
            timeline = self._follow(timeline, spark, spark_batch.batch_id)
        else:
            self._refuse_new(timeline)
            self._covered = frozenset(i.time for i in timeline.completed_writes)
        self._start, self.after_commit = timeline, None
        self._added.clear()
        job.history.timeline = timeline
        return spark_batch, found

    def _follow(self, timeline: Timeline, spark: SparkSession, batch_id: int) -> Timeline:
        """Let the index follow new commits, and return the timeline after that. A commit that is completed meanwhile may
        be missing: :meth:`before_complete` compares it with the batch.
        """
        job = self._job
        for _ in range(_ROUNDS):
            new = self._new(timeline)
            if not new:
                break
            known = {commit: timeline.metadata(job.table.storage, commit) for commit in new}
            for commit, metadata in known.items():
                self._refuse_schema(work_of(metadata), commit)
            self._refuse_swallowed(timeline, new)
            try:
                if not follow(job, spark, timeline, known, batch_id):
                    self._refuse_new(timeline)
                self._covered |= {i.time for i in new}
            except FileGoneError as error:
                LOG.info("%s. Another stream has rolled it back: the table is read again", error)
            timeline = job.table.timeline()
        self._covered &= {i.time for i in timeline.completed_writes}
        return timeline

    def _refuse_new(self, timeline: Timeline) -> None:
        new = self._new(timeline)
        if new:
            raise ForeignCommitError(
                f"table {self._job.table.base_path}: another writer made commit {new[0].time} while this job runs; its rows "
                "are not in the index yet"
            )

    def next_instant(self) -> str:
        """A new instant time, later than every other on the timeline, whatever the clock says."""
        return new_instant(self._job, None if self._follows else self._start)

    def roll_back(self, instant: str) -> None:
        """Roll back a pending write of this project or of a dead writer."""
        roll_back(self._job, instant)

    def before_publish(self, outcome: Outcome, adds: AddedKeys) -> None:
        """An early check where other writers commit all the time: most conflicts are found before any file is visible.

        Services of other writers may list a log file of a batch that has not been committed, and fail when it is rolled
        back. Arguments and errors: see :meth:`before_complete`.
        """
        if self._follows:
            groups, in_plans = outcome.file_groups, self._in_plans(outcome.statuses)
            timeline = self._job.table.timeline()
            self._refuse_plans(timeline, groups, in_plans)
            self._refuse_overlap(timeline, groups, in_plans, adds)

    def _in_plans(self, statuses: Iterable[WriteStatus]) -> frozenset[FileGroupId]:
        """The file groups for which a new compaction plan is a conflict."""
        by_commit = self._job.table.config.names_logs_by_commit
        written = (s for s in statuses if s.kind is not FileKind.APPEND or not by_commit)
        return frozenset((s.stat.partition_path, s.stat.file_id) for s in written)

    def before_complete(self, instant: str, outcome: Outcome, adds: AddedKeys) -> Timeline:
        """The last check before the commit becomes visible: this job has the lease, the table is unchanged, and no
        conflict came up.

        ``adds``: record keys of the batch that the table did not have in that file group. Returns the timeline
        that was checked. ForeignCommitError, InstantConflictError or PendingClusteringError where the batch must be
        processed again.
        """
        job = self._job
        groups, in_plans = outcome.file_groups, self._in_plans(outcome.statuses)
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
            # Writers that take the same lock compare their work with this commit themselves, before they commit.
            pending = [i for i in timeline.pending_writes if i.time != instant and is_waited_for(job, i)]
            if is_being_rolled_back(job, timeline, instant):
                raise InstantConflictError(
                    f"table {job.table.base_path}: another writer is rolling back instant {instant}, which this job has not "
                    "completed yet; the batch is processed again"
                )
            if not self._is_pending(timeline, instant):
                return (
                    timeline  # another writer rolled it back: the commit protocol raises the error, no wait is needed
                )
            if not pending:
                self._refuse_overlap(timeline, groups, in_plans, adds)
                job.env.lock.check()
                return timeline
            for other in pending:
                if is_at_work(job, other) and not wait_for(job, other, give_up=lambda: not self._has_inflight(instant)):
                    continue
                if self._has_inflight(instant):
                    roll_back(job, other.time)

    def committed(self, instant: str) -> None:
        """Add an own commit to those that the index covers."""
        self._covered |= {instant}

    def completed(self, completed: Instant) -> None:
        """Record the batch's commit, after :meth:`before_complete` has read the timeline."""
        self.committed(completed.time)
        self.after_commit = None if self._seen is None else self._seen.with_completed(completed)

    def _new(self, timeline: Timeline) -> list[Instant]:
        return [i for i in timeline.completed_writes if i.time not in self._covered]

    def _refuse_upgraded(self, table: HoodieTable) -> None:
        """ForeignCommitError for another table version: the tasks of a query use one layout of the timeline."""
        if table.config.version != self._version:
            raise ForeignCommitError(
                f"table {table.base_path}: another writer changed its version from {self._version} to "
                f"{table.config.version} while this job runs"
            )

    def _refuse_restored(self, timeline: Timeline) -> None:
        """ForeignCommitError where a commit of the index is no longer on the timeline, unless it was archived.

        The newest one cannot be archived. Where it is older than the timeline's start, a restore has removed the
        commits in between.
        """
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
        """Raise for a table service that was planned over a file group of the batch.

        ``in_plans``: the file groups for which a new compaction plan is a conflict.
        """
        path = self._job.table.base_path
        before = self._start.pending_compactions if self._start is not None else {}
        for group in in_plans & timeline.pending_compactions.keys() - before.keys():
            raise ForeignCommitError(
                f"table {path}: compaction {timeline.pending_compactions[group]} was planned over {_name(group)} while the "
                "batch was written; the batch is processed again, into the slice that begins with the plan"
            )
        if self._job.options.lock.prefers_writers:
            return  # the clustering finds this batch under the lock, and stops
        for group in groups & timeline.pending_clusterings.keys():
            clustering = timeline.pending_clusterings[group]
            raise PendingClusteringError(
                f"table {path}: another writer is clustering {_name(group)} (instant {clustering} is pending): rows that "
                "are written to it now would be lost when it completes. The batch is processed again after that",
                clustering,
            )

    def _refuse_overlap(
        self,
        timeline: Timeline,
        groups: frozenset[FileGroupId],
        in_plans: frozenset[FileGroupId],
        adds: AddedKeys,
    ) -> None:
        """ForeignCommitError for a commit that was completed since the batch began and conflicts with the batch.

        ``in_plans``: the file groups for which a compaction that was planned since then is a conflict. The batch wrote
        into the slice that begins with an earlier plan.
        """
        job = self._job
        new = self._new(timeline)
        before = self._start.pending_compactions if self._start is not None else {}
        for other in new:
            metadata = timeline.metadata(job.table.storage, other)
            work = work_of(metadata)
            made = f"table {job.table.base_path}: another writer made commit {other.time} while this job runs"
            both = self._in_both(groups, work.groups)
            if metadata.is_compaction:
                both = frozenset(group for group in both & in_plans if before.get(group) != other.time)
            if both:
                raise OverlapError(f"{made}; both it and the batch write to {_name(min(both))}")
            if adds.any and work.adds_keys and self._may_add_the_same(adds, other, metadata):
                raise OverlapError(f"{made}; it may have added keys that the batch also adds")
            self._refuse_schema(work, other)
        self._refuse_swallowed(timeline, new)

    def _may_add_the_same(self, adds: AddedKeys, other: Instant, metadata: CommitMetadata) -> bool:
        if has_other_keys(self._job, metadata):
            return False
        record = parse(metadata.extra)
        if record is None or record.adds is None:
            return adds.may_have_one_of(None)
        if other.time not in self._added:  # a commit is compared before the files are published, and twice at the end
            self._added[other.time] = added_keys.read(self._job.table.storage, other.time, record.adds)
        return adds.may_have_one_of(self._added[other.time])

    def _in_both(self, groups: frozenset[FileGroupId], others: frozenset[FileGroupId]) -> frozenset[FileGroupId]:
        """The file groups of the batch that another commit has also written to. Two file groups of one bucket count."""
        index = self._job.env.index
        return index.in_both(groups, others) if isinstance(index, HoodieBucketIndex) else groups & others

    def _refuse_schema(self, work: ForeignWork, commit: Instant) -> None:
        job = self._job
        if work.schema is not None and _adds_to(
            job.decode.stored_json, without_fields(work.schema, job.decode.dropped)
        ):
            raise ForeignCommitError(
                f"table {job.table.base_path}: another writer made commit {commit.time} while this job runs; it changed the "
                "table's schema"
            )

    def _refuse_swallowed(self, timeline: Timeline, new: Sequence[Instant]) -> None:
        job = self._job
        if new and find_swallowed(job.table, timeline, tuple(i.time for i in new), job.env.meta.stream_id):
            raise ForeignCommitError(
                f"table {job.table.base_path}: commit {new[0].time} of another writer did not see rows of this stream"
            )

    def _is_pending(self, timeline: Timeline, instant: str) -> bool:
        return any(i.time == instant and not i.is_completed for i in timeline.instants)

    def _has_inflight(self, instant: str) -> bool:
        job = self._job
        name = Instant(instant, job.action, State.INFLIGHT).file_name()
        return job.table.storage.exists(f"{job.table.config.timeline_folder}/{name}")


def _adds_to(own: str, other: str) -> bool:
    """Whether another writer's schema has a column that our schema lacks, or has with another type."""
    ours, theirs = avro_to_arrow(own), avro_to_arrow(without_meta_fields(other))
    return any(f.name not in ours.names or ours.field(f.name).type != f.type for f in theirs)


def _name(group: FileGroupId) -> str:
    return f"file group {group[1]} of partition {group[0]!r}"
