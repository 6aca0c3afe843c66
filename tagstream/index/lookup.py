"""Look up keys in file slices, in Spark tasks. BLOOM and SIMPLE and their global forms use this.

The distinct keys of a batch are sorted. Every task gets all of them in a broadcast. A task is a list of slices with the
range of these keys that each slice may have. It returns only the keys that were found. Slices are spread over tasks by
their cost.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import Accumulator, Broadcast
from pyspark.sql import DataFrame, SparkSession

from tagstream.index.base import TableAsOf, location_schema
from tagstream.spark_release import to_arrow
from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.base_file import read_footer
from tagstream.table.file_group.bloom import BloomFilter
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.names import join, split
from tagstream.table.metadata.metadata_table import BLOOM_FILTERS_PARTITION, MetadataTable, bloom_filters
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import key_reader, lookup_slice
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.storage.storage import Storage

EVERYWHERE = ""  # the only range of a global index, whose keys are looked up in all partitions


@dataclass(frozen=True)
class BatchKeys:
    """``keys``: strings in bytewise order within their partition. ``ranges``: for each partition its indexes [from, to).

    A global index has one range, :data:`EVERYWHERE`.
    """

    keys: pa.Array
    ranges: Mapping[str, tuple[int, int]]

    def slice(self, start: int, stop: int) -> pa.Array:
        """The keys with indexes from start up to stop."""
        return self.keys.slice(start, stop - start)


def collect_keys(records: DataFrame, *, is_global: bool) -> BatchKeys:
    """Collect the distinct keys of a batch on the driver. They take about as many bytes as the keys have.

    ``records``: as in ``HoodieIndex.tag_location``. ``is_global``: ignore partitions.
    """
    columns = ["record_key"] if is_global else ["partition_path", "record_key"]
    found = to_arrow(records.select(*columns)).combine_chunks()
    found = found.group_by(columns).aggregate([]).sort_by([(name, "ascending") for name in columns])
    keys = _flat(found.column("record_key"))
    if is_global:
        return BatchKeys(keys, {EVERYWHERE: (0, len(keys))} if len(keys) else {})
    runs = pc.run_end_encode(_flat(found.column("partition_path")))
    ends = [0, *runs.run_ends.to_pylist()]
    return BatchKeys(keys, {p: (ends[i], ends[i + 1]) for i, p in enumerate(runs.values.to_pylist())})


class KeyRanges:
    """Finds the keys of a batch that lie between two keys. ``tree``: by bisection; else every key is compared."""

    def __init__(self, keys: BatchKeys, *, tree: bool) -> None:
        self._keys = keys.keys
        self._sorted = keys.keys.to_pylist() if tree else None

    def between(self, low: str, high: str, start: int, stop: int) -> tuple[int, int]:
        """First and last + 1 index of the keys in start..stop that are at least ``low`` and at most ``high``."""
        if self._sorted is not None:
            # Python compares strings by code point, which is the order of their UTF-8 bytes.
            first = bisect_left(self._sorted, low, start, stop)
            return first, max(first, bisect_right(self._sorted, high, start, stop))
        mine = self._keys.slice(start, stop - start)
        first = start + (pc.sum(pc.less(mine, low)).as_py() or 0)
        return first, max(first, start + (pc.sum(pc.less_equal(mine, high)).as_py() or 0))


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks().cast(pa.string())


_FILTERS_AT_ONCE = 32  # about 16 MB with Hudi's defaults


@dataclass(frozen=True)
class SliceTask:
    """A slice and the range start..stop of keys to look up; those in base_start..base_stop are in its base file's range.

    ``bloom``: check the base file's filter before the file is read.
    """

    file_slice: FileSlice
    start: int
    stop: int
    base_start: int
    base_stop: int
    bloom: bool

    @property
    def comparisons(self) -> int:
        """Number of keys to compare with the base file."""
        return self.base_stop - self.base_start


@dataclass(frozen=True)
class LookupCounts:
    """Spark accumulators of one lookup: base files whose filter was checked, keys checked, keys kept, keys found."""

    filters: Accumulator[int]
    asked: Accumulator[int]
    candidates: Accumulator[int]
    found: Accumulator[int]

    @staticmethod
    def create(spark: SparkSession) -> LookupCounts:
        """All zero."""
        made = [spark.sparkContext.accumulator(0) for _ in range(4)]
        return LookupCounts(*made)


@dataclass(frozen=True)
class _Job:
    reader: SliceReader
    encode: Callable[[pa.Array], pa.Array]
    sql_type: str
    tasks: Sequence[Sequence[SliceTask]]
    keys: BatchKeys
    use_metadata: bool = False

    def filters(self, tasks: Sequence[SliceTask]) -> dict[str, BloomFilter]:
        """Filters in the metadata table of the tasks' base files, by path. Files without keys to compare are skipped."""
        if not self.use_metadata:
            return {}
        metadata = MetadataTable.open(self.reader.table, self.reader.timeline)
        if metadata is None or BLOOM_FILTERS_PARTITION not in metadata.partitions:
            return {}
        paths = [t.file_slice.base_path for t in tasks if t.bloom and t.comparisons]
        return {join(*file): found for file, found in bloom_filters(metadata, [split(p) for p in paths if p]).items()}


class Lookup:
    """Runs one lookup at a time. :meth:`close` removes its broadcast after the batch."""

    def __init__(self) -> None:
        self._sent: list[Broadcast[_Job]] = []
        self.counts: LookupCounts | None = None

    def run(
        self, look: TableAsOf, keys: BatchKeys, tasks: Sequence[Sequence[SliceTask]], *, use_metadata: bool = False
    ) -> DataFrame:
        """The locations of the keys (``index.base.location_schema``). Nothing is read before Spark needs it.

        ``use_metadata``: bloom filters come from the table's metadata table, where it has them.
        """
        schema = location_schema(look.ordering.sql_type)
        if not tasks or look.as_of is None:
            return look.spark.createDataFrame([], schema)
        reader = key_reader(look.table, look.timeline, look.as_of, look.ordering.type)
        job = _Job(reader, look.ordering.encode, look.ordering.sql_type, tasks, keys, use_metadata)
        sent = look.spark.sparkContext.broadcast(job)
        self._sent.append(sent)
        self.counts = LookupCounts.create(look.spark)
        return look.spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(_make_task(sent, self.counts), schema)

    def close(self) -> None:
        """Remove the keys from the executors."""
        for sent in self._sent:
            sent.destroy()
        self._sent.clear()


def scan_all(look: TableAsOf) -> Iterator[pa.Table]:
    """Every live key of the table with its location (``location_schema`` without ordering values), as one Arrow table."""
    slices = look.slices()
    if not slices or look.as_of is None:
        return
    spark, reader = look.spark, key_reader(look.table, look.timeline, look.as_of, None)
    sent = spark.sparkContext.broadcast((reader, tuple(slices)))
    try:
        tasks = min(len(slices), 4 * spark.sparkContext.defaultParallelism)
        frame = spark.range(0, len(slices), 1, tasks).mapInArrow(_make_scan(sent), _SCAN_SCHEMA)
        yield to_arrow(frame)
    finally:
        sent.destroy()


_SCAN_SCHEMA = "record_key string, partition_path string, file_id string, instant string"


def _make_scan(
    sent: Broadcast[tuple[SliceReader, tuple[FileSlice, ...]]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        reader, slices = sent.value
        for batch in batches:
            for number in batch.column(0).to_pylist():
                at = slices[number]
                for rows in reader.read(at):
                    keys = rows.column(RECORD_KEY).combine_chunks().cast(pa.string())
                    places = (at.partition_path, at.file_id, at.base_instant)
                    columns = [keys, *(pa.repeat(pa.scalar(text), len(keys)) for text in places)]
                    yield pa.RecordBatch.from_arrays(columns, _SCAN_NAMES)

    return scan


_SCAN_NAMES = ["record_key", "partition_path", "file_id", "instant"]


def _make_task(
    sent: Broadcast[_Job], counts: LookupCounts
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        job = sent.value
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part in batched_tasks(job.tasks[number]):
                    known = job.filters(part)
                    for task in part:
                        yield from _look(job, task, known, counts)

    return run


def batched_tasks(tasks: Sequence[SliceTask]) -> Iterator[Sequence[SliceTask]]:
    """Groups of tasks whose filters are looked up together and are in memory together."""
    for start in range(0, len(tasks), _FILTERS_AT_ONCE):
        yield tasks[start : start + _FILTERS_AT_ONCE]


def _look(
    job: _Job, task: SliceTask, known: Mapping[str, BloomFilter], counts: LookupCounts
) -> Iterator[pa.RecordBatch]:
    keys = job.keys.slice(task.start, task.stop)
    in_base = job.keys.slice(task.base_start, task.base_stop)
    base_path = task.file_slice.base_path
    if base_path is None:
        in_base = in_base.slice(0, 0)
    elif task.bloom and len(in_base):
        filters = known.get(base_path) or read_filter(job.reader.table.storage, base_path)
        if filters is not None:
            counts.filters.add(1)
            counts.asked.add(len(in_base))
            in_base = in_base.filter(pa.array(filters.might_contain(in_base)))
            counts.candidates.add(len(in_base))
    found, ordering = lookup_slice(job.reader, task.file_slice, keys, in_base)
    counts.found.add(len(found))
    if len(found):
        yield _located(job, task.file_slice, found, ordering)


def read_filter(storage: Storage, rel: str) -> BloomFilter | None:
    """The filter in a base file's footer; None when there is no usable one, and then every key is a candidate."""
    try:
        return read_footer(storage, rel).bloom
    except (CorruptFileError, UnsupportedTableError):
        # If the file itself is damaged, reading its keys shows it.
        return None


def _located(job: _Job, file_slice: FileSlice, keys: pa.Array, ordering: pa.Array | None) -> pa.RecordBatch:
    n = len(keys)
    kind = pa.binary() if job.sql_type == "binary" else pa.int64()
    return pa.RecordBatch.from_pydict(
        {
            "record_key": keys,
            "partition_path": pa.repeat(pa.scalar(file_slice.partition_path), n),
            "file_id": pa.repeat(pa.scalar(file_slice.file_id), n),
            "instant": pa.repeat(pa.scalar(file_slice.base_instant), n),
            "ord": job.encode(ordering) if ordering is not None else pa.nulls(n, kind),
        }
    )


T = TypeVar("T")


def pack(items: Sequence[T], cost: Callable[[T], float], tasks: int) -> list[list[T]]:
    """At most ``tasks`` lists of about equal cost: the most expensive item first, each into the cheapest list so far."""
    heap = [(0.0, i) for i in range(min(tasks, len(items)))]
    packed: list[list[T]] = [[] for _ in heap]
    for item in sorted(items, key=cost, reverse=True):
        total, i = heapq.heappop(heap)
        packed[i].append(item)
        heapq.heappush(heap, (total + cost(item), i))
    return packed


def cut(items: Sequence[T], cost: Callable[[T], float], tasks: int) -> list[list[T]]:
    """The items in their order, split into at most ``tasks`` runs of about equal cost."""
    share = sum(map(cost, items)) / max(1, tasks)
    runs: list[list[T]] = []
    done = 0.0
    for item in items:
        if not runs or (done >= share * len(runs) and len(runs) < tasks):
            runs.append([])
        runs[-1].append(item)
        done += cost(item)
    return runs
