"""Several streams in one Spark application, each with its own session, thread, checkpoint and lease.

A failure of one table is one line of the log, and the other streams continue. With ``--continuous`` the table is tried
again after a minute, as a supervisor would restart a job of one table. Otherwise the command ends with exit code 1 when
the other streams are done.

The tables and their options come from common properties, one file per table and the command line, as
HoodieMultiTableStreamer reads them (Hudi 1.2): ``hoodie.streamer.ingestion.tablesToBeIngested`` names tables as
``db.table``. ``hoodie.streamer.ingestion.<db>.<table>.configFile`` names the file of one table; the default is
``<config folder>/<db>_<table>_config.properties``. The base path of a table is ``<base path prefix>/<db>/<table>``,
unless its file has ``hoodie.streamer.ingestion.targetBasePath``.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

from pyspark.sql import SparkSession

from tagstream.streaming.errors import StreamError
from tagstream.streaming.job.failure import exit_code, explain
from tagstream.streaming.job.first_records import with_schema_by_spark
from tagstream.streaming.job.job import open_table, stream
from tagstream.streaming.job.main import fail
from tagstream.streaming.job.main import main as one_table
from tagstream.streaming.job.preflight import SparkNeeds, check_start, check_stream
from tagstream.streaming.job.session import (
    end_session,
    little_java,
    needed_jars,
    session_conf,
    spark_needs,
    start_session,
    take_store_settings,
)
from tagstream.streaming.job.upsert_query import LogLines, Run
from tagstream.streaming.monitor.watch import Watch
from tagstream.streaming.options.checks import are_nested
from tagstream.streaming.options.cli import PROGRAM, command_line_entries, read_properties
from tagstream.streaming.options.options import Options, build_options
from tagstream.streaming.process import CrashPlan, StopFlag, clock_from_env
from tagstream.streaming.source.decode.schema_registry import USER_INFO_ENV
from tagstream.streaming.source.file_cleaner import CLEAN_KEY
from tagstream.streaming.source.kafka_topic import topic_offsets
from tagstream.table.config import FROM_FILE, FROM_FLAG, Entry
from tagstream.table.errors import ConfigError

CONFIG_FOLDER, PREFIX, CHECKPOINT = "--config-folder", "--base-path-prefix", "--checkpoint-dir"
INGESTION = "hoodie.streamer.ingestion."
TABLES, TARGET = f"{INGESTION}tablesToBeIngested", f"{INGESTION}targetBasePath"
_OLD = "hoodie.deltastreamer.ingestion."
_DEFAULT_DATABASE = "default"
_OF_ONE = {"hoodie.base.path": "--target-base-path", "hoodie.table.name": "--target-table"}


@dataclass(frozen=True)
class NamedTable:
    """One of the tables. ``name``: ``db.table``."""

    name: str
    options: Options


def names_several(argv: Sequence[str]) -> bool:
    """Whether a command line is for several tables."""
    return any(word.partition("=")[0] in (CONFIG_FOLDER, PREFIX) for word in argv)


def table_list(argv: Sequence[str], program: str) -> list[NamedTable]:
    """The tables in their order. ConfigError names the table, the file and the problem."""
    entries = command_line_entries(argv, program)
    ours = {e.key: e.value for e in entries if e.key in (CONFIG_FOLDER, PREFIX, CHECKPOINT)}
    missing = [flag for flag in (CONFIG_FOLDER, PREFIX, CHECKPOINT) if not ours.get(flag)]
    if missing:
        raise ConfigError(f"several tables in one job need {', '.join(missing)}; set {missing[0]}")
    for entry in entries:
        if entry.rank == FROM_FLAG and entry.key in _OF_ONE:
            raise ConfigError(f"{entry.origin} is for one table; set it in the table's own file, or leave it out")
    entries_by_key = {_new(e.key): e for e in entries if _new(e.key).startswith(INGESTION)}
    if TABLES not in entries_by_key:
        raise ConfigError(f"{TABLES} is missing; name the tables with it, as db.table, with commas between them")
    names = [name.strip() for name in entries_by_key[TABLES].value.split(",") if name.strip()]
    if len(set(names)) != len(names) or not names:
        raise ConfigError(
            f"{TABLES} = {entries_by_key[TABLES].value} ({entries_by_key[TABLES].origin}): name each table once"
        )
    common = [e for e in entries if not _new(e.key).startswith(INGESTION) and e.key not in ours]
    tables = [_table(name, common, entries_by_key, ours) for name in names]
    _check_ports(tables)
    _check_cleaned(tables)
    return tables


def _table(name: str, common: Sequence[Entry], entries_by_key: dict[str, Entry], ours: dict[str, str]) -> NamedTable:
    database, dot, table = name.partition(".")
    database, table = (database, table) if dot else (_DEFAULT_DATABASE, name)
    named = entries_by_key.get(f"{INGESTION}{database}.{table}.configFile")
    file = named.value if named is not None else f"{ours[CONFIG_FOLDER]}/{database}_{table}_config.properties"
    own = read_properties(Path(file.removeprefix("file://")), FROM_FILE)
    target = next((e.value for e in reversed(own) if _new(e.key) == TARGET), None)
    places = {
        "hoodie.base.path": target or f"{ours[PREFIX].rstrip('/')}/{database}/{table}",
        CHECKPOINT: f"{ours[CHECKPOINT].rstrip('/')}/{database}/{table}",
    }
    given = {e.key for e in own}
    defaults = {"hoodie.table.name": table, **({"hoodie.database.name": database} if dot else {})}
    entries = [
        *(e for e in common if e.key not in _OF_ONE),
        *(e for e in own if not _new(e.key).startswith(INGESTION)),
        *(Entry(key, value, TABLES, FROM_FILE) for key, value in defaults.items() if key not in given),
        *(Entry(key, value, CHECKPOINT if key == CHECKPOINT else PREFIX, FROM_FLAG) for key, value in places.items()),
    ]
    try:
        options = build_options(entries)
    except ConfigError as e:
        raise ConfigError(f"table {database}.{table} ({file}): {e}") from e
    for flag, asked in (("--bootstrap-only", options.run.bootstrap_only), ("--dry-run", options.run.dry_run)):
        if asked:
            raise ConfigError(f"{flag} is for one table; use it with --target-base-path and --checkpoint-dir")
    return NamedTable(f"{database}.{table}", options)


def _check_ports(tables: Sequence[NamedTable]) -> None:
    ports = [t.options.status.port for t in tables if t.options.status.port]
    if len(set(ports)) != len(ports):
        raise ConfigError("--status-port is the page of one table: set another port for each table, in its file, or 0")


def _check_cleaned(tables: Sequence[NamedTable]) -> None:
    """ConfigError where one table's cleaning would remove files that another table may not have read yet."""
    folders = [(table, table.options.files.root) for table in tables if table.options.files.root]
    for (cleaned, folder), (other, place) in permutations(folders, 2):
        if cleaned.options.files.clean != "off" and are_nested(folder, place):
            raise ConfigError(
                f"tables {cleaned.name} and {other.name} read the same files, and {CLEAN_KEY}="
                f"{cleaned.options.files.clean} would remove them before both have read them; set it to off for "
                f"{cleaned.name}"
            )


def _new(key: str) -> str:
    return INGESTION + key[len(_OLD) :] if key.startswith(_OLD) else key


LOG = logging.getLogger("tagstream")
RETRY_S = 60.0
_POLL_S = 0.2
_FORMAT = "%(asctime)s %(levelname)s %(name)s [%(threadName)s]: %(message)s"
# Settings to copy to a further session of the context: under spark-submit the context does not have them.
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
    """Stream all tables until their sources are read (or a signal, with ``--continuous``). TablesFailedError names
    those that failed.
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
    """Run all streams. Returns why tables failed, by name."""
    runs = {table.name: _begun(spark, table, env, clock_ms) for table in tables}
    failures: dict[str, str] = {}
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
                failures.pop(table.name, None)
            elif table.name not in again:
                failures[table.name] = explain(run.failure, table.options).line
                if table.options.run.continuous and not stop.requested:
                    again[table.name] = clock_ms() + int(RETRY_S * 1000)
                    LOG.warning("table %s is tried again in %.0f s; the others continue", table.name, RETRY_S)
            elif clock_ms() >= again[table.name] and not stop.requested:
                del again[table.name]
                runs[table.name] = _begun(spark, table, env, clock_ms)
        if all(run.ended for run in runs.values()) and (stop.requested or not again):
            return failures


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
        ready = check_start(options, env, clock_ms(), SparkNeeds(java=False, connector=False, master=None))
        for warning in ready.warnings:
            LOG.warning(warning)
        check_stream(ready.table, options.index)
        if options.kafka.topic is not None and options.source.kind == "kafka":
            topic_offsets(own, options.kafka.topic, options.kafka.consumer)
        made = open_table(options, clock_ms())
        watch.table_opened(made)
        crash = CrashPlan.from_env(env, os.getpgrp())
        stream(own, options, made, lines, run.stop, crash, clock_ms, watch)


def own_session(spark: SparkSession) -> SparkSession:
    """A new session of the same application with separate settings, which start as those of the first session."""
    own = spark.newSession()
    for name in _COPIED:
        value = spark.conf.get(name, None)
        if value is not None:
            own.conf.set(name, value)
    return own


def main(argv: Sequence[str], program: str = PROGRAM) -> int:
    """Run the job that the command line describes. Exit codes: 0 done, 1 failed, 2 wrong use, 3 failed and will fail
    again.
    """
    if not names_several(argv) or {"--help", "-h"} & set(argv):
        return one_table(argv, program)
    try:
        tables = table_list(argv, program)
        for table in tables:
            take_store_settings(table.options, os.environ)
        run_tables(tables, os.environ, clock_from_env(os.environ))
    except Exception as e:
        if os.environ.get("TAGSTREAM_TRACE") and not isinstance(e, ConfigError):
            raise
        return fail(str(e) or type(e).__name__, exit_code(e))
    return 0
