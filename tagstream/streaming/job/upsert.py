"""``tagstream.upsert``: write a streaming DataFrame to a Hudi table, exactly once.

The arguments are checked before anything is made: a session, a trigger, entries of options, and the plan of the
DataFrame. Spark itself checks the plan only when a query starts, and the table and the checkpoint exist by then. So
Spark's check is called here first, with the plan of the DataFrame and the state index after it.
"""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from tagstream.index.registry import INDEX_TYPES, STATE
from tagstream.streaming.job.job import open_table, stream
from tagstream.streaming.job.preflight import SparkNeeds, check_start, check_stream
from tagstream.streaming.job.upsert_query import LogLines, Run, show_lines
from tagstream.streaming.job.workers import check_workers, take_stores
from tagstream.streaming.monitor.watch import Watch
from tagstream.streaming.options.options import Options, build_options
from tagstream.streaming.options.registry import REGISTRY
from tagstream.streaming.process import CrashPlan, clock_from_env
from tagstream.streaming.source.dataframe import Frame, columns_of, stateful_operator
from tagstream.streaming.source.decode.plain_json import DELETED
from tagstream.streaming.source.decode.typed_rows import rows_avro
from tagstream.streaming.source.packed import ROWS_PER_BATCH
from tagstream.table.config import FROM_CONF, FROM_FLAG, Entry
from tagstream.table.errors import ConfigError

Columns = str | Sequence[str]
Trigger = str | Mapping[str, Any]

_COLUMNS = {
    "key": "hoodie.datasource.write.recordkey.field",
    "partition_by": "hoodie.datasource.write.partitionpath.field",
    "order_by": "hoodie.table.ordering.fields",
}
_PLACES = {"hoodie.base.path": "path", "--checkpoint-dir": "checkpoint"}
_SET_BY_ARGUMENT = {**_PLACES, "--continuous": "trigger", "--min-sync-interval-seconds": "trigger"}
_FLAGS = {flag: key.name for key in REGISTRY.keys for flag in key.flags}
# Other common names of the columns, and the argument for each.
_MEANT = {
    **dict.fromkeys(("key", "keys", "recordkey", "record-key"), "key"),
    **dict.fromkeys(("partition", "partitionby", "partition-by"), "partition_by"),
    **dict.fromkeys(("precombine", "order", "order-by", "ordering"), "order_by"),
}
_AVAILABLE_NOW = "availableNow"
_PROCESSING_TIME = "processingTime"
_AS_FAST = {_PROCESSING_TIME: "0 seconds"}


def classic_session(df: object) -> SparkSession:
    """The DataFrame's session. ConfigError unless it is a streaming DataFrame of a session in this process."""
    module = type(df).__module__
    if module.startswith("pyspark.sql.connect"):
        raise ConfigError(
            "the DataFrame belongs to Spark Connect: this process commits the batches and must run Spark's driver, which a "
            "client of Spark Connect does not. Make the DataFrame with a session of this process (SparkSession.builder with "
            "master, or spark-submit)"
        )
    if not isinstance(df, DataFrame):
        kind = f"{module.partition('.')[0]}.{type(df).__name__}" if "." in module else type(df).__name__
        hint = "; spark.createDataFrame makes a DataFrame of rows that is not a stream: write files first, and stream these"
        raise ConfigError(
            f"df is a {kind}; pass a streaming DataFrame of PySpark (spark.readStream)"
            f"{hint if module.startswith(('pandas', 'polars', 'pyarrow')) else ''}"
        )
    if not df.isStreaming:
        raise ConfigError(
            "the DataFrame is not a streaming one, and this program writes streams: read its source with spark.readStream, "
            'and set trigger="availableNow" to read all existing records and end. A function for foreachBatch gets such a '
            "DataFrame: pass the stream itself to upsert, which replaces writeStream.foreachBatch(...).start()"
        )
    return df.sparkSession


def trigger_of(given: Trigger | None) -> dict[str, Any]:
    """Spark's arguments for ``DataStreamWriter.trigger``. ConfigError for a trigger that does not run micro-batches."""
    if given is None:
        return dict(_AS_FAST)
    told = {given: True} if given == _AVAILABLE_NOW else {_PROCESSING_TIME: given} if isinstance(given, str) else given
    if not isinstance(told, Mapping) or len(told) != 1 or next(iter(told)) not in (_PROCESSING_TIME, _AVAILABLE_NOW):
        raise ConfigError(
            f'trigger {given!r}: use "10 seconds" or "{_AVAILABLE_NOW}", or as Spark\'s arguments '
            f'{{"{_PROCESSING_TIME}": "10 seconds"}} or {{"{_AVAILABLE_NOW}": True}}; other triggers do not run batches '
            "that can be committed"
        )
    ((name, value),) = told.items()
    if name == _AVAILABLE_NOW and value is not True:
        raise ConfigError(f"trigger {given!r}: set {_AVAILABLE_NOW} to True or leave it out")
    if name == _PROCESSING_TIME and not _is_interval(value):
        raise ConfigError(f'trigger {given!r}: {value!r} is not an interval of Spark; use for example "10 seconds"')
    return {name: value}


def entries_of(
    path: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    columns: Mapping[str, Columns | None],
    options: Mapping[str, Any] | None,
) -> list[Entry]:
    """The options as entries for the job. ``columns``: the values of ``key``, ``partition_by`` and ``order_by``, or
    None. ConfigError for a wrong argument.
    """
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError(
            f"options is a {type(options).__name__}; pass a dict of keys and values (docs/reference/configuration.md)"
        )
    entries = [_entry(name, value) for name, value in (options or {}).items()]
    for argument, names in columns.items():
        if names is not None:
            twice = next((entry for entry in entries if _known(entry.key) == _COLUMNS[argument]), None)
            if twice is not None:
                raise ConfigError(
                    f"the columns {argument} are set twice, as the argument and in options ({twice.key}); remove one"
                )
            entries.append(Entry(_COLUMNS[argument], _names(argument, names), f"argument {argument}", FROM_FLAG))
    for (key, argument), place in zip(_PLACES.items(), (path, checkpoint), strict=True):
        if not isinstance(place, str | os.PathLike) or not os.fspath(place):
            raise ConfigError(f"{argument} is {place!r}; pass a folder as text or a Path")
        # A key that is only a flag needs the flag as its origin.
        origin = key if key.startswith("--") else f"argument {argument}"
        entries.append(Entry(key, os.fspath(place), origin, FROM_FLAG))
    return entries


def default_name(path: str | os.PathLike[str]) -> str:
    """The default name of a new table: that of its folder."""
    return os.fspath(path).rstrip("/").rpartition("/")[2]


def _entry(name: object, value: object) -> Entry:
    """One option. A flag of the command line becomes the key that it sets."""
    if not isinstance(name, str):
        raise ConfigError(f"options: {name!r} is a {type(name).__name__}; keys are text")
    if name in _SET_BY_ARGUMENT:
        raise ConfigError(f"options: {name} is the argument {_SET_BY_ARGUMENT[name]} of upsert; pass it there")
    if value is None:
        raise ConfigError(f"options: {name} is None; leave the key out, or set a value")
    if isinstance(value, list | tuple):
        text = ",".join(map(str, value))
    else:
        text = str(value).lower() if isinstance(value, bool) else str(value)
    if name.startswith("--"):
        return Entry(_FLAGS.get(name, name), text, name, FROM_FLAG)
    if "." not in name:  # a key of Hudi or Spark has a dot, so this may be meant as a flag or an argument
        raise ConfigError(f"options: {name} is not a key{_hint(name)}")
    return Entry(name, text, "options", FROM_CONF)


def _hint(name: str) -> str:
    plain = name.replace("_", "-").lower()
    if f"--{plain}" in _FLAGS:
        return f"; did you mean --{plain} ({_FLAGS[f'--{plain}']})?"
    if plain in _MEANT:
        return f"; did you mean the argument {_MEANT[plain]} of upsert?"
    near = difflib.get_close_matches(f"--{plain}", sorted(_FLAGS), n=1, cutoff=0.7)
    return f"; did you mean {near[0]} ({_FLAGS[near[0]]})?" if near else "; docs/reference/configuration.md lists them"


def _known(name: str) -> str:
    key = REGISTRY.find(name)
    return key.name if key is not None else name


def _names(argument: str, given: object) -> str:
    """Column names as the key's value: joined by commas."""
    names = [given] if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ConfigError(
            f'{argument} is {given!r}; pass a column\'s name as text, or a list of names: {argument}=["a", "b"]'
        )
    if argument == "key" and not any(name.strip() for name in names):
        raise ConfigError("key is empty; name the columns that identify a row")
    return ",".join(names)


def _is_interval(value: object) -> bool:
    """Whether the value is one or more pairs of number and unit, as Spark accepts for a trigger."""
    words = value.split() if isinstance(value, str) else []
    units = ("millisecond", "second", "minute", "hour", "day", "week", "microsecond")
    pairs = list(zip(words[::2], words[1::2], strict=False))
    return (
        bool(words)
        and len(words) % 2 == 0
        and all(_is_number(n) and unit.lower().removesuffix("s") in units for n, unit in pairs)
    )


def _is_number(text: str) -> bool:
    try:
        return float(text) >= 0
    except ValueError:
        return False


_OFF = "spark.sql.streaming.unsupportedOperationCheck"


def check_plan(rows: DataFrame, *, state_index: bool) -> None:
    """ConfigError with Spark's reason for a streaming DataFrame that a query cannot write. ``state_index``: the query has
    it.
    """
    if rows.sparkSession.conf.get(_OFF, "true") == "false":  # Spark does not check it then either
        return
    why = _refusal(rows)
    if why is not None:
        raise ConfigError(
            f"the DataFrame can't be written to a table: {why}. The query uses append mode, for which an aggregation needs "
            "a watermark (withWatermark)"
        )
    why = _refusal(_with_state(rows)) if state_index else None
    if why is not None:
        raise ConfigError(
            f"the DataFrame can't be written with the index in the state of the stream (hoodie.index.type={STATE}), which "
            f"adds a stateful operator after it: {why}. Set an index that reads the table: "
            f"hoodie.index.type={', '.join(sorted(INDEX_TYPES))} (docs/guide/indexes.md)"
        )


def _refusal(rows: DataFrame) -> str | None:
    """Why Spark refuses the plan, as its own check of a query says; None where it accepts the plan."""
    jvm: Any = rows.sparkSession._jvm  # noqa: SLF001 (PySpark checks a plan only when its query starts)
    check = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming
    try:
        check(
            rows._jdf.queryExecution().analyzed(),  # noqa: SLF001
            jvm.org.apache.spark.sql.streaming.OutputMode.Append(),
        )
    except (AnalysisException, Py4JJavaError) as e:
        return str(e).splitlines()[0].rstrip(";. ")
    return None


def _with_state(rows: DataFrame) -> DataFrame:
    """The DataFrame with the operators that the job's plan adds after it."""
    grouped = rows.mapInArrow(_no_keys, "kg int").groupBy("kg")
    return grouped.applyInPandasWithState(_no_rows, "kg int", "pointer binary", "append", GroupStateTimeout.NoTimeout)


def _no_keys(_: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from ()


def _no_rows(_key: Any, _rows: Iterable[pd.DataFrame], _state: GroupState) -> Iterator[pd.DataFrame]:
    yield from ()


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

    ``checkpoint``: a folder for this query only. ``key``: the columns that identify a row. ``partition_by``: the
    columns of the partition path, None for a table without partitions. ``order_by``: the columns that say which of two
    rows of a key is newer. Each is a name or a list of names; an existing table already has them. ``options``: the
    job's keys (docs/reference/configuration.md), except those of the source. ``trigger``: ``"10 seconds"`` or
    ``"availableNow"``, or the arguments of Spark's ``DataStreamWriter.trigger``. By default each batch starts when the
    one before it has ended.

    The DataFrame's columns become the table's, except the one that marks deletes (``tagstream.delete.field``). A new
    table gets the name of its folder, unless ``hoodie.table.name`` is set. Returns the query. Raises ConfigError for
    wrong arguments, and the errors that prevent a first batch. Then nothing runs.

    >>> query = upsert(  # doctest: +SKIP
    ...     readings, "out/readings", "out/checkpoint", key="device", partition_by="room", order_by="seen"
    ... )
    >>> query.awaitTermination()  # doctest: +SKIP
    """
    show_lines()
    spark = classic_session(df)
    given = trigger_of(trigger)
    take_stores(spark)
    columns = {"key": key, "partition_by": partition_by, "order_by": order_by}
    entries = entries_of(path, checkpoint, columns, options)
    mark = next((entry.value for entry in reversed(entries) if entry.key == _DELETE_FIELD), DELETED)
    told = build_options(entries, frame_schema=rows_avro(columns_of(df.schema, "the DataFrame"), mark, "the DataFrame"))
    told = replace(told, table=replace(told.table, name=told.table.name or default_name(path)))
    check_plan(df, state_index=told.state_index)
    clock_ms = clock_from_env(os.environ)
    needs = SparkNeeds(java=False, connector=False, master=None)
    LOG.info("upsert into %s: checking the table and Spark's workers", path)
    ready = check_start(told, os.environ, clock_ms(), needs)
    for warning in ready.warnings:
        LOG.warning(warning)
    check_stream(ready.table, told.index)
    check_workers(spark)
    run = Run(lambda run: _stream(run, spark, df, told, given), f"upsert into {os.fspath(path)}")
    return run.start()


def _stream(run: Run, spark: SparkSession, df: DataFrame, options: Options, trigger: Mapping[str, Any]) -> None:
    clock_ms = clock_from_env(os.environ)
    crash = CrashPlan.from_env(os.environ, os.getpgrp())
    own = spark.newSession()  # the state needs settings that must not affect the user's other queries
    own.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(ROWS_PER_BATCH))
    lines = LogLines()
    with Watch(options, clock_ms, lines.step) as watch:
        watch.step("opening the table")
        table = open_table(options, clock_ms())
        watch.table_opened(table)
        frame = Frame(df, trigger, run.started, stateful_operator(df) is not None)
        stream(own, options, table, lines, run.stop, crash, clock_ms, watch, frame)
    LOG.info("upsert into %s has ended: %s batches in this run", options.table.base_path, f"{lines.batches:,}")
