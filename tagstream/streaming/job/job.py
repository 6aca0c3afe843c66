"""One run of the job from its options: checks first, cheapest and clearest first; then Spark, lease, query, end."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.metadata_keeper import MetadataKeeper
from tagstream.streaming.batch.metadata_prepare import (
    drop_partition_stats,
    drop_unkept,
    drop_wrong_listing,
    make_if_wanted,
)
from tagstream.streaming.errors import SchemaChangedError, StopRequested
from tagstream.streaming.job.commit import find_depth
from tagstream.streaming.job.dead_letters import Delivery
from tagstream.streaming.job.failure import FailureLog, explain, note_batch, own_errors
from tagstream.streaming.job.first_records import needs_spark, with_first_schema, with_first_table, with_schema_by_spark
from tagstream.streaming.job.preflight import Ready, SparkNeeds, check_stream, look, look_before_spark
from tagstream.streaming.job.pull_index import start_index
from tagstream.streaming.job.query import claim_run, end_query, run_owner, run_to_end, start_query
from tagstream.streaming.job.restart import Restart, forget_notes, look_at_schema, restart_after, take_noticed
from tagstream.streaming.job.run_context import DAY_MS, make_context
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
from tagstream.streaming.job.sink import BatchSink
from tagstream.streaming.job.source_files import SourceFiles
from tagstream.streaming.job.table_match import open_or_create
from tagstream.streaming.lease_keeper import LeaseKeeper
from tagstream.streaming.monitor.progress import Display, Monitor, Progress
from tagstream.streaming.monitor.watch import Watch
from tagstream.streaming.options.options import Options
from tagstream.streaming.process import CrashPlan, StopFlag
from tagstream.streaming.recovery.cover import cover_table
from tagstream.streaming.recovery.pending_writes import settle, wait_for_clustering
from tagstream.streaming.recovery.same_source import TopicWatch
from tagstream.streaming.recovery.same_table import check_table
from tagstream.streaming.recovery.takeover import prune_retired
from tagstream.streaming.services.compaction import compact_logs
from tagstream.streaming.services.table_services import TableServices
from tagstream.streaming.source.dataframe import Frame
from tagstream.streaming.source.decode.schema_registry import USER_INFO_ENV
from tagstream.streaming.source.kafka_topic import topic_offsets
from tagstream.table.errors import LeaseLostError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import listed_by_metadata
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import META_FOLDER

LOG = logging.getLogger("tagstream")


def run_job(options: Options, env: MutableMapping[str, str], clock_ms: Callable[[], int]) -> None:
    """Stream until the source is taken (or a signal, with ``--continuous``); raises what made the job fail."""
    with Progress.open(options) as progress, Watch(options, clock_ms, progress.step) as watch:
        for warning in options.warnings:
            LOG.warning(warning)
        LOG.info("options:\n  %s", "\n  ".join(options.describe(given_only=not options.log_all_options)))
        needs = spark_needs(options, env)
        if needs_spark(options):  # to know the table's schema
            look_before_spark(options, env, needs)
            spark = _session(options, options.target_table or "stream", needs, env, watch)
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
            if options.kafka_topic is not None and options.source_class == "kafka":
                topic_offsets(spark, options.kafka_topic, options.kafka_options)  # it is there, and may be read
            watch.step("opening the table")
            table = open_table(options, clock_ms())  # nothing was made before
            if ready.new:
                watch.table_opened(table)
            crash = CrashPlan.from_env(env, os.getpgrp())
            stream(spark, options, table, progress, stop, crash, clock_ms, watch)
        finally:
            end_session(spark)


def _looked_at(options: Options, env: Mapping[str, str], now_ms: int, needs: SparkNeeds, watch: Watch) -> Ready:
    watch.step("looking at source, table and checkpoint")
    ready = look(options, env, now_ms, needs)
    check_stream(ready.table, options.index.type)
    for warning in ready.warnings:
        LOG.warning(warning)
    if not ready.new:
        watch.table_opened(ready.table)  # the age of its last commit is known while Spark starts
    return ready


def _session(
    options: Options, name: str, needs: SparkNeeds, env: MutableMapping[str, str], watch: Watch
) -> SparkSession:
    jars = needed_jars(needs, env)
    watch.step("starting Spark, which takes some seconds")
    if options.records.registry_user_info:  # its workers inherit it, so that it is in no plan
        env[USER_INFO_ENV] = options.records.registry_user_info
    return start_session(
        f"tagstream {name}", jars=jars, conf=session_conf(options, env), env=env, little_java=little_java(options)
    )


def open_table(options: Options, now_ms: int) -> HoodieTable:
    """The table the options name, made if there is none. What can't be written is refused by name, but nothing changed."""
    check_table(open_storage(options.checkpoint_dir), options.target_base_path)  # before a table is made
    table = listed_by_metadata(open_or_create(options, now_ms))
    check_stream(table, options.index.type)
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
    """Run the stream on an existing session, as the one writer of the table; returns the context it ran with.

    ``frame``: the DataFrame that is its source.
    """
    lease = LeaseKeeper(table.storage, clock_ms)
    monitor = Monitor(progress, watch)
    failures = FailureLog(spark)
    job: JobContext | None = None
    try:
        watch.step("taking the table's writer lease")
        lease.acquire(f"stream {options.stream_id}")
        job = make_context(options, table, spark, lease, stop, crash, clock_ms)
        job.decode = with_first_table(job.decode, job.options, job.root.files, spark)
        watch.attach(job)
        job.hooks.loading = monitor.loading
        if frame is not None:
            job.hooks.own_failure = failures.keep_back
        fix_state_settings(spark, job.env.meta.shuffle_partitions)
        choose_checkpoint_files(spark, job.env.checkpoint.root)
        _clear_leftovers(job)
        forget_notes(job)
        run = _Stream(job, spark, options, progress, monitor, watch, failures, frame)
        restart: Restart | None = None
        while True:
            run.recover(restart)
            run.prepare(restart)
            restart = run.query(restart)
            if restart is None:
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
        watch.ended()
        lease.release()


@dataclass(frozen=True)
class _Stream:
    """The states of a stream, one method each: recover, prepare, query; after a query that is to start again, renew."""

    job: JobContext
    spark: SparkSession
    options: Options
    progress: Display
    monitor: Monitor
    watch: Watch
    failures: FailureLog
    frame: Frame | None

    def recover(self, restart: Restart | None) -> None:
        """Index and table are brought together. ``restart``: why the query before this one ended, None at the start."""
        job, clock_ms = self.job, self.job.env.clock_ms
        rebuild = restart.why if restart is not None and restart.rebuild else None
        doubt = restart.why if restart is not None and restart.doubt else None
        if restart is not None:
            _leave_to_others(job, restart)
        self.watch.step("comparing index and table")
        if job.table.timeline().pending:  # what is rolled back now would have to be told there, too
            job.table = drop_unkept(job.table, self.options.metadata, clock_ms())
        if doubt is not None:
            job.table = drop_wrong_listing(job.table, clock_ms())
        cover_table(job, self.spark, rebuild=rebuild, doubt=doubt)
        job.table = drop_unkept(job.table, self.options.metadata, clock_ms())

    def prepare(self, restart: Restart | None) -> None:
        """The schema, the metadata table, the file groups that take inserts and the index are as the query needs them."""
        job, clock_ms, metadata = self.job, self.job.env.clock_ms, self.options.metadata
        again = restart is not None and restart.count > 1 and restart.error == SchemaChangedError.__name__
        if restart is not None and self.options.transformers:  # the schema file may be another one
            job.options = with_schema_by_spark(job.options, self.spark)
        widens = look_at_schema(job, again=again)
        if widens:
            job.table = drop_partition_stats(job.table, clock_ms())
        if widens and job.table.config.is_merge_on_read and compact_logs(job, self.spark):
            cover_table(job, self.spark)
        job.table = make_if_wanted(job.table, job.decode.stored, metadata, self.spark, clock_ms)
        job.metadata = MetadataKeeper.open(job.table, job.decode.stored, metadata.record_index_groups)
        job.table.check_writable(keeps_metadata=job.metadata is not None)
        job.small_files.load(job.table.view())
        find_depth(job)
        start_index(job, self.spark)

    def query(self, before: Restart | None) -> Restart | None:
        """One query until its end: None when the source is read, else why another one is to start. ``before``: why this one
        was started. Raises what no other query can cure."""
        job, spark = self.job, self.spark
        services = TableServices(job, spark)
        letters, topic = Delivery.open(job, spark), TopicWatch(job, spark)
        sink = BatchSink(job, self.monitor.on_report, self.progress.begin, services, letters.after_batch, self.frame)
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
            sink.tell_quarantined()
            if files is not None:
                files.close()

    def _restart(self, error: Exception, sink: BatchSink, before: Restart | None) -> Restart:
        job, stop = self.job, self.job.env.stop
        if stop.requested and has_ended(self.spark):
            raise StopRequested(
                f"{stop.signal_name} has ended Spark as well as this job; a batch that was not finished is done "
                "again by the next start"
            ) from error
        restart = restart_after(error, sink, before)
        if restart is None:
            note_batch(error, job.root.files)
            raise error
        job.env.lease.check()  # a driver that stood still leaves it all to its successor
        take_noticed(job, restart.why)
        LOG.log(restart.level, "%s. The query starts again", restart.why)
        self.watch.status.restarted(restart.error, restart.why)
        job.env.lease.beat(None)
        return restart

    def renew(self) -> None:
        """A query that starts again is a run of its own, and sees the table as it is then."""
        job = self.job
        job.run_owner = run_owner(job.env.clock_ms())
        job.run = claim_run(job.env.checkpoint, job.run_owner)
        job.table = job.table.reload()


def _clear_leftovers(job: JobContext) -> None:
    """What dead processes left half written, and the indexes of queries that were retired long ago."""
    for files, folder in ((job.env.checkpoint, "tagstream"), (job.table.storage, META_FOLDER)):
        files.clear_scratch(folder, job.env.clock_ms() - DAY_MS)
    for folder in prune_retired(job.env.checkpoint, job.root):
        LOG.info(
            "removed the index of the retired query in %s",
            job.env.checkpoint.where(folder) if folder else job.env.checkpoint.root,
        )


def _leave_to_others(job: JobContext, restart: Restart) -> None:
    """Wait for a clustering that holds file groups of the batch, and a little longer the more often others were first."""
    if restart.clustering is not None:
        job.table = job.table.reload()
        settle(job)  # our own part of the batch first, which the clustering must not wait for
        wait_for_clustering(job, restart.clustering)
    if restart.pause_s and job.env.stop.wait(restart.pause_s):
        raise StopRequested(f"asked to end by {job.env.stop.signal_name} while other writers were at work")
