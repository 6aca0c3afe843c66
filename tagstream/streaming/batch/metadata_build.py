"""Make a metadata table for a table that has commits, from its files and record keys.

The new metadata table has every committed file, its column ranges, and the location of each record key. Spark's tasks
read the files and the keys in bounded memory. The driver holds one entry per file.

No instant may be pending on the table's timeline, and the caller holds the table's lease: the metadata table would lack
a write that is made in the meantime. Files of an earlier attempt are removed first. Readers use the metadata table once
the table's properties name it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from tagstream.table.file_group.fs_view import FileSlice, committed_entries
from tagstream.table.file_group.names import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.changes import Changes, PartitionChange, WrittenFile
from tagstream.table.metadata.column_ranges import ranges_from_json, ranges_to_json, read_file_stats
from tagstream.table.metadata.metadata_table import (
    BLOOM_FILTERS_PARTITION,
    COLUMN_STATS_PARTITION,
    PARTITION_STATS_PARTITION,
    RECORD_INDEX_PARTITION,
)
from tagstream.table.metadata.metadata_writer import MetadataWriter, Times, groups_of_keys, in_making_order
from tagstream.table.metadata.partitions import (
    InitialPartition,
    begin_partition,
    complete_partition,
    create_metadata_table,
    register,
    write_index_shard,
    write_records,
)
from tagstream.table.metadata.record_encoding import PLACES, instant_ms
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import key_reader, snapshot_schema
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.timeline.commit_metadata import WriteStat
from tagstream.table.timeline.timeline import Timeline

_FILES_A_TASK = 64
PLACE_SCHEMA = "shard int, record_key string, partition_path string, file_id string, instant_ms long"


@dataclass(frozen=True)
class FileFacts:
    """What is read from each file: the ranges of these columns, and the bloom filters of base files."""

    columns: frozenset[str] = frozenset()
    blooms: bool = False

    def __bool__(self) -> bool:
        return bool(self.columns) or self.blooms


def committed_files(table: HoodieTable, timeline: Timeline) -> dict[str, dict[str, int]]:
    """Sizes by name of every file of a completed instant, by partition path. Older slices are included."""
    partitions = table.view(timeline).partitions()
    return {path: committed_entries(table.storage.list(path), timeline) for path in partitions}


def changes_of(table: HoodieTable, files: dict[str, dict[str, int]], looks: FileFacts, spark: SparkSession) -> Changes:
    """The table's files as the changes of one commit that wrote all of them. Spark's tasks read their ranges and bloom
    filters.
    """
    told = _look_at(table, [(p, name) for p, names in files.items() for name in names], looks, spark) if looks else {}
    partitions = {}
    for partition, names in files.items():
        written = []
        for name, size in names.items():
            ranges, bloom = told.get((partition, name), (None, None))
            written.append(WrittenFile(name, size, None if ranges is None else ranges_from_json(ranges), bloom))
        partitions[partition] = PartitionChange(tuple(written))
    return Changes(partitions=partitions, columns=tuple(looks.columns))


def _look_at(
    table: HoodieTable, files: list[tuple[str, str]], looks: FileFacts, spark: SparkSession
) -> dict[tuple[str, str], tuple[dict[str, list[object]], str | None]]:
    parts = [files[i : i + _FILES_A_TASK] for i in range(0, len(files), _FILES_A_TASK)]
    if not parts:
        return {}

    timeline = table.timeline()
    schema = snapshot_schema(table, timeline, table.view(timeline))

    def look(chunks: Iterable[list[tuple[str, str]]]) -> Iterator[str]:
        for chunk in chunks:
            for partition, name in chunk:
                yield json.dumps([partition, name, *look_at(table, partition, name, looks, schema)])

    rows = spark.sparkContext.parallelize(parts, len(parts)).mapPartitions(look).collect()
    return {(partition, name): (ranges, bloom) for partition, name, ranges, bloom in map(json.loads, rows)}


def look_at(
    table: HoodieTable, partition: str, name: str, looks: FileFacts, schema: pa.Schema
) -> tuple[dict[str, list[object]], str | None]:
    """A file's ranges in JSON, and the text of its bloom filter. That is None for a log file and for a base file
    without one.

    ``schema``: the table's.
    """
    ranges, bloom = read_file_stats(table.storage, join(partition, name), looks.columns, schema)
    return ranges_to_json(ranges), bloom.decode() if looks.blooms and bloom is not None else None


@dataclass(frozen=True)
class PlaceSpec:
    """Constants of the tasks that read the locations of all live keys.

    ``groups``: number of file groups of the record index. A record index by partition has so many for each of
    ``data_partitions``, numbered one partition after the other.
    """

    reader: SliceReader
    slices: tuple[FileSlice, ...]
    groups: int
    utc: bool
    data_partitions: tuple[str, ...] | None = None

    def first_group(self, partition_path: str) -> int:
        """The number of the first file group for a partition's keys."""
        return 0 if self.data_partitions is None else self.groups * self.data_partitions.index(partition_path)


def place_spec(
    table: HoodieTable, timeline: Timeline, groups: int, data_partitions: tuple[str, ...] | None = None
) -> PlaceSpec | None:
    """The constants for a table as of ``timeline``; None where the table has no rows."""
    view = table.view(timeline)
    if view.as_of is None:
        return None
    slices = tuple(found for part in view.partitions() for found in view.latest_merged_slices(part))
    reader = key_reader(table, timeline, view.as_of, None)
    return PlaceSpec(reader, slices, groups, table.config.timezone_utc, data_partitions) if slices else None


def read_places(spec: PlaceSpec) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function for ``mapInArrow`` over slice numbers. It returns the locations of their live keys and the
    shard of each.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                at = spec.slices[number]
                for rows in spec.reader.read(at):
                    if rows.num_rows:
                        yield _places(rows, at, spec)

    return run


def _places(rows: pa.Table, at: FileSlice, spec: PlaceSpec) -> pa.RecordBatch:
    n = rows.num_rows
    keys = rows.column(RECORD_KEY).combine_chunks().cast(pa.string())
    shards = groups_of_keys(keys, spec.groups) + spec.first_group(at.partition_path)
    time = instant_ms(at.base_instant, spec.utc)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(shards, pa.int32()),
            keys,
            pa.repeat(pa.scalar(at.partition_path), n),
            pa.repeat(pa.scalar(at.file_id), n),
            pa.repeat(pa.scalar(time, pa.int64()), n),
        ],
        names=["shard", *PLACES.names],
    )


def shards_in(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Iterator[pa.Table]]]:
    """Split sorted locations by shard: (shard number, its tables of ``PLACES``). Read a shard before you ask for the
    next one.

    For a key that the table has twice, the last location counts.
    """
    stream = _Stream(iter(batches))
    while (number := stream.shard) is not None:
        yield number, stream.tables(number)
        for _ in stream.tables(number):
            pass


class _Stream:
    """Batches sorted by shard and key. The next row is always known."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rows: pa.Table | None = None
        self._next()

    @property
    def shard(self) -> int | None:
        """Shard of the next row; None at the end."""
        return None if self._rows is None else int(self._rows.column("shard")[0].as_py())

    def tables(self, number: int) -> Iterator[pa.Table]:
        """The remaining tables of one shard.

        The last row of a batch is not returned until the next batch shows that its key does not repeat.
        """
        held: pa.Table | None = None
        while self._rows is not None and self.shard == number:
            own = self._rows.filter(pc.equal(self._rows.column("shard"), number))
            rest = self._rows.slice(own.num_rows)
            own = own.select(PLACES.names)
            rows = own if held is None else pa.concat_tables([held, own])
            rows = _last_of_each(rows)
            held = rows.slice(rows.num_rows - 1)
            if rows.num_rows > 1:
                yield rows.slice(0, rows.num_rows - 1)
            if rest.num_rows:
                self._rows = rest
            else:
                self._next()
        if held is not None:
            yield held

    def _next(self) -> None:
        self._rows = None
        for batch in self._batches:
            if batch.num_rows:
                self._rows = pa.Table.from_batches([batch])
                return


def _last_of_each(rows: pa.Table) -> pa.Table:
    keys = rows.column("record_key").combine_chunks()
    if len(keys) < 2:
        return rows
    differs = pc.not_equal(keys[:-1], keys[1:])
    return rows.filter(pa.concat_arrays([differs, pa.array([True])]))


_MOST_TASKS = 10_000  # a record index by partition may have more file groups; then a task writes several of them

LOG = logging.getLogger("tagstream")


def build(
    table: HoodieTable,
    groups: dict[str, int],
    columns: Iterable[str],
    spark: SparkSession,
    times: Times,
    clock_ms: Callable[[], int],
    *,
    partitioned_index: bool = False,
) -> HoodieTable:
    """Make the table's metadata table, or add partitions to the one that it has. Returns the table with it.

    ``groups``: number of file groups of each new partition, by name. It includes ``files`` where the table has no
    metadata table yet. ``columns``: columns of the statistics. ``partitioned_index``: a record index in ``groups`` gets
    so many file groups for each partition of the table.
    """
    begun = clock_ms()
    timeline = table.timeline()
    with_ranges = COLUMN_STATS_PARTITION in groups or PARTITION_STATS_PARTITION in groups
    _warn_of_logs_alone(table, timeline)
    looks = FileFacts(frozenset(columns) if with_ranges else frozenset(), BLOOM_FILTERS_PARTITION in groups)
    files = committed_files(table, timeline)
    changes = changes_of(table, files, looks, spark)
    writer = MetadataWriter.open(table) or create_metadata_table(table, begun)
    for name in in_making_order(groups, table.config.version):
        by_partition = partitioned_index and name == RECORD_INDEX_PARTITION
        initial = begin_partition(writer, name, groups[name], sorted(files) if by_partition else None)
        if name == RECORD_INDEX_PARTITION:
            stats = _index(initial, table, timeline, spark)
        else:
            stats = write_records(initial, changes)
        complete_partition(initial, stats, times)
    form = partitioned_index if RECORD_INDEX_PARTITION in groups else None
    table = register(table, groups, tuple(columns), clock_ms(), form)
    LOG.info(
        "table %s: made the metadata table's partitions %s from %s files in %.1f s",
        table.base_path,
        ", ".join(in_making_order(groups, table.config.version)),
        f"{sum(map(len, files.values())):,}",
        (clock_ms() - begun) / 1000,
    )
    return table


def _warn_of_logs_alone(table: HoodieTable, timeline: Timeline) -> None:
    if not table.config.has_completion_times or not table.config.is_merge_on_read:
        return
    view = table.view(timeline)
    alone = sum(found.base_file is None for part in view.partitions() for found in view.latest_merged_slices(part))
    if alone:
        LOG.warning(
            "table %s: %s file groups have only log files; hudi-rs skips such file groups when a metadata table lists them: "
            "if hudi-rs reads the table, compact it or set hoodie.metadata.enable=false",
            table.base_path,
            f"{alone:,}",
        )


def _index(initial: InitialPartition, table: HoodieTable, timeline: Timeline, spark: SparkSession) -> list[WriteStat]:
    spec = place_spec(table, timeline, initial.groups, initial.data_partitions)
    found = {} if spec is None else _shards(initial, spec, spark)
    rest = (write_index_shard(initial, number, ()) for number in range(initial.total) if number not in found)
    assert all(stat is None for stat in rest)
    return [stat for _, stat in sorted(found.items())]


def _shards(initial: InitialPartition, spec: PlaceSpec, spark: SparkSession) -> dict[int, WriteStat]:
    tasks = min(len(spec.slices), 4 * spark.sparkContext.defaultParallelism)
    places = spark.range(0, len(spec.slices), 1, tasks).mapInArrow(read_places(spec), PLACE_SCHEMA)
    ordered = places.repartition(min(initial.total, _MOST_TASKS), "shard").sortWithinPartitions("shard", "record_key")

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, tables in shards_in(batches):
            stat = write_index_shard(initial, number, tables)
            assert stat is not None  # the shard has at least one key
            yield pa.RecordBatch.from_pydict(
                {"number": pa.array([number], pa.int32()), "stat": [json.dumps(stat.to_json())]}
            )

    rows = ordered.mapInArrow(write, "number int, stat string").collect()
    return {number: WriteStat.from_json(json.loads(text)) for number, text in rows}
