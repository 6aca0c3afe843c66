"""``tagstream.upsert``: a streaming DataFrame into a Hudi table, exactly once."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tagstream.spark_release import arrow_schema
from tagstream.streaming.clock import clock_from_env
from tagstream.streaming.crash import CrashPlan
from tagstream.streaming.frame.plan_check import check_plan
from tagstream.streaming.frame.running import LogLines, Run, show_lines
from tagstream.streaming.job.job import open_table, stream
from tagstream.streaming.options.keys.registry import REGISTRY
from tagstream.streaming.options.options import Options, build_options
from tagstream.streaming.source.decode.plain_json import DELETED
from tagstream.streaming.source.decode.typed.typed_schema import rows_avro
from tagstream.streaming.source.packed import ROWS_PER_BATCH
from tagstream.streaming.source.transform.stateless import puts_together
from tagstream.streaming.source.typed_records import Frame
from tagstream.streaming.start.preflight import SparkNeeds, check_stream, look
from tagstream.streaming.start.worker_copy import check_workers
from tagstream.streaming.start.workers import PROJECT, prefer_this_copy
from tagstream.streaming.watch.watch import Watch
from tagstream.table.config import FROM_CONF, FROM_FLAG, Entry
from tagstream.table.errors import ConfigError
from tagstream.table.store_settings import VARIABLE as STORE_SETTINGS
from tagstream.table.store_settings import keep_settings, store_settings

LOG = logging.getLogger("tagstream")
_DELETE_FIELD = "tagstream.delete.field"
_SET_BY_ARGUMENT = {
    "hoodie.base.path": "path",
    "--target-base-path": "path",
    "--checkpoint-dir": "checkpoint",
    "--continuous": "trigger",
    "--min-sync-interval-seconds": "trigger",
}


def upsert(
    df: DataFrame,
    path: str,
    checkpoint: str,
    options: Mapping[str, Any] | None = None,
    trigger: Mapping[str, Any] | None = None,
) -> StreamingQuery:
    """Start a query that upserts the rows of a streaming DataFrame into the Hudi table at ``path``.

    ``checkpoint``: the query's own folder. ``options``: the job's keys (docs/configuration.md), those of the source left
    out. ``trigger``: as the arguments of Spark's ``DataStreamWriter.trigger``, ``{"processingTime": "10 seconds"}`` or
    ``{"availableNow": True}``; by default a batch begins when the one before it has ended.

    The DataFrame's columns are the table's, but for the one that marks deletes (``tagstream.delete.field``). Raises
    ConfigError for what is wrong with the arguments, and what else keeps a run from its first batch; nothing runs then.
    """
    show_lines()
    spark = _classic_session(df)
    given = _trigger(trigger)
    entries = _entries(path, checkpoint, options or {})
    mark = next((entry.value for entry in reversed(entries) if entry.key == _DELETE_FIELD), DELETED)
    told = build_options(entries, frame_schema=rows_avro(arrow_schema(df.schema), mark, "the DataFrame"))
    check_plan(df, told.index.type)
    _take_stores(spark)
    clock_ms = clock_from_env(os.environ)
    needs = SparkNeeds(java=False, connector=False, master=None)
    LOG.info("upsert into %s: looking at the table, and at Spark's workers", path)
    check_stream(look(told, os.environ, clock_ms(), needs).table, told.index.type)
    check_workers(spark)
    run = Run(lambda run: _stream(run, spark, df, told, given), f"upsert into {path}")
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


def _classic_session(df: DataFrame) -> SparkSession:
    """The DataFrame's session; ConfigError for what is no streaming DataFrame of a session in this process."""
    module = type(df).__module__
    if module.startswith("pyspark.sql.connect"):
        raise ConfigError(
            "the DataFrame is one of Spark Connect: the batches are committed by this process, beside Spark's driver, which "
            "a client of Spark Connect does not reach. Make it with a session of this process (SparkSession.builder with "
            "master, or spark-submit)"
        )
    if not isinstance(df, DataFrame):
        raise ConfigError(f"df is a {type(df).__name__}; give a streaming DataFrame of PySpark")
    if not df.isStreaming:
        raise ConfigError(
            "the DataFrame is not a streaming one, and this program writes streams: read its source with spark.readStream, "
            'and give trigger={"availableNow": True} to take what there is and end'
        )
    return df.sparkSession


def _trigger(given: Mapping[str, Any] | None) -> dict[str, Any]:
    told = dict(given or {"processingTime": "0 seconds"})
    if len(told) != 1 or next(iter(told)) not in ("processingTime", "availableNow"):
        raise ConfigError(
            f'trigger {told}: give {{"processingTime": "10 seconds"}} or {{"availableNow": True}}; the others run no '
            "batches that can be committed"
        )
    return told


def _entries(path: str, checkpoint: str, options: Mapping[str, Any]) -> list[Entry]:
    entries, flags = [], {flag: key.name for key in REGISTRY.keys for flag in key.flags}
    for name, value in options.items():
        if name in _SET_BY_ARGUMENT:
            raise ConfigError(f"options: {name} is the argument {_SET_BY_ARGUMENT[name]} of upsert; give it there")
        text = str(value).lower() if isinstance(value, bool) else str(value)
        origin = name if name.startswith("--") else "options"
        entries.append(Entry(flags.get(name, name), text, origin, FROM_FLAG if origin == name else FROM_CONF))
    arguments = (("hoodie.base.path", str(path), "path"), ("--checkpoint-dir", str(checkpoint), "--checkpoint-dir"))
    return [*entries, *(Entry(name, value, origin, FROM_FLAG) for name, value, origin in arguments)]


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
