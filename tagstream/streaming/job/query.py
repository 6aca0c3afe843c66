"""The query of one run of the job: its plan, its end, and the unique number of each start of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from weakref import ref

from py4j.protocol import Py4JNetworkError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupStateTimeout

from tagstream.state.scratch import make_private
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.located import LOCATED_SQL
from tagstream.streaming.batch.spark_checkpoint import newest_batch, read_up_to
from tagstream.streaming.batch.tag import STATE_SCHEMA, TagSpec, make_tag_function, read_profile
from tagstream.streaming.errors import StopRequested
from tagstream.streaming.job.restart import schema_notes
from tagstream.streaming.job.sink import BatchSink
from tagstream.streaming.job.source_files import SourceFiles
from tagstream.streaming.monitor.progress import Monitor
from tagstream.streaming.source.dataframe import Frame, keyed_rows, settings_of
from tagstream.streaming.source.source import PartitionDepth, keyed_records, raw_records
from tagstream.streaming.source.task_files import TaskFiles
from tagstream.streaming.source.transformation import transformation, transformed_records
from tagstream.table.steps import Step
from tagstream.table.storage.storage import Storage, create
from tagstream.table.timeline.lease import LeaseOwner

_RUNS = "tagstream/runs"


def claim_run(checkpoint: Storage, owner: str) -> int:
    """Claim a number for a start of the checkpoint, from 1 on, by an exclusive create. ``owner``: a text unique to this
    start.
    """
    runs = checkpoint.below(_RUNS)
    number = max(_numbers(runs), default=0) + 1
    while not create(runs, str(number), owner.encode()):
        number += 1
    runs.delete_many(str(old) for old in _numbers(runs) if old < number)
    return number


def _numbers(runs: Storage) -> list[int]:
    return [int(name) for name in runs.names("") if name.isdigit()]


def run_owner(now_ms: int) -> str:
    """A text that identifies this start of a checkpoint among all starts."""
    me = LeaseOwner.this_process()
    return f"{me.host} {me.boot_id} {me.pid} {me.process_start} {now_ms}"


POLL_S = 0.5
JVM_GONE = (Py4JNetworkError, ConnectionError)


def start_query(
    spark: SparkSession,
    job: JobContext,
    sink: BatchSink,
    files: SourceFiles | None = None,
    frame: Frame | None = None,
) -> StreamingQuery:
    """Build the plan (source, keys, stateful tag) and start it. Spark calls the sink with every batch.

    With a pull-type index the plan ends with the keys, and the sink tags them. ``files``: the source is a folder whose
    files this job plans. ``frame``: the source is a DataFrame.
    """
    exchange = job.task_files = _exchange(spark, job)
    if frame is not None:
        with settings_of(spark, frame.rows.sparkSession):
            keyed = keyed_rows(frame.rows, job.decode, _labels(job), _depth(job), exchange=exchange)
            query = _start_plan(keyed, job, sink, exchange, frame)
        frame.started(query)
        return query
    plans = None if files is None else files.folder
    raw = raw_records(
        spark, job.options, job.position.starting_offsets, _planned(job), plans, headers=job.decode.reads_headers
    )
    spec = None if files is None else files.spec
    if job.options.source.transformers:
        made = transformation(job.options, job.decode)
        keyed = transformed_records(raw, made, job.decode, _labels(job), _depth(job), spec, exchange)
    else:
        notes = schema_notes(job) if job.decode.evolution is not None else None
        keyed = keyed_records(raw, job.decode, _labels(job), _depth(job), spec, notes, exchange)
    return _start_plan(keyed, job, sink, exchange)


def _exchange(spark: SparkSession, job: JobContext) -> TaskFiles | None:
    """Where tasks leave rows for those of the next step; None where they may run on other hosts."""
    files = TaskFiles.below(job.layout.local_dir)
    files.clear()  # of a run that was killed
    is_here = (spark.sparkContext.master or "").partition("[")[0] == "local"  # the JVM of all tasks is the driver's
    if not is_here or not job.options.run.task_files:
        return None
    make_private(job.layout)
    return files


def _labels(job: JobContext) -> tuple[int, ...]:
    """The key groups that records are split by: one is enough where the keys do not matter."""
    labels = job.env.meta.labels
    return labels[:1] if job.bulk_inserts and not job.options.operation.combine else labels


def _depth(job: JobContext) -> PartitionDepth:
    if job.history.partition_depth is None and job.decode.depth_is_open:
        return DepthOfBatch(job.profiles, job.run, job.run_owner)
    return job.history.partition_depth


def _start_plan(
    keyed: DataFrame, job: JobContext, sink: BatchSink, exchange: TaskFiles | None, frame: Frame | None = None
) -> StreamingQuery:
    if job.env.index is not None:
        return _start(keyed, job, sink, frame)
    spec = TagSpec(
        layout=job.layout,
        profiles=job.profiles,
        run=job.run,
        run_owner=job.run_owner,
        crash=job.env.crash,
        write_tasks=job.env.meta.shuffle_partitions,
        storage=job.table.storage,
        timeline_folder=job.table.config.timeline_folder,
        action=job.action,
        partial=job.decode.partial_rows,
        exchange=exchange,
    )
    tag = make_tag_function(spec)
    located = keyed.groupBy("kg").applyInPandasWithState(
        tag, LOCATED_SQL, STATE_SCHEMA, "append", GroupStateTimeout.NoTimeout
    )
    return _start(located, job, sink, frame)


@dataclass(frozen=True)
class DepthOfBatch:
    """Returns the depth of the table's partitions to a task, from its batch's write profile. Every attempt gets the
    same.

    It is for a query that began on a table without commits. A later query gets the number itself.
    """

    profiles: Storage
    run: int
    run_owner: str

    def __call__(self) -> int | None:
        context = TaskContext.get()
        assert context is not None
        batch_id = int(context.getLocalProperty("streaming.sql.batchId") or -1)
        return read_profile(self, batch_id).partition_depth


def _planned(job: JobContext) -> dict[int, int]:
    """Where a Kafka stream continues: after the newest batch that Spark planned, or where a new query starts."""
    return (
        {} if job.decode.files else read_up_to(job.query_folder.files, "offsets", job.position.starting_offsets) or {}
    )


def _start(rows: DataFrame, job: JobContext, sink: BatchSink, frame: Frame | None) -> StreamingQuery:
    writer = rows.writeStream.foreachBatch(_weakly(sink)).outputMode("append")
    writer = writer.option("checkpointLocation", job.query_folder.files.root)
    if frame is None:  # a user's session may have another query for a table of the same name
        writer = writer.queryName(job.table.config.name)
    if frame is not None:
        writer = writer.trigger(**frame.trigger)  # type: ignore[arg-type]
    elif job.options.run.continuous:
        writer = writer.trigger(processingTime=f"{job.options.run.min_sync_interval_seconds} seconds")
    else:
        writer = writer.trigger(availableNow=True)
    return writer.start()


def _weakly(sink: BatchSink) -> Callable[[DataFrame, int], None]:
    """A function that Spark calls with each batch, and that keeps the sink only by a weak reference.

    Py4J keeps a function as long as the JVM has the query that calls it, and the JVM keeps the query as long as Python
    has it. With a strong reference to the sink neither would ever be freed, and each ended query would stay in the
    driver's memory. PySpark keeps a batch's error with the function, and an error keeps the frames that it went
    through, the sink's included. So PySpark gets a copy of the error. The sink has the error itself (``failure``).
    """
    found = ref(sink)

    def call(batch: DataFrame, batch_id: int) -> None:
        alive = found()
        if alive is None:
            raise StopRequested("the query has ended; the next start processes its batch again")
        failure = None
        try:
            alive(batch, batch_id)
        except Exception as e:
            failure = _bare(e)
        del alive, batch  # the copy keeps this frame
        if failure is not None:  # not in the handler: there the error would become the context of its copy
            raise failure

    return call


def _bare(error: Exception) -> Exception:
    """A copy of the error without the frames that it went through; the error itself where it cannot be copied."""
    try:
        made = copy(error)
    except Exception:  # its class has other arguments than it stores
        return error
    return made if type(made) is type(error) and str(made) == str(error) else error


def end_query(query: StreamingQuery) -> None:
    """Stop the query. If the signal that ends this job has also ended the JVM, the query has stopped already."""
    with suppress(*JVM_GONE):
        query.stop()


def run_to_end(
    query: StreamingQuery, job: JobContext, sink: BatchSink, monitor: Monitor, files: SourceFiles | None = None
) -> None:
    """Wait until the stream has ended or a signal stops it. Raises the error that made it fail."""
    while True:
        if files is not None:
            files.check()
        try:
            ended = query.awaitTermination(POLL_S)  # type: ignore[arg-type] # Spark takes fractions of a second, too
        except PySparkException:
            if isinstance(sink.failure, StopRequested):
                return
            if sink.failure is not None:
                raise sink.failure from None
            raise
        monitor.tick(query)
        if job.env.crash.point == Step.COMMIT_LOG:
            job.env.crash.reach_logged(Step.COMMIT_LOG, newest_batch(job.query_folder.files, "commits"))
        if ended:
            sink.end()
            return
        sink.idle()
        if job.env.stop.requested and sink.pause_between_batches():
            query.stop()
            return
