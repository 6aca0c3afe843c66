"""BLOOM and GLOBAL_BLOOM: base files by key range, then by the bloom filter in their footers, then by their keys.

The keys of a batch are sorted, so those in a file's range are one run of them: what Hudi explodes into (file,
key) pairs is here a pair of numbers a file. Rows that only logs hold are found too, by reading the logs' keys:
Hudi's own bloom index does not see them, and doubles them when another kind of writer has put them there.

Key ranges are read from the metadata table or from the files' footers, once: a base file never changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tagstream.index.base import HoodieIndex, TableAsOf
from tagstream.index.lookup import KeyRanges, Lookup, LookupCounts, SliceTask, collect_keys, cut, pack
from tagstream.index.simple import all_slices
from tagstream.spark_release import from_arrow
from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.base_file import comparable_range, open_base_file, range_of
from tagstream.table.file_group.names import split
from tagstream.table.metadata.metadata_table import COLUMN_STATS_PARTITION, MetadataTable
from tagstream.table.read.column_stats import metadata_ranges
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.storage.storage import Storage

_SCHEMA = "path string, low string, high string"
_FILES_A_TASK = 64


@dataclass(frozen=True)
class KeyRange:
    """Least and greatest record key of a base file."""

    low: str
    high: str


class RangeCache:
    """Ranges by path; those of files that the table has left behind are forgotten."""

    def __init__(self, *, use_metadata: bool = False) -> None:
        """``use_metadata``: ask the table's metadata table first."""
        self._known: dict[str, KeyRange | None] = {}
        self._use_metadata = use_metadata

    def of(self, look: TableAsOf, paths: Sequence[str]) -> dict[str, KeyRange]:
        """The ranges of base files (paths relative to the table); a file that tells none is left out.

        Footers not seen yet are read by Spark tasks.
        """
        missing = sorted({p for p in paths if p not in self._known})
        if missing and self._use_metadata:
            self._known |= _of_metadata(look, missing)
            missing = [p for p in missing if p not in self._known]
        if missing:
            spark = look.spark
            count = max(1, min(spark.sparkContext.defaultParallelism, -(-len(missing) // _FILES_A_TASK)))
            frame = from_arrow(spark, pa.table({"path": missing}), "path string").repartition(count, F.col("path"))
            for path, low, high in frame.mapInArrow(_make_read(look.table.storage), _SCHEMA).collect():
                self._known[path] = _usable(low, high)
        wanted = set(paths)
        if len(self._known) > 4 * len(wanted) + 10_000:
            self._known = {p: r for p, r in self._known.items() if p in wanted}
        return {p: r for p in wanted if (r := self._known.get(p)) is not None}


def _of_metadata(look: TableAsOf, paths: Sequence[str]) -> dict[str, KeyRange | None]:
    """What the metadata table's column statistics tell of the record keys."""
    metadata = MetadataTable.open(look.table, look.timeline)
    if metadata is None or COLUMN_STATS_PARTITION not in metadata.partitions:
        return {}
    files = {split(path): path for path in paths}
    found = metadata_ranges(metadata, [pa.field(RECORD_KEY, pa.string())], list(files))
    known = {file: ranges[RECORD_KEY] for file, ranges in found.items() if RECORD_KEY in ranges}
    ends = {file: (known[file].lower, known[file].upper) for file in known}
    return {
        files[file]: _usable(lower.as_py(), upper.as_py())
        for file, (lower, upper) in ends.items()
        if lower is not None and upper is not None
    }


def _make_read(storage: Storage) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            paths = batch.column(0).to_pylist()
            found = [_range(storage, path) for path in paths]
            low, high = [r[0] for r in found], [r[1] for r in found]
            yield pa.RecordBatch.from_pydict(
                {"path": paths, "low": pa.array(low, pa.string()), "high": pa.array(high, pa.string())}
            )

    return read


def _range(storage: Storage, path: str) -> tuple[str | None, str | None]:
    """None for a file that cannot be opened: it is read in whole, which names what is wrong with it."""
    try:
        with open_base_file(storage, path) as file:
            return range_of(file.metadata)
    except (CorruptFileError, FileNotFoundError):
        return None, None


def _usable(low: str | None, high: str | None) -> KeyRange | None:
    limits = comparable_range(low, high)
    return None if limits is None else KeyRange(*limits)


LOG = logging.getLogger("tagstream")
_FILE_COST = 20_000  # comparisons that cost as much as opening a file and its filter
_LOG_BYTE_COST = 0.05  # of a byte of log that is read


@dataclass(frozen=True)
class BloomIndexOptions:
    """Hudi's ``hoodie.bloom.index.*``; ``parallelism`` 0: from the number of comparisons.

    ``use_metadata``: ranges and filters come from the table's metadata table, where it has them.
    """

    prune_by_ranges: bool = True
    use_tree: bool = True
    bucketized: bool = True
    keys_per_bucket: int = 10_000_000
    parallelism: int = 0
    use_metadata: bool = False


@dataclass(frozen=True)
class BloomPlan:
    """What one look-up does: its tasks, and how much work the key ranges saved."""

    tasks: list[list[SliceTask]]
    files: int
    pruned: int
    comparisons: int
    unpruned_comparisons: int


class BloomIndex(HoodieIndex):
    """The partitions that the batch touches."""

    name = "BLOOM"
    is_global = False
    can_index_log_files = False
    is_implicit_with_storage = True
    knows_ordering = True

    def __init__(self, options: BloomIndexOptions | None = None, update_partition_path: bool = True) -> None:
        self._options = options or BloomIndexOptions()
        self.update_partition_path = update_partition_path
        self._ranges = RangeCache(use_metadata=self._options.use_metadata)
        self._lookup = Lookup()
        self.plan: BloomPlan | None = None

    def tag_location(self, records: DataFrame, look: TableAsOf) -> DataFrame:
        """Where the keys are; the log says how many files and keys the ranges left to be checked."""
        keys = collect_keys(records, is_global=self.is_global)
        items = all_slices(look, keys, is_global=self.is_global, bloom=True)
        if self._options.prune_by_ranges and items:
            items = self._within_ranges(look, items, KeyRanges(keys, tree=self._options.use_tree))
        checked = [t for t in items if t.comparisons or t.file_slice.log_files]
        self.plan = plan = BloomPlan(
            tasks=self._tasks(checked, look.spark.sparkContext.defaultParallelism),
            files=len(items),
            pruned=sum(not t.comparisons for t in items),
            comparisons=sum(t.comparisons for t in checked),
            unpruned_comparisons=sum(t.stop - t.start for t in items),
        )
        LOG.info(
            "%s: %s keys, %s of %s files left by key ranges, %s of %s comparisons, in %s tasks",
            self.name,
            f"{len(keys.keys):,}",
            f"{plan.files - plan.pruned:,}",
            f"{plan.files:,}",
            f"{plan.comparisons:,}",
            f"{plan.unpruned_comparisons:,}",
            len(plan.tasks),
        )
        return self._lookup.run(look, keys, plan.tasks, use_metadata=self._options.use_metadata)

    @property
    def counts(self) -> LookupCounts | None:
        """What the filters of the last look-up did; once Spark has run it."""
        return self._lookup.counts

    def end_batch(self) -> None:
        """Say what the filters did, and remove the keys from the executors."""
        counts = self._lookup.counts
        if counts is not None and counts.filters.value:
            LOG.info(
                "%s: %s filters asked for %s keys, %s were candidates, %s rows found",
                self.name,
                f"{counts.filters.value:,}",
                f"{counts.asked.value:,}",
                f"{counts.candidates.value:,}",
                f"{counts.found.value:,}",
            )
        self._lookup.close()
        self._lookup.counts = None

    def _within_ranges(self, look: TableAsOf, items: list[SliceTask], keys: KeyRanges) -> list[SliceTask]:
        paths = [t.file_slice.base_path for t in items]
        known = self._ranges.of(look, [p for p in paths if p is not None])
        out = []
        for item, path in zip(items, paths, strict=True):
            limits = known.get(path) if path is not None else None
            if path is None:
                item = replace(item, base_start=item.start, base_stop=item.start)
            elif limits is not None:
                first, last = keys.between(limits.low, limits.high, item.start, item.stop)
                item = replace(item, base_start=first, base_stop=last)
            out.append(item)
        return out

    def _tasks(self, items: list[SliceTask], cores: int) -> list[list[SliceTask]]:
        options = self._options
        total = sum(_cost(t) for t in items)
        if not options.bucketized:
            ordered = sorted(items, key=lambda t: (t.file_slice.partition_path, t.file_slice.file_id))
            return cut(ordered, _cost, options.parallelism or cores)
        pieces = [piece for item in items for piece in _split(item, options.keys_per_bucket)]
        wanted = options.parallelism or max(cores, -(-int(total) // options.keys_per_bucket))
        return pack(pieces, _cost, wanted)


class GlobalBloomIndex(BloomIndex):
    """All partitions of the table."""

    name = "GLOBAL_BLOOM"
    is_global = True


def _cost(task: SliceTask) -> float:
    logs = sum(log.size for log in task.file_slice.log_files)
    return task.comparisons + _FILE_COST + logs * _LOG_BYTE_COST


def _split(task: SliceTask, most: int) -> list[SliceTask]:
    """A file with more comparisons than a bucket takes is checked by several tasks, each with keys of its own.

    A slice with logs is not cut: its log is read for all keys of the partition at once.
    """
    if task.comparisons <= most or task.file_slice.log_files:
        return [task]
    count = -(-task.comparisons // most)
    edges = [task.base_start + task.comparisons * i // count for i in range(count + 1)]
    return [replace(task, start=low, stop=high, base_start=low, base_stop=high) for low, high in pairwise(edges)]
