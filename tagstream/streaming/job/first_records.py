"""What a new stream takes from the first records of its source: the schema of a new table, and which table it reads.

A new table without a schema file gets the columns of the first record that has its schema with it. Debezium's
messages in JSON have one where the connector's converter writes it (``schemas.enable=true``; Kafka Connect's
JsonConverter: ``{"schema": ..., "payload": ...}``).

A new stream of changes whose options name no table reads the table of its first record. A task that sees it later
fails its query, which begins again with the table known: right, but Spark writes sixty lines of errors about it.
Only a stream that has no record at its start learns it that way.
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
from tagstream.streaming.options.options import FirstSchema, Options
from tagstream.streaming.source.decode.connect_json import connect_fields
from tagstream.streaming.source.decode.debezium_envelope import FLAT_PLACES, PLACES
from tagstream.streaming.source.decode.record_decoder import Path
from tagstream.streaming.source.decode.record_schemas import connect_row, is_beside
from tagstream.streaming.source.decode.row_messages import (
    SourceTables,
    TableGate,
    is_of_signals,
    is_rowless,
    table_name,
)
from tagstream.streaming.source.decode_spec import DecodeSpec, cached_decoder
from tagstream.streaming.source.file_lister import list_files
from tagstream.streaming.source.source import NEW_KEY, OLD_KEY
from tagstream.streaming.source.source_checks import check_source
from tagstream.streaming.source.source_file import DAMAGED, SourceFile, codec_of, content
from tagstream.streaming.source.transformation import with_transformed_schema
from tagstream.table.errors import ConfigError, TableNotFoundError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import Storage

LOG = logging.getLogger("tagstream")
_FEW, _MANY = 200, 20_000  # records that are looked at: nearly always the first one has a schema
_HEAD_BYTES = 16 << 20  # of a file


def lacks_schema(options: Options) -> bool:
    """Whether the table is to be made, or has no schema yet, and only the records can say which columns it has."""
    if options.bootstrap_only or not brings_schema(options):
        return False
    try:
        return HoodieTable.open(open_storage(options.target_base_path)).schema_json() is None
    except TableNotFoundError:
        return True


def needs_spark(options: Options) -> bool:
    """Whether only Spark can tell the table's schema: what comes out of a transformation, or what records a topic has."""
    return bool(options.transformers) or (reads_by_spark(options) and lacks_schema(options))


def with_schema_by_spark(options: Options, spark: SparkSession) -> Options:
    """The options with the schema that only Spark can tell; the same ones where another is given."""
    return with_transformed_schema(spark, options) if options.transformers else with_first_schema(options, spark)


def with_first_schema(options: Options, spark: SparkSession | None = None) -> Options:
    """The options with the schema of the first record that has one; the same ones where the table or the options have a
    schema, and without ``spark`` where only Spark reads the source.

    SourceError where there is no record yet, ConfigError where the first ones have no schema.
    """
    if (spark is None and reads_by_spark(options)) or not lacks_schema(options):
        return options
    check_source(options)
    looked_at = 0
    for limit in (_FEW, _MANY):
        looked_at = 0
        for record in first_records(options, spark, limit):
            looked_at += 1
            found = _schema_of(record, options)
            if found is not None:
                LOG.info("table %s is made with the columns of %s", options.target_base_path, found.source)
                return replace(options, first_schema=found)
        if looked_at < limit:
            break
    place, tables = _place(options), ", ".join(options.records.tables)
    if not looked_at:
        raise SourceError(
            f"there is no table at {options.target_base_path} yet, and {place} has no record that names its columns: "
            "start when it has one, or give hoodie.streamer.schemaprovider.source.schema.file"
        )
    raise ConfigError(
        f"there is no table at {options.target_base_path} yet, and none of the first {looked_at:,} records of {place} has a "
        f"schema{f' of a table that tagstream.source.tables ({tables}) names' if tables else ''}: let the connector write "
        "them (value.converter.schemas.enable=true), or give hoodie.streamer.schemaprovider.source.schema.file"
    )


def _place(options: Options) -> str:
    return f"topic {options.kafka_topic}" if options.source_class == "kafka" else f"source folder {options.dfs_root}"


def _schema_of(record: bytes, options: Options) -> FirstSchema | None:
    """The schema that a record has with it; None where it has none, or is not of a row of the stream's tables."""
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
    if name is not None and not TableGate(SourceTables(options.records.tables)).is_own(name):
        return None
    table = f" (table {name})" if name else ""
    return FirstSchema(json.dumps(row), f"the first record of {_place(options)} with a schema{table}", name)


def _named(payload: Any, place: tuple[Path, Path, Path]) -> str | None:
    """The name of a table at one of the places where it can be; None where there is none."""
    words: list[str | None] = []
    for path in place:
        found = payload
        for step in path:
            found = found.get(step) if isinstance(found, dict) else None
        words.append(found if path and isinstance(found, str) else None)
    return None if words[-1] is None else table_name(words)


def first_records(options: Options, spark: SparkSession | None, limit: int) -> Iterator[bytes]:
    """The first records of a source, at most ``limit``, without the empty ones of a topic."""
    if not reads_by_spark(options):
        return islice(_lines(open_storage(options.dfs_root or "")), limit)
    assert spark is not None, "the source is one that Spark reads"
    return _read_by_spark(options, spark, limit)


def _read_by_spark(options: Options, spark: SparkSession, limit: int) -> Iterator[bytes]:
    if options.source_class == "kafka":
        # From the topic's beginning, wherever the stream begins: an older record has its schema as well.
        reader = spark.read.format("kafka").options(**options.kafka_options).option("subscribe", options.kafka_topic)
        rows = reader.option("failOnDataLoss", "false").load().where("value is not null").select("value")
    else:
        rows = spark.read.text(options.dfs_root or "").selectExpr("cast(value as binary) as value")
    return (bytes(row.value) for row in rows.limit(limit).toLocalIterator())


def _lines(source: Storage) -> Iterator[bytes]:
    """The lines at the beginning of each file, in the order in which the stream reads them."""
    for file in sorted(list_files(source), key=lambda f: (f.mtime_ms, f.path)):
        try:
            head = b"".join(_head(source, file))
        except (*DAMAGED, FileNotFoundError):
            continue  # the stream says what is wrong with it
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


_RECORDS = 200  # nearly always the first one names its table


def with_first_table(decode: DecodeSpec, options: Options, root: Storage, spark: SparkSession) -> DecodeSpec:
    """``decode`` with the table of the first record that names one; the same where none does, or another is known.

    ``root``: of the query's checkpoint; one that has begun keeps what its batches see.
    """
    if options.transformers or options.source_class == "frame" or newest_batch(root, "offsets") is not None:
        return decode
    decoder = cached_decoder(decode)
    if not decoder.wants_table or (options.source_class == "kafka" and options.starting_offsets == "latest"):
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
        decoder.watch.take()  # the stream notices new columns itself
    return decode if pinned is None else decode.of_table(pinned)
