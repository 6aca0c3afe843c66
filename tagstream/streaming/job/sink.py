"""The sink: one micro-batch becomes one commit, exactly once.

The steps of a batch. Each is also a crash point of ``streaming.process``:

1. ``profile_pinned``    the write profile is in the checkpoint; no attempt of this run uses another one
2. ``requested``         the instant's requested file exists
3. ``inflight``          the instant's inflight file exists: from now on a rollback finds its files by markers
4. ``delta_durable``     (tag stage) a key group's change of state is in the checkpoint
5. ``state_committed``   Spark has committed the pointers of the batch's state version; no table file is written
6. ``files_written``     every data file is staged, none is in its partition
7. ``files_published``   the data files that the tasks returned have their names, which the markers list
8. ``manifest_durable``  the batch manifest names the winning delta of every key group
9. ``metadata_begun``, ``metadata_files``, ``metadata_completed``, where the table has a metadata table: its delta
   commit of the same instant is pending, has its log files, is completed. Readers use it after the next step.
10. ``completed``        the completed instant was created exclusively: the batch is committed
11. ``commit_log``       Spark's own commit log has the batch

On a remote store, independent steps run in parallel (``streaming.job.commit``): 7 and 8 end in any order. With a lock, 7
may come after 8 (``commit.publishes_under_lock``).

A crash before 10 leaves a pending instant. The next run rolls it back and processes the batch again with a new profile.
After a crash after 10 Spark runs the batch again. The timeline has it, so it is a replay. A replay runs *through* the
stateful operator, because Spark needs that state version. It uses the deltas of the commit, and writes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
from pyspark.sql import DataFrame

from tagstream.streaming.batch.added_keys import AddedKeys
from tagstream.streaming.batch.append import one_place_each
from tagstream.streaming.batch.changed_keys import remove_changed_key_rows
from tagstream.streaming.batch.commit_record import CommitRecord
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.located import work_of
from tagstream.streaming.batch.metadata_keeper import deleted_rows, without_moves
from tagstream.streaming.batch.quarantine import batch_folder, first_reason, forget_batch, forget_old
from tagstream.streaming.batch.report import BatchReport, report_of
from tagstream.streaming.batch.spark_checkpoint import SparkBatch, forget_old_plans, newest_batch, read_spark_batch
from tagstream.streaming.batch.write import unpack_rows
from tagstream.streaming.errors import BadRecordsError, StopRequested
from tagstream.streaming.job.bulk_insert import bulk_stage, keeps_records, kept_rows
from tagstream.streaming.job.commit import (
    Outcome,
    begin,
    give_names,
    keys_added,
    publish,
    publishes_under_lock,
    settle_depth,
)
from tagstream.streaming.job.pull_index import located_rows, replaced_groups
from tagstream.streaming.job.timeline_guard import TimelineGuard
from tagstream.streaming.job.write_stage import write_stage
from tagstream.streaming.services.spark_tasks import on_executors
from tagstream.streaming.services.table_services import TableServices
from tagstream.streaming.source.dataframe import Frame
from tagstream.table.errors import TagstreamError
from tagstream.table.services.failed_writes import sweep_copies
from tagstream.table.steps import Step
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.operation import WriteOperationType
from tagstream.table.write import commit as protocol

LOG = logging.getLogger("tagstream")
DAY_MS = 86_400_000
CHANGED_KEYS_DAYS = 7  # the longest lag between a topic's partitions for which rows of changed keys are kept


class BatchSink:
    """Spark calls it in the driver with every micro-batch, one after the other."""

    def __init__(
        self,
        job: JobContext,
        on_report: Callable[[BatchReport], None],
        on_begin: Callable[[int], None] = lambda _: None,
        services: TableServices | None = None,
        deliver: Callable[[int], None] = lambda _: None,
        frame: Frame | None = None,
    ) -> None:
        """``frame``: the source is a DataFrame."""
        self._job = job
        self._keeps_state = frame is not None and frame.keeps_state
        self._deliver = deliver
        self._services = services
        self._of_rows = job.options.source.kind == "frame"
        self._one_at_a_time = threading.Lock()
        self._on_begin = on_begin
        self._guard = TimelineGuard(job)
        self._on_report = on_report
        self._bad_records = 0
        self._groups: dict[int, dict[str, int]] = {}
        self._running = threading.Event()
        self._last_batch: int | None = None
        self._spark_batch: SparkBatch | None = None
        self.begun = 0
        self.committed = 0
        self.failure: Exception | None = None

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Commit the batch, or replay it when the table already has it.

        Every error fails the query. ``failure`` keeps the error, since Spark's exception for it has lost its text.
        """
        self._running.set()
        self.begun += 1
        self._job.env.stop.batch = batch_id
        self._on_begin(batch_id)
        try:
            with self._one_at_a_time:
                self._batch(rows, batch_id)
        except Exception as e:
            self.failure = e
            if isinstance(e, TagstreamError):
                self._job.hooks.own_failure()
            raise
        finally:
            self._last_batch = batch_id
            self._job.env.stop.batch = None
            self._running.clear()

    def idle(self) -> None:
        """Finish table services between two batches. Called from another thread; a batch that begins waits until it has
        ended.
        """
        if self._services is None or not self._one_at_a_time.acquire(blocking=False):
            return
        try:
            self._services.finish(self._last_batch, self._guard.committed)
        finally:
            self._one_at_a_time.release()

    def end(self) -> None:
        """The stream has read its whole source: finish the table services."""
        if self._services is not None:
            self._services.finish(self._last_batch, self._guard.committed, wait=True)

    @property
    def has_other_writers(self) -> bool:
        """Whether other writers may write to the table at the same time."""
        return self._job.env.lease.is_shared

    @property
    def running(self) -> bool:
        """Whether a batch is running."""
        return self._running.is_set()

    def pause_between_batches(self) -> bool:
        """True when no batch runs and Spark has logged the last one. Then the query can be stopped without a later
        replay.
        """
        if self._running.is_set():
            return False
        done = newest_batch(self._job.query_folder.files, "commits")
        return self._last_batch is None or (done is not None and done >= self._last_batch)

    def report_quarantined(self) -> None:
        """Log at the end of a run how many bad records were left out, and where they are."""
        if self._bad_records and not isinstance(self.failure, BadRecordsError):
            LOG.warning(
                "%s bad records were left out and are in %s: `tagstream quarantine list --checkpoint-dir %s` shows them",
                f"{self._bad_records:,}",
                self._job.quarantine.root,
                self._job.env.checkpoint.root,
            )

    def _batch(self, rows: DataFrame, batch_id: int) -> None:
        job = self._job
        job.env.crash.reach(Step.COMMIT_LOG, batch_id - 1)  # Spark logs a batch before it begins the next
        if job.env.stop.requested:
            raise StopRequested(f"stopped by {job.env.stop.signal_name} before batch {batch_id} began")
        if self.committed and job.options.table.operation == WriteOperationType.INSERT_OVERWRITE_TABLE:
            raise StopRequested(
                f"batch {batch_id - 1} replaced the table, and records have come since: the next start replaces it by them"
            )
        started = time.monotonic()
        job.hooks.step("checking the timeline", batch_id)
        spark_batch, found = self._guard.before_batch(
            lambda: read_spark_batch(
                job.query_folder.files, batch_id, files=job.decode.files, rows=self._of_rows, before=self._spark_batch
            ),
            rows.sparkSession,
        )
        self._spark_batch = spark_batch
        if found is not None:
            outcome, report = self._replay(rows, spark_batch, found)
        else:
            outcome, report = self._process(rows, spark_batch, started)
        self._groups |= outcome.groups
        self._deliver(batch_id)
        if job.history.late_copies:  # before anything is archived
            sweep_copies(job.table)
            job.history.late_copies = False
        if self._services is not None:
            begun = time.monotonic()
            self._services.after_batch(batch_id, self._guard.committed, self._guard.after_commit)
            report = replace(report, phases={**report.phases, "services": time.monotonic() - begun})
        if outcome.counts["twice"]:
            LOG.warning(
                "%s keys of another writer have a row in a second file group, too; the newer row counts, and the next "
                "record of such a key replaces or deletes all of its rows. All are listed in %s/*.twice.jsonl; "
                "`tagstream table dedup` keeps the newest row of each",
                f"{outcome.counts['twice']:,}",
                job.layout.durable.where(job.layout.catch_up_dir(job.position.index_load, job.position.catch_up)),
            )
        total = Counter[str]()
        for counts in self._groups.values():
            total.update(counts)
        report = replace(
            report,
            seconds=time.monotonic() - started,
            index_keys=total["live_keys"],
            index_tombstones=total["tombstones"],
            index_bytes=total["bytes"],
            groups=dict(self._groups),
        )
        job.history.records, job.history.file_groups = report.records, report.files
        job.history.work = work_of(outcome.statuses)
        self._on_report(report)
        job.collect_garbage(batch_id)
        if job.decode.files:
            forget_old_plans(job.query_folder.files, batch_id, job.env.retain_batches)
        if batch_id % max(1, job.env.retain_batches // 10):
            return
        if job.decode.reads_headers:
            remove_changed_key_rows(job.changed_keys, job.env.clock_ms() - CHANGED_KEYS_DAYS * DAY_MS)
        if job.options.run.quarantine_days:
            forget_old(job.quarantine, job.env.clock_ms() - int(job.options.run.quarantine_days * DAY_MS))

    def _process(self, rows: DataFrame, spark_batch: SparkBatch, started: float) -> tuple[Outcome, BatchReport]:
        job, crash, batch = self._job, self._job.env.crash, spark_batch.batch_id
        clock = [started, time.monotonic()]
        job.hooks.look_at_schema()
        lock = job.env.lock
        with lock.hold("a new instant"):
            if job.metadata is not None:
                job.env.check()
                execute = on_executors(rows.sparkSession)
                job.metadata.maintain(job.env.clock_ms, job.options.metadata.max_delta_commits, execute)
            job.hooks.step("beginning the instant", batch)
            job.history.instant = instant = self._guard.next_instant()
            begin(job, spark_batch, instant)
        job.env.lease.check()  # in the tag stage Spark overwrites its state, which a successor may have written
        if self.committed == 0:  # records that were bad in an earlier attempt may be good now
            forget_batch(job.quarantine, batch)
        clock.append(time.monotonic())
        job.hooks.step("reading, tagging and writing", batch)
        outcome = self._run(rows, spark_batch, instant, replay=False)
        clock.append(time.monotonic())
        job.hooks.step("committing", batch)
        crash.reach(Step.FILES_WRITTEN, batch)
        job.hooks.check_topic()
        self._check_bad_records(outcome, spark_batch, instant)
        settle_depth(job, outcome.statuses, self._guard.roll_back)
        outcome.replaced = replaced_groups(job, outcome.statuses)
        written = unpack_rows(outcome.written)
        if job.options.appends and job.metadata is not None:
            written = one_place_each(written, by_partition=job.metadata.by_partition)
        if job.env.index is not None and not job.env.index.update_in_tasks:
            job.env.index.update_location(without_moves(written), instant)
        if self._services is not None:
            self._services.give_way(batch, outcome.file_groups)
        if job.env.index is not None:
            job.env.index.before_commit(job.table, {s.stat.partition_path for s in outcome.statuses})
        adds = keys_added(job, outcome)
        self._guard.before_publish(outcome, adds)
        protocol.announce_files(job.table, instant, outcome.statuses, check=job.env.lease.check)
        # A run that died may have written a manifest of its last batch, which is the first batch of this run.
        metadata = publish(
            job, spark_batch, instant, outcome, adds, follows=self._guard.follows, after_others=self.committed == 0
        )
        with lock.hold(f"the commit of {instant}"):
            completed = self._complete(instant, batch, outcome, metadata, written, adds)
        crash.reach(Step.COMPLETED, batch)
        job.env.lease.end_turn()
        self._guard.completed(completed)
        job.committed(outcome.deltas)
        self.committed += 1
        if job.env.index is not None:
            job.env.index.complete_commit(instant, deleted_rows(written).column("record_key").combine_chunks())
            job.env.index.committed(outcome.statuses)
        job.small_files.apply(outcome.statuses)
        clock.append(time.monotonic())
        phases = dict(zip(("check", "prepare", "tasks", "commit"), (b - a for a, b in pairwise(clock)), strict=True))
        return outcome, report_of(spark_batch.batch_id, instant, outcome.counts, outcome.statuses, phases)

    def _complete(
        self,
        instant: str,
        batch: int,
        outcome: Outcome,
        metadata: CommitMetadata,
        written: pa.Table,
        adds: AddedKeys,
    ) -> Instant:
        """Compare with newer commits, publish the files if that is not done, write the delta of the metadata table, and
        complete the instant.
        """
        job, kept_at, statuses = self._job, None, outcome.statuses
        late = publishes_under_lock(job)
        if late or job.metadata is not None:
            # Another active writer may also write to the metadata table, and only one may do so at a time.
            self._guard.before_complete(instant, outcome, adds)
        if late:
            give_names(job, instant, statuses, batch)
        if job.metadata is not None:
            kept_at = job.metadata.commit(
                instant,
                statuses,
                written,
                job.env.clock_ms,
                lambda step: job.env.crash.reach(step, batch),
                job.env.check,
            )
            job.metadata = replace(job.metadata, overlooked={})
        return protocol.complete(
            job.table,
            instant,
            job.action,
            metadata,
            guard=lambda: self._guard.before_complete(instant, outcome, adds),
            clock_ms=job.env.clock_ms,
            after=kept_at,
            is_staged=True,
            and_then=lambda: job.env.lease.beat(None),
        )

    def _replay(
        self, rows: DataFrame, spark_batch: SparkBatch, found: tuple[str, CommitRecord]
    ) -> tuple[Outcome, BatchReport]:
        """The table has this batch: let Spark make its state version with the commit's deltas, and write nothing.

        Without a stateful operator the batch is skipped. With a pull-type index only a DataFrame can have stateful
        operators, which are the user's.
        """
        instant, record = found
        self._job.hooks.step("replaying: the table already has it", spark_batch.batch_id)
        if self._job.env.index is not None:
            if self._keeps_state:
                self._job.pin_replay(
                    spark_batch, instant, record.manifest
                )  # tasks read the depth of partitions from it
                rows.write.format("noop").mode("overwrite").save()
            return Outcome(), replace(report_of(spark_batch.batch_id, instant, Counter(), ()), replayed=True)
        self._job.pin_replay(spark_batch, instant, record.manifest)
        outcome = self._run(rows, spark_batch, instant, replay=True)
        return outcome, replace(
            report_of(spark_batch.batch_id, instant, outcome.counts, outcome.statuses), replayed=True
        )

    def _run(self, rows: DataFrame, spark_batch: SparkBatch, instant: str, *, replay: bool) -> Outcome:
        """Run the one Spark action of the batch, which consumes every partition of the stateful plan.

        With a pull-type index the records are persisted meanwhile: the index may need their keys first, and state of
        the source's plan must be read and written only once.
        """
        job, index = self._job, self._job.env.index
        if index is None:
            return write_stage(job, rows, spark_batch.batch_id, instant, replay=replay)
        if index.knows_absence or self._keeps_state or keeps_records(job):
            rows = kept_rows(job, rows)
        try:
            if job.bulk_inserts:
                return bulk_stage(job, rows, spark_batch.batch_id, instant)
            return write_stage(job, located_rows(job, rows, instant), spark_batch.batch_id, instant, replay=replay)
        finally:
            index.end_batch()
            rows.unpersist()

    def _check_bad_records(self, outcome: Outcome, spark_batch: SparkBatch, instant: str) -> None:
        job = self._job
        self._bad_records += outcome.counts["quarantined"]
        if job.options.run.commit_on_errors or self._bad_records <= job.options.run.max_bad_records:
            return
        self._guard.roll_back(instant)
        raise BadRecordsError(
            f"{outcome.counts['quarantined']} bad records in batch {spark_batch.batch_id} "
            f"({self._bad_records} in this run, {job.options.run.max_bad_records} allowed); nothing of the batch was "
            f"committed. {first_reason(job.quarantine, spark_batch.batch_id)}`tagstream quarantine list --checkpoint-dir "
            f"{job.env.checkpoint.root}` shows them (they are in "
            f"{job.quarantine.where(batch_folder(spark_batch.batch_id))}, with the reason of each). "
            "Correct the source, or pass --commit-on-errors or a greater --max-bad-records to continue without them"
        )
