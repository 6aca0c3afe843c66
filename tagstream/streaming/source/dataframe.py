"""A user's DataFrame as the source: its rows go to Python as typed Arrow columns, where they get their keys.

Such a DataFrame, and a transformation of records, must process each record separately. Spark's plan shows whether it
does. A replayed batch, and records that are read again from older offsets, must give the same rows as before, whatever
other records are read with them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from tagstream.spark_release import arrow_schema
from tagstream.streaming.source.decode.key_decoder import HEADERS
from tagstream.streaming.source.decode.typed_rows import with_row
from tagstream.streaming.source.decode_spec import DecodeSpec, cached_decoder
from tagstream.streaming.source.packed import ROWS_PER_BATCH
from tagstream.streaming.source.source import PartitionDepth, in_blocks, pack_by_group
from tagstream.streaming.source.task_files import TaskFiles, task_file
from tagstream.table.errors import ConfigError

_SETTINGS = (
    "spark.sql.shuffle.partitions",
    "spark.sql.adaptive.enabled",
    "spark.sql.streaming.checkpointFileManagerClass",
)
_ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ONE_START = threading.Lock()


@dataclass(frozen=True)
class Frame:
    """``rows``: the streaming DataFrame. ``trigger``: Spark's, as the arguments of ``DataStreamWriter.trigger``.

    ``started`` is called with every query that starts. The job starts another one after conflicts with other writers.
    ``keeps_state``: the DataFrame's own plan has state that Spark keeps from batch to batch.
    """

    rows: DataFrame
    trigger: Mapping[str, str | bool]
    started: Callable[[StreamingQuery], None]
    keeps_state: bool


def keyed_rows(
    rows: DataFrame,
    spec: DecodeSpec,
    labels: tuple[int, ...],
    partition_depth: PartitionDepth,
    *,
    headers: bool = False,
    exchange: TaskFiles | None = None,
) -> DataFrame:
    """The rows packed by key group, in the form of ``streaming.source.source.keyed_records``.

    ``headers``: add the column of headers, all null, because it is combined with Kafka records that have it. ``exchange``:
    where the packed rows stay; None: they go through the shuffle.
    """
    keys = make_row_function(spec, labels, partition_depth, headers=headers, exchange=exchange)
    return rows.mapInArrow(keys, "kg int, rows binary")


def make_row_function(
    spec: DecodeSpec,
    labels: tuple[int, ...],
    partition_depth: PartitionDepth,
    *,
    headers: bool = False,
    exchange: TaskFiles | None = None,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the ``mapInArrow`` function that makes keys of typed rows."""

    def keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = cached_decoder(spec)
        depth = partition_depth() if callable(partition_depth) else partition_depth
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        first = 0
        with task_file(exchange, "rows") as file:
            for block in in_blocks(batches):
                for batch in block.combine_chunks().to_batches():
                    raw = with_row(batch, first, task, spec.format.delete_field)
                    first += batch.num_rows
                    keyed = pa.Table.from_batches([decoder.keys(raw, depth)])
                    if headers:
                        keyed = keyed.append_column(HEADERS, pa.nulls(keyed.num_rows, pa.string()))
                    yield pack_by_group(keyed, labels, file)

    return keys


@contextmanager
def settings_of(own: SparkSession, user: SparkSession) -> Iterator[None]:
    """Give the user's session the settings that the state needs, while a query starts. The query copies them.

    Only one start at a time may do this: each start and each restart runs in a separate thread, and the threads share
    the session.
    """
    wanted = {name: own.conf.get(name, None) for name in _SETTINGS} | {_ARROW_ROWS: str(ROWS_PER_BATCH)}
    with _ONE_START:
        before = {name: user.conf.get(name, None) for name in wanted}
        try:
            _set(user, wanted)
            yield
        finally:
            _set(user, before)


def _set(spark: SparkSession, settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)


# Names of Spark's logical operators that process one record at a time. A join does if its other side is not a stream.
_PER_RECORD = frozenset(
    """Project Filter SubqueryAlias View Generate Join Union ResolvedHint UnresolvedHint TypedFilter MapElements
    DeserializeToObject SerializeFromObject MapInPandas MapInArrow PythonMapInArrow LateralJoin
    StreamingRelation StreamingRelationV2 StreamingDataSourceV2Relation StreamingDataSourceV2ScanRelation LogicalRDD
    WithCTE CTERelationRef CTERelationDef Repartition RepartitionByExpression RebalancePartitions""".split()
)


def stateful_operator(rows: DataFrame) -> str | None:
    """Spark's name of an operator that combines records of a streaming DataFrame: an aggregation, a sort, a window, a
    limit.

    None where each record is processed separately, so that Spark keeps no state from batch to batch.
    """
    return _offender(rows._jdf.queryExecution().analyzed())  # noqa: SLF001 (PySpark shows a plan as text only)


def check_stateless(rows: DataFrame, where: str) -> None:
    """ConfigError for a streaming DataFrame that combines records."""
    found = stateful_operator(rows)
    if found is not None:
        raise ConfigError(
            f"{where}: {found} combines records, but a transformation must process each record separately: records that "
            "are read again would give other rows. Combine them in your own stream, and pass its DataFrame to "
            "tagstream.upsert"
        )


def _offender(plan: Any) -> str | None:
    if not plan.isStreaming():
        return None
    name = str(plan.nodeName())
    children = [plan.children().apply(i) for i in range(plan.children().size())]
    if name not in _PER_RECORD:
        return name
    if name in ("Join", "LateralJoin") and sum(child.isStreaming() for child in children) > 1:
        return "Join of the records with themselves"
    return next((found for child in children if (found := _offender(child)) is not None), None)


def columns_of(schema: StructType, what: str) -> pa.Schema:
    """The Arrow columns of ``what``, a DataFrame. ConfigError names a column whose type Arrow does not have."""
    for field in schema:
        try:
            arrow_schema(StructType([field]))
        except (PySparkException, pa.ArrowException, ValueError) as e:
            raise ConfigError(
                f"column {field.name!r} of {what} has the type {field.dataType.simpleString()}, which Hudi tables do not "
                "have; cast the column, or leave it out"
            ) from e
    return arrow_schema(schema)
