"""``tagstream.upsert``: a streaming DataFrame into a Hudi table, exactly once."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tagstream.spark_release import arrow_schema
from tagstream.streaming.clock import clock_from_env
from tagstream.streaming.crash import CrashPlan
from tagstream.streaming.frame.arguments import Columns, Trigger, classic_session, default_name, entries_of, trigger_of
from tagstream.streaming.frame.plan_check import check_plan
from tagstream.streaming.frame.running import LogLines, Run, show_lines
from tagstream.streaming.job.job import open_table, stream
from tagstream.streaming.options.options import Options, build_options
from tagstream.streaming.source.decode.plain_json import DELETED
from tagstream.streaming.source.decode.typed.typed_schema import rows_avro
from tagstream.streaming.source.packed import ROWS_PER_BATCH
from tagstream.streaming.source.transform.stateless import puts_together
from tagstream.streaming.source.typed_records import Frame
from tagstream.streaming.start.preflight import SparkNeeds, check_stream, look
from tagstream.streaming.start.worker_copy import check_workers
from tagstream.streaming.start.workers import PROJECT, on_one_host, prefer_this_copy
from tagstream.streaming.watch.watch import Watch
from tagstream.table.store_settings import VARIABLE as STORE_SETTINGS
from tagstream.table.store_settings import keep_settings, store_settings

LOG = logging.getLogger("tagstream")
_DELETE_FIELD = "tagstream.delete.field"


def upsert(
    df: DataFrame,
    path: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    *,
    key: Columns | None = None,
    partition_by: Columns | None = None,
    order_by: Columns | None = None,
    options: Mapping[str, Any] | None = None,
    trigger: Trigger | None = None,
) -> StreamingQuery:
    """Start a query that upserts the rows of a streaming DataFrame into the Hudi table at ``path``.

    ``checkpoint``: the query's own folder. ``key``: the columns that tell one row from another; ``partition_by``: those of
    the partition path, none for a table without partitions; ``order_by``: those that say which of two rows of a key is
    newer. Each is a name or a list of names; an existing table has them already. ``options``: the job's keys
    (docs/configuration.md), those of the source left out. ``trigger``: ``"10 seconds"`` or ``"availableNow"``, or as the
    arguments of Spark's ``DataStreamWriter.trigger``; by default a batch begins when the one before it has ended.

    The DataFrame's columns are the table's, but for the one that marks deletes (``tagstream.delete.field``). A table that is
    made is called as its folder, unless ``hoodie.table.name`` says otherwise. Raises ConfigError for what is wrong with the
    arguments, and what else keeps a run from its first batch; nothing runs then.

    >>> query = upsert(  # doctest: +SKIP
    ...     readings, "out/readings", "out/checkpoint", key="device", partition_by="room", order_by="seen"
    ... )
    >>> query.awaitTermination()  # doctest: +SKIP
    """
    show_lines()
    spark = classic_session(df)
    given = trigger_of(trigger)
    _take_stores(spark)
    columns = {"key": key, "partition_by": partition_by, "order_by": order_by}
    entries = entries_of(path, checkpoint, columns, options)
    mark = next((entry.value for entry in reversed(entries) if entry.key == _DELETE_FIELD), DELETED)
    told = build_options(entries, frame_schema=rows_avro(arrow_schema(df.schema), mark, "the DataFrame"))
    told = replace(told, target_table=told.target_table or default_name(path))
    check_plan(df, told.index.type)
    clock_ms = clock_from_env(os.environ)
    needs = SparkNeeds(java=False, connector=False, master=None)
    LOG.info("upsert into %s: looking at the table, and at Spark's workers", path)
    check_stream(look(told, os.environ, clock_ms(), needs).table, told.index.type)
    check_workers(spark)
    run = Run(lambda run: _stream(run, spark, df, told, given), f"upsert into {os.fspath(path)}")
    return run.start()


def _stream(run: Run, spark: SparkSession, df: DataFrame, options: Options, trigger: Mapping[str, Any]) -> None:
    clock_ms = clock_from_env(os.environ)
    crash = CrashPlan.from_env(os.environ, os.getpgrp())
    own = spark.newSession()  # the settings that the state needs are not for the user's other work
    own.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS_PER_BATCH))
    lines = LogLines()
    with Watch(options, clock_ms, lines.step) as watch:
        watch.step("opening the table")
        table = open_table(options, clock_ms())
        watch.table_opened(table)
        frame = Frame(df, trigger, run.started, puts_together(df) is not None)
        stream(own, options, table, lines, run.stop, crash, clock_ms, watch, frame)
    LOG.info("upsert into %s has ended: %s batches in this run", options.target_base_path, f"{lines.batches:,}")


def _take_stores(spark: SparkSession) -> None:
    """What the session says of file systems is so for the table, too; workers find this package and those settings."""
    context = spark.sparkContext
    keep_settings(store_settings(dict(context.getConf().getAll())), os.environ)
    if STORE_SETTINGS in os.environ:
        context.environment[STORE_SETTINGS] = os.environ[STORE_SETTINGS]
    paths = [p for p in context.environment.get("PYTHONPATH", "").split(os.pathsep) if p]
    if str(PROJECT) not in paths:
        context.environment["PYTHONPATH"] = os.pathsep.join([str(PROJECT), *paths])
    prefer_this_copy(context.environment, context.master)
    if on_one_host(context.master) and not os.environ.get("PYSPARK_PYTHON"):
        context.pythonExec = sys.executable  # Spark takes python3 of the PATH, which is another one in a venv
