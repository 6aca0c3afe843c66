"""Look keys up in file slices, in Spark tasks: what BLOOM and SIMPLE and their global forms have in common.

A task is a list of slices with the range of the batch's sorted keys that each may hold. The keys travel once, as a
broadcast; what comes back is only what was found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import Accumulator, Broadcast
from pyspark.sql import DataFrame, SparkSession

from tagstream.index.base import TableAsOf, location_schema
from tagstream.index.family.batch_keys import BatchKeys
from tagstream.spark_release import to_arrow
from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.base_file import read_footer
from tagstream.table.file_group.bloom import BloomFilter
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.partition_metadata import join, split
from tagstream.table.metadata.bloom_filters import bloom_filters
from tagstream.table.metadata.metadata_table import BLOOM_FILTERS_PARTITION, MetadataTable
from tagstream.table.read.slice_lookup import key_reader, lookup_slice
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.storage.storage import Storage

_FILTERS_AT_ONCE = 32  # some 16 MB with Hudi's defaults


@dataclass(frozen=True)
class SliceTask:
    """A slice and the keys start..stop to look for; those in base_start..base_stop are within its base file's range.

    ``bloom``: ask the base file's filter before the file is read.
    """

    file_slice: FileSlice
    start: int
    stop: int
    base_start: int
    base_stop: int
    bloom: bool

    @property
    def comparisons(self) -> int:
        """Keys to compare with the base file."""
        return self.base_stop - self.base_start


@dataclass(frozen=True)
class LookupCounts:
    """Spark accumulators of one look-up: base files whose filter was asked, keys asked, kept by the filters, found."""

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
        """Filters that the metadata table has of the tasks' base files, by path; none is read for a file without keys."""
        if not self.use_metadata:
            return {}
        metadata = MetadataTable.open(self.reader.table, self.reader.timeline)
        if metadata is None or BLOOM_FILTERS_PARTITION not in metadata.partitions:
            return {}
        paths = [t.file_slice.base_path for t in tasks if t.bloom and t.comparisons]
        return {join(*file): found for file, found in bloom_filters(metadata, [split(p) for p in paths if p]).items()}


class Lookup:
    """One look-up at a time; :meth:`close` lets its broadcast go once the batch is done."""

    def __init__(self) -> None:
        self._sent: list[Broadcast[_Job]] = []
        self.counts: LookupCounts | None = None

    def run(
        self, look: TableAsOf, keys: BatchKeys, tasks: Sequence[Sequence[SliceTask]], *, use_metadata: bool = False
    ) -> DataFrame:
        """The places of the keys (``index.base.location_schema``); nothing is read before Spark needs it.

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
    """Every live key of the table with its place (``index.base.location_schema``, no ordering values), a slice at a time."""
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
    """Tasks whose filters are looked up, and held, together."""
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
    """The filter of a base file's footer; None where it has none that can be asked, and every key is a candidate."""
    try:
        return read_footer(storage, rel).bloom
    except (CorruptFileError, UnsupportedTableError):
        # Whether the file itself is damaged shows when its keys are read, which now must be done.
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
