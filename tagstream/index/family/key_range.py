"""Key ranges of base files, read from the metadata table or their footers once: a base file never changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import functions as F

from tagstream.index.base import TableAsOf
from tagstream.spark_release import from_arrow
from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.base_file import comparable_range, open_base_file, range_of
from tagstream.table.file_group.partition_metadata import split
from tagstream.table.metadata.metadata_table import COLUMN_STATS_PARTITION, MetadataTable
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.skipping.column_stats import metadata_ranges
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
