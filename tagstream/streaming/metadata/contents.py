"""What a table has, as its new metadata table is told: every committed file, its ranges, and where each key is.

Files are looked at by Spark's tasks, and so are keys; the driver holds one entry a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from tagstream.table.file_group.committed import committed_entries
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.partition_metadata import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.encode.column_ranges import ranges_from_json, ranges_to_json
from tagstream.table.metadata.encode.locations import PLACES, instant_ms
from tagstream.table.metadata.write.changes import Changes, PartitionChange, WrittenFile
from tagstream.table.metadata.write.file_looks import look_at_file
from tagstream.table.metadata.write.layout import groups_of_keys
from tagstream.table.read.slice_lookup import key_reader
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import snapshot_schema
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.timeline.timeline import Timeline

_FILES_A_TASK = 64
PLACE_SCHEMA = "shard int, record_key string, partition_path string, file_id string, instant_ms long"


@dataclass(frozen=True)
class Looks:
    """What of each file is wanted: ranges of these columns, and the bloom filters of base files."""

    columns: frozenset[str] = frozenset()
    blooms: bool = False

    def __bool__(self) -> bool:
        return bool(self.columns) or self.blooms


def committed_files(table: HoodieTable, timeline: Timeline) -> dict[str, dict[str, int]]:
    """Sizes by name of every file of a completed instant, by partition path; older slices are among them."""
    partitions = table.view(timeline).partitions()
    return {path: committed_entries(table.storage.list(path), timeline) for path in partitions}


def changes_of(table: HoodieTable, files: dict[str, dict[str, int]], looks: Looks, spark: SparkSession) -> Changes:
    """The files as of one commit that wrote all of them."""
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
    table: HoodieTable, files: list[tuple[str, str]], looks: Looks, spark: SparkSession
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
    table: HoodieTable, partition: str, name: str, looks: Looks, schema: pa.Schema
) -> tuple[dict[str, list[object]], str | None]:
    """A file's ranges in JSON, and the text of its bloom filter (None: of a log file, or a base file without one).

    ``schema``: the table's.
    """
    ranges, bloom = look_at_file(table.storage, join(partition, name), looks.columns, schema)
    return ranges_to_json(ranges), bloom.decode() if looks.blooms and bloom is not None else None


@dataclass(frozen=True)
class PlaceSpec:
    """What the tasks need that read the places of all live keys. ``groups``: file groups of the record index, of each of
    ``data_partitions`` where it is one by partition; those of one partition follow those of the other."""

    reader: SliceReader
    slices: tuple[FileSlice, ...]
    groups: int
    utc: bool
    data_partitions: tuple[str, ...] | None = None

    def first_group(self, partition_path: str) -> int:
        """The number of the first group of a partition's keys."""
        return 0 if self.data_partitions is None else self.groups * self.data_partitions.index(partition_path)


def place_spec(
    table: HoodieTable, timeline: Timeline, groups: int, data_partitions: tuple[str, ...] | None = None
) -> PlaceSpec | None:
    """None where the table has no rows."""
    view = table.view(timeline)
    if view.as_of is None:
        return None
    slices = tuple(found for part in view.partitions() for found in view.latest_merged_slices(part))
    reader = key_reader(table, timeline, view.as_of, None)
    return PlaceSpec(reader, slices, groups, table.config.timezone_utc, data_partitions) if slices else None


def read_places(spec: PlaceSpec) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For ``mapInArrow`` over numbers of slices: the places of their live keys, with the shard of each."""

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
    """Sorted places cut by their shard: (number, its tables of ``PLACES``). A shard is to be read before the next begins.

    Of a key that is in the table twice the last place counts.
    """
    stream = _Stream(iter(batches))
    while (number := stream.shard) is not None:
        yield number, stream.tables(number)
        for _ in stream.tables(number):
            pass


class _Stream:
    """Batches sorted by shard and key, with a look at what comes next."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._rows: pa.Table | None = None
        self._next()

    @property
    def shard(self) -> int | None:
        """Of the next row; None at the end."""
        return None if self._rows is None else int(self._rows.column("shard")[0].as_py())

    def tables(self, number: int) -> Iterator[pa.Table]:
        """The rest of one shard. The last row of a batch is held back until it is seen that its key does not come again."""
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
