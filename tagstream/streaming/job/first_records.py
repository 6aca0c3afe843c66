"""What a new stream reads from the first records of its source: the schema of a new table, and the table that it reads.

A new table without a schema file gets the columns of the first record that contains its schema. Debezium's messages in
JSON contain it where the connector's converter writes it (``schemas.enable=true``; Kafka Connect's JsonConverter:
``{"schema": ..., "payload": ...}``).

A new change stream whose options name no table reads the table of its first record. If a task finds this table later,
the query fails and starts again with the table known. That is correct, but Spark writes sixty lines of errors about it.
It only happens to a stream whose source has no record at its start.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tagstream.streaming.batch.spark_checkpoint import newest_batch
from tagstream.streaming.errors import SourceError
from tagstream.streaming.job.schema_match import brings_schema, reads_by_spark
from tagstream.streaming.options.options import Options
from tagstream.streaming.options.source_options import FirstSchema
from tagstream.streaming.source.decode.connect_json import connect_fields
from tagstream.streaming.source.decode.debezium_envelope import FLAT_PLACES, PLACES
from tagstream.streaming.source.decode.file_rows import parquet_avro
from tagstream.streaming.source.decode.plain_json import DELETED
from tagstream.streaming.source.decode.record_decoder import Path
from tagstream.streaming.source.decode.record_schemas import connect_row, is_beside
from tagstream.streaming.source.decode.row_messages import (
    SourceTables,
    TableFilter,
    is_of_signals,
    is_rowless,
    table_name,
)
from tagstream.streaming.source.decode.schema_names import without_field
from tagstream.streaming.source.decode_spec import DecodeSpec, cached_decoder
from tagstream.streaming.source.file_avro import read_header
from tagstream.streaming.source.file_forms import make_form
from tagstream.streaming.source.file_lister import list_files
from tagstream.streaming.source.file_parquet import schema_of
from tagstream.streaming.source.incr_reader import source_table_schema
from tagstream.streaming.source.proto_class import lacks_descriptors, with_descriptors
from tagstream.streaming.source.source import NEW_KEY, OLD_KEY
from tagstream.streaming.source.source_checks import check_source
from tagstream.streaming.source.source_file import DAMAGED, DamagedFileError, SourceFile, codec_of, content
from tagstream.streaming.source.transformation import with_transformed_schema
from tagstream.table.errors import ConfigError, TableNotFoundError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import Storage

LOG = logging.getLogger("tagstream")
_FEW, _MANY = 200, 20_000  # how many records are read: nearly always the first one has a schema
_HEAD_BYTES = 16 << 20  # of a file


def lacks_schema(options: Options) -> bool:
    """Whether the table does not exist or has no schema yet, and only the records have the columns."""
    if options.run.bootstrap_only or not brings_schema(options):
        return False
    try:
        return HoodieTable.open(open_storage(options.table.base_path)).schema_json() is None
    except TableNotFoundError:
        return True


def needs_spark(options: Options) -> bool:
    """Whether only Spark can determine the table's schema: after a transformation, from the records of a topic, or from
    the Java class of its messages.
    """
    return (
        bool(options.source.transformers)
        or lacks_descriptors(options)
        or (reads_by_spark(options) and lacks_schema(options))
    )


def with_schema_by_spark(options: Options, spark: SparkSession) -> Options:
    """The options with the schema that only Spark can determine. Unchanged where another schema is given."""
    if lacks_descriptors(options):
        options = with_descriptors(options, spark)
    return with_transformed_schema(spark, options) if options.source.transformers else with_first_schema(options, spark)


def with_first_schema(options: Options, spark: SparkSession | None = None) -> Options:
    """The options with the schema of the first record that contains one.

    Unchanged where the table or the options have a schema, and without ``spark`` where only Spark can read the source.
    SourceError where the source has no record yet. ConfigError where the first records have no schema.
    """
    if (spark is None and reads_by_spark(options)) or not lacks_schema(options):
        return options
    check_source(options)
    if options.source.kind == "hudi":
        path = options.incr.path or ""
        text = source_table_schema(path)
        LOG.info("table %s is made with the columns of table %s", options.table.base_path, path)
        return replace(
            options, source=replace(options.source, first_schema=FirstSchema(text, f"source table {path}", None))
        )
    if options.files.form in ("parquet", "avro") and options.source.kind == "dfs":
        return replace(options, source=replace(options.source, first_schema=_of_files(options)))
    looked_at = 0
    for limit in (_FEW, _MANY):
        looked_at = 0
        for record in first_records(options, spark, limit):
            looked_at += 1
            found = _schema_of(record, options)
            if found is not None:
                LOG.info("table %s is made with the columns of %s", options.table.base_path, found.source)
                return replace(options, source=replace(options.source, first_schema=found))
        if looked_at < limit:
            break
    place, tables = _place(options), ", ".join(options.records.tables)
    if not looked_at:
        raise SourceError(
            f"no table exists at {options.table.base_path} yet, and {place} has no record to take the columns from: "
            "start when it has one, or set hoodie.streamer.schemaprovider.source.schema.file"
        )
    raise ConfigError(
        f"no table exists at {options.table.base_path} yet, and none of the first {looked_at:,} records of {place} has a "
        f"schema{f' of a table that tagstream.source.tables ({tables}) names' if tables else ''}: let the connector write "
        "schemas (value.converter.schemas.enable=true), or set hoodie.streamer.schemaprovider.source.schema.file"
    )


def _of_files(options: Options) -> FirstSchema:
    """The schema of the first file of Parquet or Avro that can be read, in the order in which the stream reads files."""
    source, form = open_storage(options.files.root or ""), make_form(options.files.form, options.csv)
    assert form is not None
    for file in sorted(list_files(source), key=lambda f: (f.mtime_ms, f.path)):
        where = source.where(file.path)
        try:
            if not file.size or source.read_range(file.path, 0, len(form.magic)) != form.magic:
                continue  # the stream reports it
            if options.files.form == "avro":
                header = read_header(source, file.path, file.size)
                if header is None:
                    continue
                text = header.schema
            else:
                text = parquet_avro(schema_of(source, file.path), where)
        except (DamagedFileError, FileNotFoundError):
            continue
        text = without_field(text, DELETED)
        LOG.info("table %s is made with the columns of %s", options.table.base_path, where)
        return FirstSchema(text, f"source file {where}", None)
    raise SourceError(
        f"no table exists at {options.table.base_path} yet, and {_place(options)} has no readable file of {form.name} to "
        "take the columns from: start when it has one, or set hoodie.streamer.schemaprovider.source.schema.file"
    )


def _place(options: Options) -> str:
    return f"topic {options.kafka.topic}" if options.source.kind == "kafka" else f"source folder {options.files.root}"


def _schema_of(record: bytes, options: Options) -> FirstSchema | None:
    """The schema that a record contains; None where it has none, or is not a row of the stream's tables."""
    try:
        message: Any = json.loads(record)
        schema, payload = message["schema"], message["payload"]
    except (ValueError, RecursionError, KeyError, TypeError):
        return None
    flat = not options.records.format.envelopes
    if not (isinstance(schema, dict) and isinstance(payload, dict)):
        return None
    fields = connect_fields(schema, None if flat else "after")
    if not fields:
        return None
    row = json.loads(connect_row({name: field for name, field in fields.items() if not is_beside(name)}))
    if is_rowless(row) or is_of_signals(row):
        return None
    name = next((n for n in (_named(payload, place) for place in (FLAT_PLACES if flat else PLACES)) if n), None)
    if name is not None and not TableFilter(SourceTables(options.records.tables)).is_own(name):
        return None
    table = f" (table {name})" if name else ""
    return FirstSchema(json.dumps(row), f"the first record of {_place(options)} with a schema{table}", name)


def _named(payload: Any, place: tuple[Path, Path, Path]) -> str | None:
    """The name of the table in a payload, at one of the paths where it can be; None where it has none."""
    words: list[str | None] = []
    for path in place:
        found = payload
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        words.append(found if path and isinstance(found, str) else None)
    return None if words[-1] is None else table_name(words)


def first_records(options: Options, spark: SparkSession | None, limit: int) -> Iterator[bytes]:
    """The first records of a source, at most ``limit``, without messages of a topic that have no value."""
    if not reads_by_spark(options):
        return islice(_lines(open_storage(options.files.root or "")), limit)
    assert spark is not None, "only Spark can read this source"
    return _read_by_spark(options, spark, limit)


def _read_by_spark(options: Options, spark: SparkSession, limit: int) -> Iterator[bytes]:
    if options.source.kind == "kafka":
        # From the topic's beginning, wherever the stream starts: older records also contain their schema.
        reader = spark.read.format("kafka").options(**options.kafka.consumer).option("subscribe", options.kafka.topic)
        rows = reader.option("failOnDataLoss", "false").load().where("value is not null").select("value")
    else:
        rows = spark.read.text(options.files.root or "").selectExpr("cast(value as binary) as value")
    return (bytes(row.value) for row in rows.limit(limit).toLocalIterator())


def _lines(source: Storage) -> Iterator[bytes]:
    """The lines at the beginning of each file, in the order in which the stream reads the files."""
    for file in sorted(list_files(source), key=lambda f: (f.mtime_ms, f.path)):
        try:
            head = b"".join(_head(source, file))
        except (*DAMAGED, FileNotFoundError):
            continue  # the stream reports the error
        yield from (line for line in head.split(b"\n") if line.strip())


def _head(source: Storage, file: SourceFile) -> Iterable[bytes]:
    codec = codec_of(file.path)
    if codec is None:
        yield source.read_range(file.path, 0, min(file.size, _HEAD_BYTES)) if file.size else b""
        return
    left = _HEAD_BYTES
    for block in content(source, file.path, codec, file.size):
        yield block
        left -= len(block)
        if left <= 0:
            return


_RECORDS = 200  # how many records are read: nearly always the first one names its table


def with_first_table(decode: DecodeSpec, options: Options, root: Storage, spark: SparkSession) -> DecodeSpec:
    """``decode`` with the table of the first record that names one. Unchanged where no record does, or the table is
    known.

    ``root``: the query's folder. A query that has planned a batch uses the table that its batches see.
    """
    if options.source.transformers or options.source.kind == "frame" or newest_batch(root, "offsets") is not None:
        return decode
    decoder = cached_decoder(decode)
    if not decoder.wants_table or (options.source.kind == "kafka" and options.kafka.starting_offsets == "latest"):
        return decode
    records = list(first_records(options, spark, _RECORDS))
    if not records:
        return decode
    columns = {
        "key": pa.nulls(len(records), pa.binary()),
        "value": pa.array(records, pa.binary()),
        "src": pa.nulls(len(records), pa.string()),
        "pos_hi": pa.array([0] * len(records), pa.int64()),
        "pos_lo": pa.array(range(len(records)), pa.int64()),
        **{name: pa.nulls(len(records), pa.binary()) for name in (OLD_KEY, NEW_KEY) if decode.reads_headers},
    }
    decoder.keys(pa.RecordBatch.from_pydict(columns))
    pinned = decoder.first_table()
    if decoder.watch is not None:
        decoder.watch.take()  # drop them: the stream finds new columns itself
    return decode if pinned is None else decode.of_table(pinned)
