"""BLOOM and GLOBAL_BLOOM: find keys by the key ranges of base files, by the bloom filters in their footers, in the files.

The keys of a batch are sorted, so the keys in a file's range are one run of them. Where Hudi makes a row of each (file,
key) pair, this needs only a pair of numbers per file. Rows that only log files have are also found, by reading the logs'
keys. Hudi's bloom index does not see such rows, and duplicates them when another kind of writer has put them there.

Key ranges are read once, from the metadata table or from the files' footers: a base file never changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tagstream.index.base import HoodieIndex, TableAsOf
from tagstream.index.lookup import KeyRanges, Lookup, LookupCounts, SliceTask, collect_keys, cut, pack
from tagstream.index.simple import all_slices
from tagstream.spark_release import from_arrow
from tagstream.table.config import Kind
from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.base_file import comparable_range, open_base_file, range_of
from tagstream.table.file_group.names import split
from tagstream.table.metadata.metadata_table import COLUMN_STATS_PARTITION, MetadataTable
from tagstream.table.option_fields import option
from tagstream.table.read.column_stats import metadata_ranges
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.storage.storage import Storage

if TYPE_CHECKING:
    from tagstream.index.registry import IndexOptions

_SCHEMA = "path string, low string, high string"
_FILES_A_TASK = 64


@dataclass(frozen=True)
class KeyRange:
    """Least and greatest record key of a base file."""

    low: str
    high: str


class RangeCache:
    """Key ranges by path. Ranges of files that are no longer in the table are removed."""

    def __init__(self, *, use_metadata: bool = False) -> None:
        """``use_metadata``: read ranges from the table's metadata table first."""
        self._known: dict[str, KeyRange | None] = {}
        self._use_metadata = use_metadata

    def of(self, look: TableAsOf, paths: Sequence[str]) -> dict[str, KeyRange]:
        """The ranges of base files (paths relative to the table). A file without a usable range is left out.

        Spark tasks read the footers that are not in the cache.
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
    """Ranges of record keys from the metadata table's column statistics."""
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
    """None for a file that cannot be opened: it is read whole later, and the error then names the problem."""
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
_LOG_BYTE_COST = 0.05  # comparisons that cost as much as reading a byte of a log file


@dataclass(frozen=True)
class BloomIndexOptions:
    """Hudi's ``hoodie.bloom.index.*`` options. ``parallelism`` 0: derived from the number of comparisons.

    ``use_metadata``: ranges and filters come from the table's metadata table, where it has them.
    """

    prune_by_ranges: bool = option(
        "hoodie.bloom.index.prune.by.ranges",
        Kind.BOOL,
        "BLOOM: skip files whose key range cannot include a key.",
        default=True,
    )
    use_tree: bool = option(
        "hoodie.bloom.index.use.treebased.filter",
        Kind.BOOL,
        "BLOOM: find the keys in a file's range by bisection of the sorted keys; when false every key is compared.",
        default=True,
    )
    bucketized: bool = option(
        "hoodie.bloom.index.bucketized.checking",
        Kind.BOOL,
        "BLOOM: spread the checks evenly over tasks, and those of a file with very many keys over "
        "several tasks; when false files are checked in the order of their names, each by one task.",
        default=True,
    )
    keys_per_bucket: int = option(
        "hoodie.bloom.index.keys.per.bucket",
        Kind.INT,
        "BLOOM: limit of comparisons in one task.",
        default=10_000_000,
        minimum=1,
    )
    parallelism: int = option(
        "hoodie.bloom.index.parallelism",
        Kind.INT,
        "BLOOM: number of lookup tasks; 0: derived from the number of comparisons.",
        minimum=0,
        default=0,
    )
    use_metadata: bool = option(
        "hoodie.bloom.index.use.metadata",
        Kind.BOOL,
        "BLOOM: key ranges and filters come from the table's metadata table, if it has them (column "
        "statistics, bloom filters). The footer of a file is read only if the metadata table lacks the "
        "file.",
        default=False,
    )


@dataclass(frozen=True)
class BloomPlan:
    """The plan of one lookup: its tasks, and how much work the key ranges saved."""

    tasks: list[list[SliceTask]]
    files: int
    pruned: int
    comparisons: int
    unpruned_comparisons: int


class BloomIndex(HoodieIndex):
    """Looks in the partitions that the batch touches."""

    name = "BLOOM"
    java_classes = ("org.apache.hudi.index.bloom.HoodieBloomIndex",)
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

    @classmethod
    def make(cls, options: IndexOptions, record_key_fields: tuple[str, ...]) -> BloomIndex:  # noqa: ARG003
        """With the options of both bloom indexes."""
        return cls(options.bloom, options.moves)

    def tag_location(self, records: DataFrame, look: TableAsOf) -> DataFrame:
        """The locations of the keys. A log line says how many files and keys are left after the range check."""
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
            "%s: %s keys, %s of %s files in their key ranges, %s of %s comparisons, in %s tasks",
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
        """Counts of the last lookup's filters; None before Spark has run it."""
        return self._lookup.counts

    def end_batch(self) -> None:
        """Log what the filters did, and remove the keys from the executors."""
        counts = self._lookup.counts
        if counts is not None and counts.filters.value:
            LOG.info(
                "%s: %s filters checked %s keys, %s were candidates, %s rows found",
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
    """Looks in all partitions of the table."""

    name = "GLOBAL_BLOOM"
    java_classes = ("org.apache.hudi.index.bloom.HoodieGlobalBloomIndex",)
    moves_by_default = True
    is_global = True


def _cost(task: SliceTask) -> float:
    logs = sum(log.size for log in task.file_slice.log_files)
    return task.comparisons + _FILE_COST + logs * _LOG_BYTE_COST


def _split(task: SliceTask, most: int) -> list[SliceTask]:
    """Split a file with more than ``most`` comparisons over several tasks, each with its own keys.

    A slice with logs is not split: its logs are read for all keys of the partition at once.
    """
    if task.comparisons <= most or task.file_slice.log_files:
        return [task]
    count = -(-task.comparisons // most)
    edges = [task.base_start + task.comparisons * i // count for i in range(count + 1)]
    return [replace(task, start=low, stop=high, base_start=low, base_stop=high) for low, high in pairwise(edges)]
