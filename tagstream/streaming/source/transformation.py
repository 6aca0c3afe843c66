"""Records and their transformation: decoded to typed rows before it, given their keys after it.

A transformation is a chain of transformers on a DataFrame of records: SQL, flattening, a Python function. Each record
has one additional column, :data:`RECORD`: its position in the source, and whether it is a delete. A query that names
its columns would leave it out. Where the column can be added to the query's text without another change, it is added.

Some records cannot be transformed: bad ones, and Kafka tombstones, which have only a key. They bypass the
transformation and are read separately. So the source is read twice in a batch. Both reads are of one relation, so they
have the same offsets.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tagstream.streaming.options.options import Options
from tagstream.streaming.options.record_options import OPERATION
from tagstream.streaming.options.transformer_options import TransformerOption
from tagstream.streaming.record_formats import AVRO_FILES, HUDI_ROWS, PARQUET_FILES
from tagstream.streaming.source.dataframe import check_stateless, columns_of, keyed_rows
from tagstream.streaming.source.decode.file_rows import FileRows
from tagstream.streaming.source.decode.key_decoder import KeyDecoder
from tagstream.streaming.source.decode.plain_json import PlainJson, with_delete_mark
from tagstream.streaming.source.decode.record_format import Events, Mask, RecordFormat, avro_facts
from tagstream.streaming.source.decode.schema_names import with_operation
from tagstream.streaming.source.decode.typed_rows import (
    RECORD,
    RECORD_TYPE,
    as_spark_has_it,
    may_lack_all,
    rows_avro,
    spark_schema,
)
from tagstream.streaming.source.decode_spec import DecodeSpec, decoder_of, source_spec
from tagstream.streaming.source.file_reader import PlanReader
from tagstream.streaming.source.incr_reader import source_table_schema
from tagstream.streaming.source.source import PartitionDepth, pack_by_group, raw_batches
from tagstream.streaming.source.task_files import TaskFiles
from tagstream.table.errors import ConfigError, UnsupportedTableError
from tagstream.table.fields import type_of
from tagstream.table.schema.schema import avro_to_arrow

_SRC = "<SRC>"
_SELECT = re.compile(r"\s*SELECT\s+(?!DISTINCT\b|ALL\b)", re.IGNORECASE)


def apply_chain(rows: DataFrame, chain: Sequence[TransformerOption], delete_field: str) -> DataFrame:
    """Apply the transformers to ``rows``. ConfigError names the step that fails, and why.

    The result must still say which records are deletes: by :data:`RECORD`, or by the column ``delete_field``.
    """
    for number, step in enumerate(chain):
        try:
            rows = _apply(rows, step, number)
        except PySparkException as e:
            first = next((line for line in str(e).splitlines() if line.strip()), type(e).__name__)
            raise ConfigError(f"{step.where}: {first.strip()}; correct the transformation") from e
        if RECORD not in rows.columns and delete_field not in rows.columns:
            raise ConfigError(
                f"{step.where}: its result does not say which records are deletes, so they would become rows; add the "
                f"column {RECORD} or {delete_field} to the result"
            )
    return rows


def _apply(rows: DataFrame, step: TransformerOption, number: int) -> DataFrame:
    if step.kind in ("identity", "dms"):
        return rows
    if step.kind == "flatten":
        return rows.select(*_flat(rows.schema))
    if step.kind == "python":
        return _called(rows, step)
    view = f"TAGSTREAM_SRC_{'STREAM' if rows.isStreaming else 'SCHEMA'}_{number}"
    rows.createOrReplaceTempView(view)
    result: DataFrame | None = None
    statements = [text.strip() for text in step.text.split(";") if text.strip()]
    for text in statements:
        result = _queried(rows, text.replace(_SRC, view))
    if result is None:
        raise ConfigError(f"{step.where}: it has no SQL statement; write one, or remove the step")
    return result


def _queried(rows: DataFrame, text: str) -> DataFrame:
    """The rows of a query, with :data:`RECORD` where it can be added."""
    spark = rows.sparkSession
    plain = spark.sql(text)
    begin = _SELECT.match(text)
    if begin is None or RECORD in plain.columns:
        return plain
    try:
        more = spark.sql(f"{text[: begin.end()]}{RECORD}, {text[begin.end() :]}")
    except PySparkException:
        return plain
    return more if more.columns == [RECORD, *plain.columns] else plain


def _flat(schema: StructType, path: tuple[str, ...] = ()) -> list[Column]:
    """Columns of all fields that are not structs, named by their path: ``a.b`` becomes ``a_b``. Arrays and maps are not
    changed.
    """
    out: list[Column] = []
    for field in schema.fields:
        inside = (*path, field.name)
        if isinstance(field.dataType, StructType) and inside != (RECORD,):
            out += _flat(field.dataType, inside)
        else:
            out.append(F.col(".".join(f"`{name}`" for name in inside)).alias("_".join(inside)))
    return out


def _called(rows: DataFrame, step: TransformerOption) -> DataFrame:
    module, _, name = step.text.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as e:
        raise ConfigError(
            f"{step.where}={step.text}: {e}; make the module available to the job's Python (PYTHONPATH, or --py-files)"
        ) from e
    result = function(rows)
    if not isinstance(result, DataFrame):
        raise ConfigError(f"{step.where}={step.text}: it returned {type(result).__name__}, but must return a DataFrame")
    return result


@dataclass(frozen=True)
class Transformation:
    """``chain``: the steps. ``source``: how records are read before it (``decode_spec.source_spec``)."""

    chain: tuple[TransformerOption, ...]
    source: DecodeSpec


def transformation(options: Options, spec: DecodeSpec) -> Transformation:
    """The transformation of the options, after ``with_transformed_schema``. ``spec``: of the table."""
    assert options.source.transformed_from is not None, "nobody has asked what comes out"
    return Transformation(options.source.transformers, source_spec(spec, options.source.transformed_from, options))


def source_schema(options: Options) -> str:
    """The Avro schema of the records before the transformation. ConfigError when it can't be used."""
    if options.source.kind == "hudi" and options.source.schema_file is None:
        return source_table_schema(options.incr.path or "")
    name = options.source.schema_file or ""
    try:
        text = Path(name.removeprefix("file://")).read_text(encoding="utf-8")
        if options.records.dms_deletes or options.records.dms_operation:
            text = with_operation(text, OPERATION, filled=options.records.dms_operation)
        with_delete_mark(avro_to_arrow(text))
    except (OSError, ValueError, UnsupportedTableError) as e:
        raise ConfigError(f"schema file {name}: {e}; correct hoodie.streamer.schemaprovider.source.schema.file") from e
    return text


def with_transformed_schema(spark: SparkSession, options: Options) -> Options:
    """The options with the schema of the transformation's result, which is determined without records."""
    mark = options.records.delete_field
    source = source_schema(options)
    columns = records_schema(source)
    rows = apply_chain(spark.createDataFrame([], columns), options.source.transformers, mark)
    given = columns_of(rows.schema, "the transformed records")
    told = pa.schema([field for field in given if field.name != RECORD])
    avro = rows_avro(told, mark, "the transformed records")
    return replace(options, source=replace(options.source, frame_schema=avro, transformed_from=source))


def records_schema(avro_json: str) -> StructType:
    """The columns of records before a transformation, in Spark's types."""
    columns = spark_schema(avro_to_arrow(avro_json)).append(pa.field(RECORD, RECORD_TYPE))
    schema: StructType = from_arrow_schema(columns)
    return schema


def transformed_records(
    raw: DataFrame,
    made: Transformation,
    spec: DecodeSpec,
    labels: tuple[int, ...],
    partition_depth: PartitionDepth,
    files: PlanReader | None,
    exchange: TaskFiles | None = None,
) -> DataFrame:
    """The records transformed and packed by key group, in the form of ``streaming.source.source.keyed_records``.

    ``spec``: of the table. ``exchange``: where the packed rows stay; None: they go through the shuffle. ConfigError for a
    transformation that is not possible.
    """
    decoded = raw.mapInArrow(make_row_stage(made.source, spec, files), records_schema(made.source.avro_json))
    rows = apply_chain(decoded, made.chain, spec.format.delete_field)
    check_stateless(rows, ", ".join(step.where for step in made.chain))
    around = raw.mapInArrow(make_around(made.source, spec, labels, partition_depth, files), "kg int, rows binary")
    return keyed_rows(rows, spec, labels, partition_depth, headers=not made.source.files, exchange=exchange).unionAll(
        around
    )


def make_row_stage(
    source: DecodeSpec, spec: DecodeSpec, files: PlanReader | None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the ``mapInArrow`` function that decodes records to typed rows, without the records that bypass the
    transformation.
    """

    def rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = _source_format(source, spec)
        names = source.schema.names
        for raw in raw_batches(batches, source, files):
            events = decoder.read(raw)
            good = pa.array(~_around(events))
            place = [events.batch.column(name) for name in ("src", "pos_hi", "pos_lo")]
            record = pa.StructArray.from_arrays([*place, pa.array(events.deleted)], fields=list(RECORD_TYPE))
            columns = [as_spark_has_it(events.rows.column(name)) for name in names]
            made = pa.Table.from_arrays([*columns, record], names=[*names, RECORD]).filter(good)
            yield from made.combine_chunks().to_batches(max_chunksize=1024)

    return rows


def make_around(
    source: DecodeSpec,
    spec: DecodeSpec,
    labels: tuple[int, ...],
    partition_depth: PartitionDepth,
    files: PlanReader | None,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the ``mapInArrow`` function that returns the records that bypass the transformation, with no values except
    their keys.
    """

    def keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = _around_decoder(source, spec)
        depth = partition_depth() if callable(partition_depth) else partition_depth
        for raw in raw_batches(batches, source, files):
            keyed = decoder.keys(raw, depth)
            if keyed.num_rows:
                yield pack_by_group(pa.Table.from_batches([keyed]), labels)

    return keys


def _around(events: Events) -> Mask:
    bad: Mask = ~events.reason.is_null().to_numpy(zero_copy_only=False)
    return bad | events.by_key | events.skipped


class _Around:
    """A format for the events that bypass the transformation. It has the table's columns, all null."""

    may_lack = False

    def __init__(self, source: RecordFormat, table: pa.Schema) -> None:
        self._source = source
        self._columns = pa.schema([pa.field(field.name, may_lack_all(field.type)) for field in table])

    def read(self, batch: pa.RecordBatch) -> Events:
        events = self._source.read(batch)
        mask = _around(events)
        kept = pa.array(mask)
        rows = [pa.nulls(int(np.count_nonzero(mask)), field.type) for field in self._columns]
        return Events(
            events.batch.filter(kept),
            pa.Table.from_arrays(rows, schema=self._columns),
            events.reason.filter(kept),
            events.deleted[mask],
            events.by_key[mask],
            events.skipped[mask],
            None if events.keys is None else events.keys.filter(kept),
        )


@lru_cache(maxsize=2)
def _source_format(source: DecodeSpec, spec: DecodeSpec) -> RecordFormat:
    """The decoder of rows in the source records' schema. A tombstone's message has the key of the table's row."""
    if source.format.name in (PARQUET_FILES.name, AVRO_FILES.name, HUDI_ROWS.name):
        columns = with_delete_mark(source.schema)
        return FileRows(columns, avro_facts(source.avro_json), source.rules, operation=source.format.operation)
    generator = spec.key_generator_rules
    return PlainJson(
        with_delete_mark(source.schema),
        avro_facts(source.avro_json),
        source.rules,
        key_fields=generator.record_key_fields,
        key_types=[type_of(spec.schema, name) for name in generator.record_key_fields],
        names_partition=not spec.global_index and bool(generator.partition_fields),
        refuse_collisions=spec.refuse_collisions,
        operation=source.format.operation,
    )


@lru_cache(maxsize=2)
def _around_decoder(source: DecodeSpec, spec: DecodeSpec) -> KeyDecoder:
    return decoder_of(spec, _Around(_source_format(source, spec), spec.schema))
