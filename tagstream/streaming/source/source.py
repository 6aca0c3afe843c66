"""The stream's source as raw records with their positions, and as keyed records for the tag step.

A position increases through a file, also when Spark splits it into blocks. It orders records with equal ordering
values. Spark gives the block of a line, but not the line's offset. The lines of a block come in order, so the running
sum of their lengths gives it. In a block that begins inside the file, the first, incomplete line belongs to the block
before it. So the true offset is at least one byte greater than the sum. One is added, which keeps every position of a
block below those of the next block.

Schemas that tasks find are passed to the driver in one file per task in the checkpoint: a schema is too long for an
error's text. A task that has read records whose schema differs from the table's writes this file when it has read all
of its records, and then fails. So the batch ends before any record is tagged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from tagstream.state.key_crc import state_key_groups
from tagstream.state.tag_batch import FLAG_DELETE, FLAG_NO_ORDERING, FLAG_NO_PARTITION
from tagstream.streaming.errors import SchemaChangedError, TableSeenError
from tagstream.streaming.options.options import Options
from tagstream.streaming.options.source_options import KafkaOptions
from tagstream.streaming.source.decode.key_decoder import FLAG_BAD, FLAG_IMAGE, FLAG_SKIPPED, FLAG_TRUNCATE, HEADERS
from tagstream.streaming.source.decode.record_format import FAULT, Noticed
from tagstream.streaming.source.decode.record_schemas import in_order, notes_from_json, notes_to_json
from tagstream.streaming.source.decode.row_messages import seen_text
from tagstream.streaming.source.decode.typed_rows import ROW
from tagstream.streaming.source.decode_spec import DecodeSpec, cached_decoder
from tagstream.streaming.source.file_reader import RAW_SCHEMA, PlanReader, plan_rows
from tagstream.streaming.source.kafka_topic import events_a_batch
from tagstream.streaming.source.packed import empty_rows, pack, split
from tagstream.streaming.source.task_files import TaskFile, TaskFiles, task_file
from tagstream.table.chunks import flat
from tagstream.table.storage.storage import Storage, create


def with_images(keyed: pa.Table) -> pa.Table:
    """The records, and after them a request for each row of another key whose values a record needs. It goes to that
    key's group.

    A delete with a changed key also requests its own row, because the new key's record may come in a later batch
    (``FLAG_DELETE``). The new key's record may also have come in an earlier batch, before all events of the old key
    were read. Then the new key's row is corrected (``FLAG_NO_PARTITION``) from the old key's row, which is requested
    once more.
    """
    if "old" not in keyed.column_names:
        return keyed
    parts = [keyed]
    asks = keyed.filter(keyed.column("old").is_valid())
    if asks.num_rows:
        parts.append(_asks(asks, asks.column("old"), FLAG_NO_ORDERING | FLAG_DELETE))
    moved = keyed.filter(keyed.column("new").is_valid())
    if moved.num_rows:
        parts.append(_asks(moved, moved.column("skey"), FLAG_NO_ORDERING, old=moved.column("skey")))
        parts.append(
            _asks(moved, moved.column("new"), 0, FLAG_NO_ORDERING | FLAG_NO_PARTITION, old=moved.column("skey"))
        )
    return pa.concat_tables(parts)


def _asks(
    of: pa.Table, keys: pa.ChunkedArray, keep: int, more: int = 0, old: pa.ChunkedArray | None = None
) -> pa.Table:
    """A request for the row of each of ``keys``. ``keep``: flags of the records that it keeps. ``more``: flags that it
    adds.
    """
    flags = (of.column("flags").to_numpy() & keep) | more | FLAG_IMAGE
    given = {"skey": keys, "ord": of.column("ord"), "flags": pa.array(flags.astype(np.int8))}
    given |= {name: of.column(name) for name in ("pos_hi", "pos_lo")}
    given |= {} if old is None else {"old": old}
    columns = [given.get(f.name, pa.nulls(of.num_rows, f.type)) for f in of.schema]
    return pa.Table.from_arrays(columns, schema=of.schema)


class LinePositions:
    """Assigns int64 positions to successive Arrow batches of one task's lines."""

    def __init__(self) -> None:
        self._block: tuple[str, int] | None = None
        self._next = 0

    def assign(self, paths: pa.Array, block_start: pa.Array, values: pa.Array) -> pa.Array:
        """Positions of the lines ``values`` (binary), which are from ``paths`` at ``block_start`` (bytes)."""
        n = len(values)
        if n == 0:
            return pa.array([], pa.int64())
        codes = pc.dictionary_encode(paths)
        code, start = codes.indices.to_numpy(), block_start.to_numpy()
        length = pc.fill_null(pc.binary_length(values), 0).to_numpy().astype(np.int64) + 1
        first = np.flatnonzero(np.concatenate(([True], (code[1:] != code[:-1]) | (start[1:] != start[:-1]))))
        before = np.cumsum(length) - length
        base = start[first] + (start[first] > 0) - before[first]
        here = (codes.dictionary[int(code[0])].as_py(), int(start[0]))
        if here == self._block:  # the block continues from the last batch
            base[0] = self._next - before[0]
        position = before + np.repeat(base, np.diff(np.append(first, n)))
        self._block = (codes.dictionary[int(code[-1])].as_py(), int(start[-1]))
        self._next = int(position[-1] + length[-1])
        return pa.array(position, pa.int64())


@dataclass(frozen=True)
class SchemaNotes:
    """Files with schemas that tasks have found. ``folder``: where they are. ``start``: number of the query's start,
    unique in this run.
    """

    folder: Storage
    start: str

    def leave(self, noticed: Sequence[Noticed]) -> None:
        """Write a task's schemas to a file, then raise SchemaChangedError."""
        create(self.folder, self._name(), notes_to_json(in_order(noticed)))
        raise SchemaChangedError(_words(noticed))

    def raise_again(self) -> None:
        """Raise SchemaChangedError in a further attempt of a task that has already written its file."""
        context = TaskContext.get()
        if context is not None and context.attemptNumber() and self.folder.exists(self._name()):
            raise SchemaChangedError(_words(notes_from_json(self.folder.read(self._name()))))

    def read(self) -> list[Noticed]:
        """All schemas that tasks of this start have written, older ones first."""
        mine = [name for name in self.folder.names("") if name.startswith(f"{self.start}-")]
        return in_order([item for name in mine for item in notes_from_json(self.folder.read(name))])

    def _name(self) -> str:
        context = TaskContext.get()
        assert context is not None
        return f"{self.start}-{context.stageId()}-{context.partitionId()}.json"


def _words(noticed: Sequence[Noticed]) -> str:
    sources = ", ".join(dict.fromkeys(item.source for item in in_order(noticed)))
    return f"records have a schema that changes the table's ({sources}); their batch is processed again with the new schema"


RAW_COLUMNS = tuple(RAW_SCHEMA.names)
PartitionDepth = int | None | Callable[[], int | None]
OLD_KEY, NEW_KEY = "old_key", "new_key"
_OLD_KEY = "get(filter(headers, h -> h.key = '__debezium.oldkey'), 0).value"
_NEW_KEY = "get(filter(headers, h -> h.key = '__debezium.newkey'), 0).value"
_MORE_COLUMNS = (OLD_KEY, NEW_KEY, HEADERS, ROW, FAULT)
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
    """Streaming DataFrame of ``key, value`` (binary), ``src``, ``pos_hi``, ``pos_lo``; for files ``block_start``, for
    Kafka ``headers``.

    ``starting_offsets``: Spark's, for a new query. ``reached``: offset by Kafka partition where the stream continues.
    ``plans``: the folder of the plans (``streaming.source.file_plans``) that are read instead of the files.
    ``headers``: Kafka messages also have ``old_key`` and ``new_key``, the bytes of their headers ``__debezium.oldkey``
    and ``__debezium.newkey``.

    Positions: (partition, offset) with ``src`` null for Kafka, (modification time in us, byte of the line) with the
    path in ``src`` for files.
    """
    if options.source.kind != "kafka":
        return _files(spark, options) if plans is None else plan_lines(spark, plans)
    limit = events_a_batch(spark, options.kafka, options.source.limit, reached)
    return _kafka(spark, options.kafka, starting_offsets, limit, headers=headers)


def _kafka(
    spark: SparkSession, kafka: KafkaOptions, starting_offsets: str | None, limit: int, *, headers: bool
) -> DataFrame:
    reader = spark.readStream.format("kafka").options(**kafka.consumer)
    reader = (
        reader.option("subscribe", kafka.topic)
        .option("startingOffsets", starting_offsets or kafka.starting_offsets)
        .option("failOnDataLoss", str(kafka.fail_on_data_loss).lower())
        .option("maxOffsetsPerTrigger", limit)
        .option("includeHeaders", "true")  # a bad record is stored with its headers
    )
    if kafka.min_partitions:
        reader = reader.option("minPartitions", kafka.min_partitions)
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
        .option("lineSep", "\n")  # the default would also end a line at \r
        .option("recursiveFileLookup", "true")
        .option("maxFileAge", "36500d")  # the default silently skips files a week older than the newest
        .option("maxBytesPerTrigger", options.source.limit)
    )
    return _text_rows(reader.load(options.files.root))


def plan_lines(spark: SparkSession, folder: str) -> DataFrame:
    """Plans as rows: one plan is one batch. Data files may be among them, in a batch that an earlier version planned."""
    spark.conf.set(
        "spark.sql.files.openCostInBytes", "1"
    )  # so that a plan of some hundred bytes is split for the tasks
    reader = (
        spark.readStream.format("text")
        .option("lineSep", "\n")
        .option("maxFileAge", "36500d")
        .option("maxFilesPerTrigger", 1)
        .option("fileNameOnly", "true")  # the checkpoint may be moved, with the plans in it
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
    files: PlanReader | None = None,
    notes: SchemaNotes | None = None,
    exchange: TaskFiles | None = None,
) -> DataFrame:
    """The decoded records, good and bad, packed by key group: ``kg`` (its label) and ``rows`` (``KeyDecoder.keys``).

    The group is crc32 of the key modulo the number of groups. Bad and skipped records, which have no key, are
    distributed by position. ``notes``: where tasks write schemas of records that change the table's. ``exchange``: where
    the packed rows stay; None: they go through the shuffle.
    """
    keys = make_key_function(spec, labels, partition_depth, files, notes, exchange)
    return raw.mapInArrow(keys, "kg int, rows binary")


def key_group_label(key: Column, labels: tuple[int, ...]) -> Column:
    """Label of the key group of a key (binary, without the first byte of a state key)."""
    index = F.pmod(F.crc32(key), F.lit(len(labels)))
    return F.element_at(F.array(*[F.lit(x) for x in labels]), (index + 1).cast("int"))


def make_key_function(
    spec: DecodeSpec,
    labels: tuple[int, ...],
    partition_depth: PartitionDepth,
    files: PlanReader | None = None,
    notes: SchemaNotes | None = None,
    exchange: TaskFiles | None = None,
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the ``mapInArrow`` function that decodes records. It also assigns positions to the lines of files.

    ``partition_depth``: depth of the table's partitions, or a function that returns it for a task's batch. ``files``:
    the rows are plans, whose files are read here.
    """

    def keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        decoder = cached_decoder(spec)
        noticed: list[Noticed] = []
        if notes is not None:
            notes.raise_again()
        depth = partition_depth() if callable(partition_depth) else partition_depth
        with task_file(exchange, "keys") as file:
            for raw in raw_batches(batches, spec, files):
                keyed = decoder.keys(raw, depth)
                table = decoder.first_table()
                if table is not None:
                    raise TableSeenError(seen_text(table))
                noticed += [] if decoder.watch is None or notes is None else decoder.watch.take()
                if not noticed:  # otherwise the batch is processed again
                    yield pack_by_group(pa.Table.from_batches([keyed]), labels, file)
        if notes is not None and noticed:
            notes.leave(noticed)

    return keys


def raw_batches(
    batches: Iterable[pa.RecordBatch], spec: DecodeSpec, files: PlanReader | None
) -> Iterator[pa.RecordBatch]:
    """The raw records of a task with their positions, in blocks that are large enough for column operations."""
    for rows in in_blocks(_records(batches, spec, files)):
        given = [*RAW_COLUMNS, *(name for name in _MORE_COLUMNS if name in rows.column_names)]
        columns = {name: flat(rows.column(name)) for name in given}
        yield pa.RecordBatch.from_pydict(columns, metadata=rows.schema.metadata)


def _records(batches: Iterable[pa.RecordBatch], spec: DecodeSpec, files: PlanReader | None) -> Iterator[pa.RecordBatch]:
    """The records of a task with their positions: unchanged from Kafka, counted through a file, or read for a plan."""
    if not spec.files:
        yield from batches
        return
    lines = LinePositions()
    for rows in (rows for block in in_blocks(batches) for rows in block.combine_chunks().to_batches()):
        planned = plan_rows(rows.column("src")) if files is not None else np.zeros(rows.num_rows, np.bool_)
        if files is not None and planned.any():
            tasks = rows.column("value").filter(pa.array(planned)).to_pylist()
            yield from files.planned(tasks, spec.field_types)
        if not planned.all():
            data = rows.filter(pa.array(~planned)) if planned.any() else rows
            columns = {name: data.column(name) for name in RAW_COLUMNS}
            columns["pos_lo"] = lines.assign(columns["src"], data.column("block_start"), columns["value"])
            yield pa.RecordBatch.from_pydict(columns)


def in_blocks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine small batches of one schema: a column operation costs the same for a thousand records as for ten."""
    block: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if block and not batch.schema.equals(block[0].schema, check_metadata=True):
            yield pa.Table.from_batches(block)
            block, rows, size = [], 0, 0
        block.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _BLOCK_ROWS or size >= _BLOCK_BYTES:
            yield pa.Table.from_batches(block)
            block, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(block)


def pack_by_group(keyed: pa.Table, labels: tuple[int, ...], file: TaskFile | None = None) -> pa.RecordBatch:
    """Keyed records as ``kg`` and ``rows``. ``file``: where the rows stay, see ``pack``."""
    truncates = keyed.filter(pa.array((keyed.column("flags").to_numpy() & FLAG_TRUNCATE) != 0))
    keyed = with_images(keyed)
    bad = (keyed.column("flags").to_numpy() & (FLAG_BAD | FLAG_SKIPPED)) != 0
    groups = state_key_groups(flat(keyed.column("skey")), len(labels)).astype(np.int64)
    groups[bad] = keyed.column("pos_lo").to_numpy()[bad] % len(labels)
    packed: list[tuple[int, bytes | None]] = []
    for group, mine in split(keyed, groups):
        for value in pack(mine, file):
            packed += [(labels[group], value), *[(labels[group], None)] * empty_rows(value)]
    if truncates.num_rows:  # a truncate is for the whole table, so every key group gets it
        i = truncates.schema.get_field_index("flags")
        told = truncates.set_column(i, "flags", pa.array(np.full(truncates.num_rows, FLAG_TRUNCATE, np.int8)))
        packed += [(label, value) for value in pack(told, file) for label in labels]
    return pa.RecordBatch.from_arrays(
        [pa.array([label for label, _ in packed], pa.int32()), pa.array([value for _, value in packed], pa.binary())],
        names=["kg", "rows"],
    )
