"""The stream's source as raw records with their position, and their key columns as the tag step takes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tagstream.state.key_group import state_key_groups
from tagstream.streaming.errors import TableSeenError
from tagstream.streaming.options.options import Options
from tagstream.streaming.source.decode.events import Noticed
from tagstream.streaming.source.decode.key_decoder import FLAG_BAD, FLAG_EMPTIED, FLAG_SKIPPED, HEADERS
from tagstream.streaming.source.decode.messages.tables import seen_text
from tagstream.streaming.source.decode_spec import DecodeSpec, cached_decoder
from tagstream.streaming.source.files.read import RAW_SCHEMA, FilesSpec, plan_rows, planned_lines
from tagstream.streaming.source.images import with_images
from tagstream.streaming.source.packed import empty_rows, pack, split
from tagstream.streaming.source.position import LinePositions
from tagstream.streaming.source.record_size import events_a_batch
from tagstream.streaming.source.schema_notes import SchemaNotes

RAW_COLUMNS = tuple(RAW_SCHEMA.names)
PartitionDepth = int | None | Callable[[], int | None]
OLD_KEY, NEW_KEY = "old_key", "new_key"
_OLD_KEY = "get(filter(headers, h -> h.key = '__debezium.oldkey'), 0).value"
_NEW_KEY = "get(filter(headers, h -> h.key = '__debezium.newkey'), 0).value"
_BLOCK_ROWS = 1 << 16
_BLOCK_BYTES = 8 << 20


def raw_records(
    spark: SparkSession,
    options: Options,
    starting_offsets: str | None,
    reached: Mapping[int, int],
    plans: str | None = None,
    *,
    headers: bool = False,
) -> DataFrame:
    """Streaming frame of ``key, value`` (binary), ``src``, ``pos_hi``, ``pos_lo``; for files ``block_start``, for Kafka
    ``headers``.

    ``starting_offsets``: Spark's, for a new query; ``reached``: offset by Kafka partition where the stream goes on.
    ``plans``: the folder of the plans (``streaming.source.files.plan``) that are read in place of the files themselves.

    ``headers``: Kafka messages come with ``old_key`` and ``new_key``, the bytes of their headers ``__debezium.oldkey`` and
    ``__debezium.newkey``.

    Kafka: position = (partition, offset), ``src`` null. Files: (modification time in us, path, byte of the line).
    """
    if options.source_class != "kafka":
        return _files(spark, options) if plans is None else _plans(spark, plans)
    return _kafka(spark, options, starting_offsets, events_a_batch(spark, options, reached), headers=headers)


def _kafka(
    spark: SparkSession, options: Options, starting_offsets: str | None, limit: int, *, headers: bool
) -> DataFrame:
    reader = spark.readStream.format("kafka").options(**options.kafka_options)
    reader = (
        reader.option("subscribe", options.kafka_topic)
        .option("startingOffsets", starting_offsets or options.starting_offsets)
        .option("failOnDataLoss", str(options.fail_on_data_loss).lower())
        .option("maxOffsetsPerTrigger", limit)
        .option("includeHeaders", "true")  # a bad record is kept with them
    )
    if options.min_partitions:
        reader = reader.option("minPartitions", options.min_partitions)
    return reader.load().select(
        "key",
        "value",
        "headers",
        *([F.expr(_OLD_KEY).alias(OLD_KEY), F.expr(_NEW_KEY).alias(NEW_KEY)] if headers else []),
        F.lit(None).cast("string").alias("src"),
        F.col("partition").cast("long").alias("pos_hi"),
        F.col("offset").alias("pos_lo"),
        F.lit(-1).cast("long").alias("block_start"),
    )


def _files(spark: SparkSession, options: Options) -> DataFrame:
    reader = (
        spark.readStream.format("text")
        .option("lineSep", "\n")  # the default would take a lone \r for a line's end
        .option("recursiveFileLookup", "true")
        .option("maxFileAge", "36500d")  # the default silently skips files a week older than the newest
        .option("maxBytesPerTrigger", options.source_limit)
    )
    return _text_rows(reader.load(options.dfs_root))


def _plans(spark: SparkSession, folder: str) -> DataFrame:
    """Plans as rows: one plan is one batch. Files of data can be among them, of a batch that an earlier version planned."""
    spark.conf.set("spark.sql.files.openCostInBytes", "1")  # so that a plan of some hundred bytes is cut for the tasks
    reader = (
        spark.readStream.format("text")
        .option("lineSep", "\n")
        .option("maxFileAge", "36500d")
        .option("maxFilesPerTrigger", 1)
        .option("fileNameOnly", "true")  # the checkpoint may be moved, and the plans in it with it
    )
    return _text_rows(reader.load(folder))


def _text_rows(lines: DataFrame) -> DataFrame:
    return lines.select(
        F.lit(None).cast("binary").alias("key"),
        F.col("value").cast("binary").alias("value"),
        F.col("_metadata.file_path").alias("src"),
        F.unix_micros("_metadata.file_modification_time").alias("pos_hi"),
        F.lit(-1).cast("long").alias("pos_lo"),
        F.col("_metadata.file_block_start").alias("block_start"),
    )


def keyed_records(
    raw: DataFrame,
    spec: DecodeSpec,
    labels: tuple[int, ...],
    partition_depth: PartitionDepth,
    files: FilesSpec | None = None,
    notes: SchemaNotes | None = None,
) -> DataFrame:
    """The records decoded, good or bad, packed by key group: ``kg`` (its label) and ``rows`` (``KeyDecoder.keys``).

    The group is crc32 of the key modulo the number of groups; bad and skipped records, which have no key, are spread by
    position. ``notes``: where schemas of records go that have what the table lacks.
    """
    return raw.mapInArrow(make_key_function(spec, labels, partition_depth, files, notes), "kg int, rows binary")


def key_group_label(key: Column, labels: tuple[int, ...]) -> Column:
    """Label of the key group of a key (binary, without the byte that a state key begins with)."""
    index = F.pmod(F.crc32(key), F.lit(len(labels)))
    return F.element_at(F.array(*[F.lit(x) for x in labels]), (index + 1).cast("int"))


def make_key_function(
    spec: DecodeSpec,
    labels: tuple[int, ...],
    partition_depth: PartitionDepth,
    files: FilesSpec | None = None,
    notes: SchemaNotes | None = None,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The ``mapInArrow`` function that decodes records; files get their line positions here.

    ``partition_depth``: of the table's partitions, or a function that tells it for the batch a task is at. ``files``: the
    rows are plans, whose files are read here.
    """

    def keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = cached_decoder(spec)
        noticed: list[Noticed] = []
        if notes is not None:
            notes.raise_again()
        depth = partition_depth() if callable(partition_depth) else partition_depth
        for raw in raw_batches(batches, spec, files):
            keyed = decoder.keys(raw, depth)
            table = decoder.first_table()
            if table is not None:
                raise TableSeenError(seen_text(table))
            noticed += [] if decoder.watch is None or notes is None else decoder.watch.take()
            if not noticed:  # else the batch is done again
                yield pack_by_group(pa.Table.from_batches([keyed]), labels)
        if notes is not None and noticed:
            notes.leave(noticed)

    return keys


def raw_batches(
    batches: Iterable[pa.RecordBatch], spec: DecodeSpec, files: FilesSpec | None
) -> Iterator[pa.RecordBatch]:
    """The raw records of a task with their positions, in blocks that are worth a step over columns."""
    for rows in in_blocks(_records(batches, spec, files)):
        given = [*RAW_COLUMNS, *(name for name in (OLD_KEY, NEW_KEY, HEADERS) if name in rows.column_names)]
        yield pa.RecordBatch.from_pydict({name: rows.column(name).combine_chunks() for name in given})


def _records(batches: Iterable[pa.RecordBatch], spec: DecodeSpec, files: FilesSpec | None) -> Iterator[pa.RecordBatch]:
    """The records of a task with their positions: as they are from Kafka, counted through a file, or read for a plan."""
    if not spec.files:
        yield from batches
        return
    lines = LinePositions()
    for rows in (rows for block in in_blocks(batches) for rows in block.combine_chunks().to_batches()):
        planned = plan_rows(rows.column("src")) if files is not None else np.zeros(rows.num_rows, np.bool_)
        if files is not None and planned.any():
            yield from planned_lines(files, rows.column("value").filter(pa.array(planned)).to_pylist())
        if not planned.all():
            data = rows.filter(pa.array(~planned)) if planned.any() else rows
            columns = {name: data.column(name) for name in RAW_COLUMNS}
            columns["pos_lo"] = lines.assign(columns["src"], data.column("block_start"), columns["value"])
            yield pa.RecordBatch.from_pydict(columns)


def in_blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Spark's small batches put together: a step over columns costs the same for a thousand records and for ten."""
    block: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        block.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _BLOCK_ROWS or size >= _BLOCK_BYTES:
            yield pa.Table.from_batches(block)
            block, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(block)


def pack_by_group(keyed: pa.Table, labels: tuple[int, ...]) -> pa.RecordBatch:
    """Keyed records as ``kg`` and ``rows``."""
    emptied = keyed.filter(pa.array((keyed.column("flags").to_numpy() & FLAG_EMPTIED) != 0))
    keyed = with_images(keyed)
    bad = (keyed.column("flags").to_numpy() & (FLAG_BAD | FLAG_SKIPPED)) != 0
    groups = state_key_groups(keyed.column("skey").to_pylist(), len(labels)).astype(np.int64)
    groups[bad] = keyed.column("pos_lo").to_numpy()[bad] % len(labels)
    packed: list[tuple[int, bytes | None]] = []
    for group, mine in split(keyed, groups):
        for value in pack(mine):
            packed += [(labels[group], value), *[(labels[group], None)] * empty_rows(value)]
    if emptied.num_rows:  # the whole table's: every key group is told
        i = emptied.schema.get_field_index("flags")
        told = emptied.set_column(i, "flags", pa.array(np.full(emptied.num_rows, FLAG_EMPTIED, np.int8)))
        packed += [(label, value) for value in pack(told) for label in labels]
    return pa.RecordBatch.from_arrays(
        [pa.array([label for label, _ in packed], pa.int32()), pa.array([value for _, value in packed], pa.binary())],
        names=["kg", "rows"],
    )
