"""One run of the job from its options: checks, cheapest and clearest first, then Spark, lease, query, end."""

from __future__ import annotations

import getpass
import logging
import os
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tagstream.catalog.opened import open_catalogs
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.metadata_keeper import MetadataKeeper
from tagstream.streaming.batch.metadata_prepare import (
    drop_partition_stats,
    drop_unkept,
    drop_wrong_listing,
    make_if_wanted,
)
from tagstream.streaming.batch.report import BatchReport
from tagstream.streaming.errors import SchemaChangedError, StopRequested
from tagstream.streaming.job.commit import find_depth
from tagstream.streaming.job.dead_letters import Delivery
from tagstream.streaming.job.failure import FailureLog, explain, note_batch, own_errors
from tagstream.streaming.job.first_records import needs_spark, with_first_schema, with_first_table, with_schema_by_spark
from tagstream.streaming.job.follow import ask_for_turn, open_keeper
from tagstream.streaming.job.preflight import Ready, SparkNeeds, check_before_spark, check_start, check_stream
from tagstream.streaming.job.pull_index import start_index
from tagstream.streaming.job.query import claim_run, end_query, run_owner, run_to_end, start_query
from tagstream.streaming.job.restart import Restart, forget_notes, look_at_schema, restart_after, take_noticed
from tagstream.streaming.job.run_context import make_context
from tagstream.streaming.job.session import (
    choose_checkpoint_files,
    end_session,
    fix_state_settings,
    has_ended,
    little_java,
    needed_jars,
    session_conf,
    spark_needs,
    start_session,
)
from tagstream.streaming.job.sink import DAY_MS, BatchSink
from tagstream.streaming.job.source_files import SourceFiles
from tagstream.streaming.job.table_match import open_or_create, share_of, table_lock
from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.streaming.monitor.progress import Display, Monitor, Progress
from tagstream.streaming.monitor.watch import Watch
from tagstream.streaming.options.options import Options
from tagstream.streaming.process import CrashPlan, StopFlag
from tagstream.streaming.recovery.cover import cover_table
from tagstream.streaming.recovery.foreign_commits import is_of_stream
from tagstream.streaming.recovery.pending_writes import roll_back_own, settle, wait_for_clustering
from tagstream.streaming.recovery.same_source import TopicWatch
from tagstream.streaming.recovery.same_table import check_table
from tagstream.streaming.recovery.takeover import prune_retired
from tagstream.streaming.services.catalog_sync import CatalogSync
from tagstream.streaming.services.compaction import compact_logs
from tagstream.streaming.services.table_services import TableServices
from tagstream.streaming.source.dataframe import Frame
from tagstream.streaming.source.decode.schema_registry import USER_INFO_ENV
from tagstream.streaming.source.kafka_topic import topic_offsets
from tagstream.table.errors import LeaseLostError, OverlapError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import listed_by_metadata
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import META_FOLDER

LOG = logging.getLogger("tagstream")


def run_job(options: Options, env: MutableMapping[str, str], clock_ms: Callable[[], int]) -> None:
    """Stream until the source is read (or a signal, with ``--continuous``). Raises the error that made the job fail."""
    with Progress.open(options) as progress, Watch(options, clock_ms, progress.step) as watch:
        for warning in options.warnings:
            LOG.warning(warning)
        LOG.info("options:\n  %s", "\n  ".join(options.describe(given_only=not options.run.log_all_options)))
        needs = spark_needs(options, env)
        if needs_spark(options):  # for the table's schema
            check_before_spark(options, env, needs)
            spark = _session(options, options.table.name or "stream", needs, env, watch)
            try:
                options = with_schema_by_spark(options, spark)
                ready = _looked_at(options, env, clock_ms(), needs, watch)
            except BaseException:
                end_session(spark)
                raise
        else:
            options = with_first_schema(options)
            ready = _looked_at(options, env, clock_ms(), needs, watch)
            spark = _session(options, ready.table.config.name, needs, env, watch)
        stop = StopFlag()
        stop.install()
        try:
            if options.kafka.topic is not None and options.source.kind == "kafka":
                topic_offsets(spark, options.kafka.topic, options.kafka.consumer)  # it is there, and may be read
            watch.step("opening the table")
            table = open_table(options, clock_ms())  # the first step that may make something
            if ready.new:
                watch.table_opened(table)
            crash = CrashPlan.from_env(env, os.getpgrp())
            stream(spark, options, table, progress, stop, crash, clock_ms, watch)
        finally:
            end_session(spark)


def _looked_at(options: Options, env: Mapping[str, str], now_ms: int, needs: SparkNeeds, watch: Watch) -> Ready:
    watch.step("checking source, table and checkpoint")
    ready = check_start(options, env, now_ms, needs)
    check_stream(ready.table, options.index)
    for warning in ready.warnings:
        LOG.warning(warning)
    if not ready.new:
        watch.table_opened(ready.table)  # so that the page shows its last commit while Spark starts
    return ready


def _session(
    options: Options, name: str, needs: SparkNeeds, env: MutableMapping[str, str], watch: Watch
) -> SparkSession:
    jars = needed_jars(needs, env)
    watch.step("starting Spark, which takes some seconds")
    if options.records.registry_user_info:  # workers inherit it, so it is not in a plan
        env[USER_INFO_ENV] = options.records.registry_user_info
    return start_session(
        f"tagstream {name}", jars=jars, conf=session_conf(options, env), env=env, little_java=little_java(options)
    )


def open_table(options: Options, now_ms: int) -> HoodieTable:
    """Open the table of the options, or create it. An error where it cannot be written; then nothing is changed."""
    check_table(open_storage(options.run.checkpoint_dir), options.table.base_path)  # before a table is made
    table = listed_by_metadata(open_or_create(options, now_ms))
    check_stream(table, options.index)
    return table


def stream(
    spark: SparkSession,
    options: Options,
    table: HoodieTable,
    progress: Display,
    stop: StopFlag,
    crash: CrashPlan,
    clock_ms: Callable[[], int],
    watch: Watch,
    frame: Frame | None = None,
) -> JobContext:
    """Run the stream with an existing session, as the one writer of the table. Returns its context.

    ``frame``: the DataFrame that is its source.
    """
    lock = table_lock(options, table, clock_ms)
    lease = LeaseKeeper(table.storage, clock_ms, share=share_of(options, lock))
    monitor = Monitor(progress, watch)
    failures = FailureLog(spark)
    job: JobContext | None = None
    sync: CatalogSync | None = None
    try:
        watch.step("taking the table's writer lease")
        lease.acquire(f"stream {options.stream_id}")
        job = make_context(options, table, spark, lease, stop, crash, clock_ms, lock)
        job.decode = with_first_table(job.decode, job.options, job.query_folder.files, spark)
        watch.attach(job)
        job.hooks.loading = monitor.loading
        if frame is not None:
            job.hooks.own_failure = failures.keep_back
        fix_state_settings(spark, job.env.meta.shuffle_partitions)
        choose_checkpoint_files(spark, job.env.checkpoint.root)
        _clear_leftovers(job)
        forget_notes(job)
        sync = open_sync(job)
        sync.start()
        run = _Stream(job, spark, options, progress, monitor, watch, failures, sync, frame)
        restart: Restart | None = None
        while True:
            run.recover(restart)
            run.prepare(restart)
            restart = run.query(restart)
            if restart is None:
                sync.finish()
                return job
            run.renew()
    except StopRequested as e:
        LOG.info("%s", e)
        if job is None:
            raise
        return job
    except Exception as e:
        name = next((kind for kind, _ in reversed(own_errors(e))), type(e).__name__)
        watch.failed(name, explain(e, options).line, may_write=not isinstance(e, LeaseLostError))
        raise
    finally:
        if sync is not None:
            sync.close()
        watch.ended()
        lock.close()
        lease.release()


@dataclass(frozen=True)
class _Stream:
    """The steps of a stream, one method each: recover, prepare, query. Before a query starts again: renew."""

    job: JobContext
    spark: SparkSession
    options: Options
    progress: Display
    monitor: Monitor
    watch: Watch
    failures: FailureLog
    sync: CatalogSync
    frame: Frame | None

    def recover(self, restart: Restart | None) -> None:
        """Make index and table consistent. ``restart``: why the last query ended, None at the start."""
        job, clock_ms = self.job, self.job.env.clock_ms
        rebuild = restart.why if restart is not None and restart.rebuild else None
        doubt = restart.why if restart is not None and restart.doubt else None
        if restart is not None:
            _leave_to_others(job, restart)
        self.watch.step("comparing index and table")
        with job.env.lock.hold("the metadata table"):
            job.table = job.table.reload()  # as other streams have left it
            if job.table.timeline().pending:  # a rollback of these also writes to the metadata table
                job.table = drop_unkept(job.table, self.options.metadata, clock_ms())
            if doubt is not None:
                job.table = drop_wrong_listing(job.table, clock_ms())
        cover_table(job, self.spark, rebuild=rebuild, doubt=doubt)
        with job.env.lock.hold("the metadata table"):
            job.table = drop_unkept(job.table.reload(), self.options.metadata, clock_ms())

    def prepare(self, restart: Restart | None) -> None:
        """Prepare the schema, the metadata table, the small file groups and the index for the query."""
        job, clock_ms, metadata = self.job, self.job.env.clock_ms, self.options.metadata
        again = restart is not None and restart.count > 1 and restart.error == SchemaChangedError.__name__
        if restart is not None and self.options.source.transformers:  # the schema file may be another one
            job.options = with_schema_by_spark(job.options, self.spark)
        widens = look_at_schema(job, again=again)
        if widens:
            job.table = drop_partition_stats(job.table, clock_ms())
        if widens and job.table.config.is_merge_on_read and job.env.lease.leads() and compact_logs(job, self.spark):
            cover_table(job, self.spark)
        with job.env.lock.hold("the metadata table"):
            job.table = make_if_wanted(job.table.reload(), job.decode.stored, metadata, self.spark, clock_ms)
        job.metadata = open_metadata(job)
        job.table.check_writable(keeps_metadata=job.metadata is not None)
        job.small_files.load(job.table.view())
        find_depth(job)
        start_index(job, self.spark)

    def query(self, before: Restart | None) -> Restart | None:
        """Run one query until its end. Returns None when the source is read, else why another query must start.

        ``before``: why this query was started. Raises an error that another query cannot fix.
        """
        job, spark = self.job, self.spark
        services = TableServices(job, spark)
        letters, topic = Delivery.open(job, spark), TopicWatch(job, spark)
        sink = BatchSink(job, self._on_report, self.progress.begin, services, letters.after_batch, self.frame)
        files = SourceFiles.open(spark, job)
        self.watch.ready(spark)
        query = start_query(spark, job, sink, files, self.frame)
        if files is not None:
            files.start(lambda: (sink.begun, sink.running))
        try:
            run_to_end(query, job, sink, self.monitor, files)
            return None
        except Exception as e:
            return self._restart(e, sink, before)
        finally:
            services.close()
            end_query(query)
            topic.close()
            self.failures.restore()
            sink.report_quarantined()
            if files is not None:
                files.close()

    def _on_report(self, report: BatchReport) -> None:
        self.monitor.on_report(report)
        self.sync.committed()

    def _restart(self, error: Exception, sink: BatchSink, before: Restart | None) -> Restart:
        job, stop = self.job, self.job.env.stop
        if stop.requested and has_ended(self.spark):
            raise StopRequested(
                f"{stop.signal_name} has ended Spark as well as this job; the next start processes an unfinished "
                "batch again"
            ) from error
        restart = restart_after(error, sink, before)
        if restart is None:
            note_batch(error, job.query_folder.files)
            raise error
        job.env.lease.check()  # a driver that was paused may have a successor, and must end then
        take_noticed(job, restart.why)
        LOG.log(restart.level, "%s. The query starts again", restart.why)
        self.watch.status.restarted(restart.error, restart.why)
        if job.env.lease.is_shared:  # without its heartbeat, a Hudi writer would roll it back at the same moment
            roll_back_own(job)
        else:
            job.env.lease.beat(None)
        return restart

    def renew(self) -> None:
        """A restarted query is a new run, and reads the table again."""
        job = self.job
        job.run_owner = run_owner(job.env.clock_ms())
        job.run = claim_run(job.env.checkpoint, job.run_owner)
        job.table = job.table.reload()


def open_metadata(job: JobContext) -> MetadataKeeper | None:
    """The metadata table at the start of a query; None where the table has none."""
    opened = open_keeper(job)
    return opened and opened.at_start(lambda metadata: is_of_stream(metadata, job.env.meta.stream_id))


def open_sync(job: JobContext) -> CatalogSync:
    """The sync of the job's table with its catalogues."""
    options, user = job.options.sync, getpass.getuser()
    catalogs = open_catalogs(options, user)
    return CatalogSync(job.table, catalogs, options, user, lambda *turn: job.hooks.service(*turn), time.monotonic)


def _clear_leftovers(job: JobContext) -> None:
    """Remove unfinished files of dead processes, and the indexes of queries that were retired long ago."""
    for files, folder in ((job.env.checkpoint, "tagstream"), (job.table.storage, META_FOLDER)):
        files.clear_scratch(folder, job.env.clock_ms() - DAY_MS)
    for folder in prune_retired(job.env.checkpoint, job.query_folder):
        LOG.info(
            "removed the index of the retired query in %s",
            job.env.checkpoint.where(folder) if folder else job.env.checkpoint.root,
        )


def _leave_to_others(job: JobContext, restart: Restart) -> None:
    """Wait for a clustering of file groups of the batch. Wait also after conflicts with other writers, longer each
    time.
    """
    if restart.error == OverlapError.__name__ and job.env.lease.is_shared:
        ask_for_turn(job)
        return
    job.env.lease.end_turn()
    if restart.clustering is not None:
        job.table = job.table.reload()
        settle(job)  # first roll back our part of the batch, so that the clustering need not wait for it
        wait_for_clustering(job, restart.clustering)
    if restart.pause_s and job.env.stop.wait(restart.pause_s):
        raise StopRequested(f"stopped by {job.env.stop.signal_name} while it waited for other writers")
