"""The stream's source as raw records with their position, and their key columns as the tag step takes them.

A position grows through a file, also when Spark cuts it into blocks. It orders records of equal ordering value.
Spark names the block a line came from, not the line's offset; lines of a block arrive in order, so the running sum
of their lengths gives it. In a block that begins inside the file the first, cut line belongs to the block before,
so the true offset is at least one byte greater than the sum: the one is added, which keeps every position of a
block below those of the next.

Schemas that tasks have noticed reach the driver as a file of each task in the checkpoint: a schema is too long for
an error's text. The task that has read records of a schema with something new writes it down, when it has read all
of its records, and then fails: the batch ends before anything is tagged.
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

from tagstream.state.layout import state_key_groups
from tagstream.state.tag_batch import FLAG_DELETE, FLAG_NO_ORDERING, FLAG_NO_PARTITION
from tagstream.streaming.errors import SchemaChangedError, TableSeenError
from tagstream.streaming.options.options import Options
from tagstream.streaming.source.decode.key_decoder import FLAG_BAD, FLAG_EMPTIED, FLAG_IMAGE, FLAG_SKIPPED, HEADERS
from tagstream.streaming.source.decode.record_format import Noticed
from tagstream.streaming.source.decode.record_schemas import in_order, notes_from_json, notes_to_json
from tagstream.streaming.source.decode.row_messages import seen_text
from tagstream.streaming.source.decode_spec import DecodeSpec, cached_decoder
from tagstream.streaming.source.file_reader import RAW_SCHEMA, FilesSpec, plan_rows, planned_lines
from tagstream.streaming.source.kafka_topic import events_a_batch
from tagstream.streaming.source.packed import empty_rows, pack, split
from tagstream.table.storage.storage import Storage, create


def with_images(keyed: pa.Table) -> pa.Table:
    """Behind the records a question for each row of another key that one lacks values of: it goes to that key's group.

    A delete whose key changed asks for its own row, for the new key's record may come in a later batch (``FLAG_DELETE``);
    and where that came in an earlier one, which could not know all of the old key's events, the row of the new key is to be
    mended (``FLAG_NO_PARTITION``) by the old key's, which is asked for once more.
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
    """A question for the row of each of ``keys``; ``keep``: flags of the records that it has too, ``more``: others."""
    flags = (of.column("flags").to_numpy() & keep) | more | FLAG_IMAGE
    given = {"skey": keys, "ord": of.column("ord"), "flags": pa.array(flags.astype(np.int8))}
    given |= {name: of.column(name) for name in ("pos_hi", "pos_lo")}
    given |= {} if old is None else {"old": old}
    columns = [given.get(f.name, pa.nulls(of.num_rows, f.type)) for f in of.schema]
    return pa.Table.from_arrays(columns, schema=of.schema)


class LinePositions:
    """Gives int64 positions to successive Arrow batches of one task's lines."""

    def __init__(self) -> None:
        self._block: tuple[str, int] | None = None
        self._next = 0

    def assign(self, paths: pa.Array, block_start: pa.Array, values: pa.Array) -> pa.Array:
        """Positions of the lines ``values`` (binary) that came from ``paths`` at ``block_start`` (bytes)."""
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
        if here == self._block:  # the block goes on from the batch before
            base[0] = self._next - before[0]
        position = before + np.repeat(base, np.diff(np.append(first, n)))
        self._block = (codes.dictionary[int(code[-1])].as_py(), int(start[-1]))
        self._next = int(position[-1] + length[-1])
        return pa.array(position, pa.int64())


@dataclass(frozen=True)
class SchemaNotes:
    """``folder``: where the notes are; ``start``: number of the query's start in this run, which no other one has."""

    folder: Storage
    start: str

    def leave(self, noticed: Sequence[Noticed]) -> None:
        """Write a task's notes down; SchemaChangedError, always."""
        create(self.folder, self._name(), notes_to_json(in_order(noticed)))
        raise SchemaChangedError(_words(noticed))

    def raise_again(self) -> None:
        """SchemaChangedError in a further attempt of a task that has left notes: they are all it was run for."""
        context = TaskContext.get()
        if context is not None and context.attemptNumber() and self.folder.exists(self._name()):
            raise SchemaChangedError(_words(notes_from_json(self.folder.read(self._name()))))

    def read(self) -> list[Noticed]:
        """All that was left at this start, older schemas first."""
        mine = [name for name in self.folder.names("") if name.startswith(f"{self.start}-")]
        return in_order([item for name in mine for item in notes_from_json(self.folder.read(name))])

    def _name(self) -> str:
        context = TaskContext.get()
        assert context is not None
        return f"{self.start}-{context.stageId()}-{context.partitionId()}.json"


def _words(noticed: Sequence[Noticed]) -> str:
    sources = ", ".join(dict.fromkeys(item.source for item in in_order(noticed)))
    return f"records have what the table's schema lacks ({sources}); their batch is done again with the schema changed"


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
    ``plans``: the folder of the plans (``streaming.source.file_plans``) that are read in place of the files themselves.

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
