"""``tagstream.read_changes``: the changes of a Hudi table as a streaming DataFrame, for a user's own stream.

A transformation of a job sees each record separately. A program that combines records (a sum per group) needs the row
before each change as well as the row after it, and a stateful operator of Spark. Its DataFrame goes to
``tagstream.upsert``. The changes are planned as those of a job with HoodieIncrSource (``incr_planner``), so a batch that
Spark runs again reads the same changes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tagstream.streaming.errors import SourceError
from tagstream.streaming.job.workers import take_stores
from tagstream.streaming.source.decode.typed_rows import as_spark_has_it, spark_schema
from tagstream.streaming.source.file_plans import PlanLog
from tagstream.streaming.source.incr_planner import IncrPlanner, IncrPlanOptions
from tagstream.streaming.source.incr_reader import planned_changes
from tagstream.streaming.source.source import plan_lines
from tagstream.table.chunks import flat
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.change_stream import change_reader
from tagstream.table.storage.opening import canonical, open_storage
from tagstream.table.storage.storage import Storage

_ROWS = 1 << 16


def read_changes(
    spark: SparkSession,
    path: str | os.PathLike[str],
    plans: str | os.PathLike[str],
    *,
    latest: bool = False,
    max_commits: int = 5,
    max_bytes: int = 512 << 20,
) -> DataFrame:
    """A streaming DataFrame of the changes of the Hudi table at ``path``: its rows first, as inserts, then its commits.

    The columns are ``op`` (``i``, ``u``, ``d``), ``ts_ms`` (the instant of the write), ``before`` and ``after`` (structs of
    the columns that the table has now, or null). ``plans``: a folder only for this stream, which has its position;
    not the checkpoint of the query. ``latest``: a new stream begins with the newest commit. ``max_commits``, ``max_bytes``:
    limits of a batch, which has at least one whole commit.

    Each call plans the commits that are completed now. A query of it ends with ``trigger="availableNow"``; the next call
    and query take the commits since. Raises ConfigError for wrong arguments, and SourceError when the table does not
    exist, has no commit, or has lost the commits that are needed.

    >>> changes = read_changes(spark, "out/orders", "out/totals-plans")  # doctest: +SKIP
    >>> signed = changes.selectExpr("inline(array(struct(after.day, 1 n), struct(before.day, -1 n)))")  # doctest: +SKIP
    """
    if max_commits < 1 or max_bytes < 1:
        raise ConfigError(f"max_commits is {max_commits} and max_bytes is {max_bytes}; both must be at least 1")
    take_stores(spark)
    source, folder = open_storage(canonical(os.fspath(path))), open_storage(canonical(os.fspath(plans)))
    log = PlanLog(folder)
    limits = IncrPlanOptions(max_bytes, spark.sparkContext.defaultParallelism, max_commits, latest)
    planner = IncrPlanner(source, folder, log, limits)
    planner.look()
    planner.report_waiting()
    table = HoodieTable.open(source)
    if table.timeline().newest_completed is None:
        raise SourceError(
            f"source table {source.root} has no commit yet, so its columns are not known: start when it has one"
        )
    columns = spark_schema(change_reader(table, table.timeline()).change_schema)
    wanted: StructType = from_arrow_schema(columns)
    # A session of its own: plans are split for the tasks by a setting that must not affect the user's queries.
    lines = plan_lines(spark.newSession(), log.folder)
    return lines.mapInArrow(_make_changes(source, columns), wanted)


def _make_changes(
    source: Storage, columns: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the ``mapInArrow`` function that reads the changes of plans, with these columns."""

    def changes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tasks = (task for batch in batches for task in batch.column("value").to_pylist())
        for _, parts in planned_changes(source, tasks):
            for rows, _ in parts:
                found = [_with_columns(flat(rows.column(field.name)), field.type) for field in columns]
                yield from pa.Table.from_arrays(found, schema=columns).to_batches(_ROWS)

    return changes


def _with_columns(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """A column in Spark's types. An image gets the columns that the DataFrame has: the table's may have changed since."""
    if not pa.types.is_struct(wanted):
        return values
    named = {field.name: i for i, field in enumerate(values.type)}
    columns = [
        as_spark_has_it(values.field(named[field.name])).cast(field.type)
        if field.name in named
        else pa.nulls(len(values), field.type)
        for field in wanted
    ]
    return pa.StructArray.from_arrays(columns, fields=list(wanted), mask=values.is_null())
