"""Several streams in one Spark application, each in a session and a thread of its own, with its own checkpoint and lease.

One table's failure is one line of the log: the others go on. With ``--continuous`` it is tried again after a minute, as a
supervisor would start a job of one table again; else the command ends with exit code 1 when the others are done.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from tagstream.streaming.crash import CrashPlan
from tagstream.streaming.errors import StreamError
from tagstream.streaming.frame.running import LogLines, Run
from tagstream.streaming.job.failure import explain
from tagstream.streaming.job.job import open_table, stream
from tagstream.streaming.job.session import (
    end_session,
    little_java,
    needed_jars,
    session_conf,
    spark_needs,
    start_session,
)
from tagstream.streaming.shutdown import StopFlag
from tagstream.streaming.source.decode.formats.registry import USER_INFO_ENV
from tagstream.streaming.source.topic import topic_offsets
from tagstream.streaming.start.first_records import with_schema_by_spark
from tagstream.streaming.start.preflight import SparkNeeds, check_stream, look
from tagstream.streaming.tables.table_list import NamedTable
from tagstream.streaming.watch.watch import Watch

LOG = logging.getLogger("tagstream")
RETRY_S = 60.0
_POLL_S = 0.2
_FORMAT = "%(asctime)s %(levelname)s %(name)s [%(threadName)s]: %(message)s"
# Settings of a session that is not the first of its context: under spark-submit the context does not have them.
_COPIED = (
    "spark.sql.session.timeZone",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.streaming.stopTimeout",
    "spark.sql.streaming.checkpointFileManagerClass",
    "spark.sql.files.openCostInBytes",
)


class TablesFailedError(StreamError):
    """Some of the tables have failed."""


def run_tables(tables: Sequence[NamedTable], env: MutableMapping[str, str], clock_ms: Callable[[], int]) -> None:
    """Stream all tables until their sources are taken (or a signal, with ``--continuous``); TablesFailedError names those
    that failed.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(_FORMAT))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    stop = StopFlag()
    stop.install()
    needs = _needs_of_all(tables, env)
    first = tables[0].options
    user_info = next(
        (t.options.records.registry_user_info for t in tables if t.options.records.registry_user_info), None
    )
    if user_info:
        env[USER_INFO_ENV] = user_info
    spark = start_session(
        "tagstream tables",
        jars=needed_jars(needs, env),
        conf=session_conf(first, env),
        env=env,
        little_java=all(little_java(table.options) for table in tables),
    )
    try:
        failed = _run_all(spark, tables, stop, env, clock_ms)
    finally:
        end_session(spark)
        LOG.removeHandler(handler)
    if failed:
        raise TablesFailedError(
            f"{len(failed)} of {len(tables)} tables have failed: "
            + "; ".join(f"{name}: {why}" for name, why in failed.items())
        )


def _needs_of_all(tables: Sequence[NamedTable], env: MutableMapping[str, str]) -> SparkNeeds:
    needs = [spark_needs(table.options, env) for table in tables]
    return replace(needs[0], connector=any(n.connector for n in needs), s3a=any(n.s3a for n in needs))


def _run_all(
    spark: SparkSession,
    tables: Sequence[NamedTable],
    stop: StopFlag,
    env: MutableMapping[str, str],
    clock_ms: Callable[[], int],
) -> dict[str, str]:
    """Why tables failed, by name."""
    runs = {table.name: _begun(spark, table, env, clock_ms) for table in tables}
    told: dict[str, str] = {}
    again: dict[str, int] = {}
    while True:
        if stop.wait(_POLL_S):
            for run in runs.values():
                run.stop.request(stop.signal_name)
        for table in tables:
            run = runs[table.name]
            if not run.ended:
                continue
            if run.failure is None:
                told.pop(table.name, None)
            elif table.name not in again:
                told[table.name] = explain(run.failure, table.options).line
                if table.options.continuous and not stop.requested:
                    again[table.name] = clock_ms() + int(RETRY_S * 1000)
                    LOG.warning("table %s is tried again in %.0f s; the others go on", table.name, RETRY_S)
            elif clock_ms() >= again[table.name] and not stop.requested:
                del again[table.name]
                runs[table.name] = _begun(spark, table, env, clock_ms)
        if all(run.ended for run in runs.values()) and (stop.requested or not again):
            return told


def _begun(spark: SparkSession, table: NamedTable, env: MutableMapping[str, str], clock_ms: Callable[[], int]) -> Run:
    run = Run(lambda run: _stream(run, spark, table, env, clock_ms), table.name)
    run.begin()
    return run


def _stream(
    run: Run,
    spark: SparkSession,
    table: NamedTable,
    env: MutableMapping[str, str],
    clock_ms: Callable[[], int],
) -> None:
    own, options = own_session(spark), table.options
    lines = LogLines()
    with Watch(options, clock_ms, lines.step) as watch:
        for warning in options.warnings:
            LOG.warning(warning)
        options = with_schema_by_spark(options, own)
        ready = look(options, env, clock_ms(), SparkNeeds(java=False, connector=False, master=None))
        check_stream(ready.table, options.index.type)
        if options.kafka_topic is not None and options.source_class == "kafka":
            topic_offsets(own, options.kafka_topic, options.kafka_options)
        made = open_table(options, clock_ms())
        watch.table_opened(made)
        crash = CrashPlan.from_env(env, os.getpgrp())
        stream(own, options, made, lines, run.stop, crash, clock_ms, watch)


def own_session(spark: SparkSession) -> SparkSession:
    """A session of the same application with settings of its own, which begin as those of the first."""
    own = spark.newSession()
    for name in _COPIED:
        value = spark.conf.get(name, None)
        if value is not None:
            own.conf.set(name, value)
    return own
