"""Skip partitions and file slices that cannot have a row of a filtered read.

A slice is skipped only when none of its files, base or log, can have such a row: an update may have changed the value
in the base file, and a merge needs all versions of a record. So filters are applied to merged rows. In a bucketed
table, filters that fix every hash field to some values select the buckets of these values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.names import bucket_of
from tagstream.table.keys.bucket_hash import BucketHash
from tagstream.table.keys.hash_fields import EMPTY
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import COLUMN_STATS_PARTITION, MetadataTable
from tagstream.table.read.column_stats import ColumnRange, footer_ranges, may_match, metadata_ranges, partition_ranges
from tagstream.table.read.filters import Comparison, Filter, Op, bind, matching
from tagstream.table.timeline.timeline import Timeline

Ranges = dict[str, ColumnRange]


@dataclass
class SkipReport:
    """Counts of what a read skipped, updated during the read. Files of skipped partitions are not counted.

    ``skipped_by``: number of files by the pruner that excluded them: ``metadata table``, ``footers``, or another name.
    """

    partitions: int = 0
    partitions_skipped: int = 0
    files: int = 0
    files_skipped: int = 0
    skipped_by: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Pruner:
    """Decides for each of some slices, also of several partitions, whether it may have a matching row."""

    name: str
    may_hold: Callable[[Sequence[FileSlice]], Sequence[bool]]


@dataclass(frozen=True)
class DataSkipping:
    """The filters of one read and the means to skip files. ``pruners`` are applied in their order."""

    filters: tuple[Filter, ...]
    table: HoodieTable
    schema: pa.Schema
    pruners: tuple[Pruner, ...]
    report: SkipReport

    @staticmethod
    def plan(
        table: HoodieTable,
        timeline: Timeline,
        schema: pa.Schema,
        comparisons: Iterable[Comparison],
        report: SkipReport | None = None,
    ) -> DataSkipping:
        """Bind the comparisons to the table's columns; ConfigError when a comparison does not fit its column."""
        filters = bind(comparisons, schema)
        pruners = slice_pruners(table, timeline, filters) if filters else ()
        return DataSkipping(filters, table, schema, pruners, report if report is not None else SkipReport())

    def asking_last(self, pruner: Pruner) -> DataSkipping:
        """A copy with one more pruner, after the others."""
        return replace(self, pruners=(*self.pruners, pruner))

    def asking_first(self, pruner: Pruner) -> DataSkipping:
        """A copy with one more pruner, before the others."""
        return replace(self, pruners=(pruner, *self.pruners))

    def with_filter(self, more: Filter) -> DataSkipping:
        """A copy with one more filter, which is applied to rows but not to statistics."""
        return replace(self, filters=(*self.filters, more))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the filters."""
        return tuple(dict.fromkeys(found.column for found in self.filters))

    def partitions(self, paths: Iterable[str]) -> list[str]:
        """The partitions that may have matching rows, by the values in their paths."""
        found = list(paths)
        kept = [path for path in found if not self._ruled_out(path)]
        self.report.partitions += len(found)
        self.report.partitions_skipped += len(found) - len(kept)
        return kept

    def slices(self, slices: Sequence[FileSlice]) -> list[FileSlice]:
        """The slices that may have matching rows."""
        report, kept = self.report, list(slices)
        report.files += sum(map(_files, kept))
        for pruner in self.pruners:
            answers = list(zip(kept, pruner.may_hold(kept), strict=True))
            skipped = sum(_files(found) for found, may_hold in answers if not may_hold)
            kept = [found for found, may_hold in answers if may_hold]
            if skipped:
                report.files_skipped += skipped
                report.skipped_by[pruner.name] = report.skipped_by.get(pruner.name, 0) + skipped
        return kept

    def rows(self, batch: pa.Table) -> pa.Table:
        """The merged rows that match all filters."""
        return matching(batch, self.filters)

    def _ruled_out(self, path: str) -> bool:
        return bool(self.filters) and excludes(self.filters, partition_ranges(self.table.config, path, self.schema))


def excludes(filters: Sequence[Filter], ranges: Ranges) -> bool:
    """Whether values in these ranges cannot match all filters. A column without a range may have any value."""
    return any(found.column in ranges and not may_match(found, ranges[found.column]) for found in filters)


def slice_pruners(table: HoodieTable, timeline: Timeline, filters: Sequence[Filter]) -> tuple[Pruner, ...]:
    """The pruners of this table's slices, cheapest first. Add pruners of other kinds here."""
    # A column that a file lacks is null in its rows, except columns that only the partition's path has.
    stored = tuple(found for found in filters if found.column not in table.config.dropped_fields)
    if not stored:
        return ()
    statistics = _Statistics(table, MetadataTable.open(table, timeline), stored)
    return (Pruner("metadata table", statistics.by_metadata), Pruner("footers", statistics.by_footers))


def _files(found: FileSlice) -> int:
    return (found.base_file is not None) + len(found.log_files)


@dataclass(frozen=True)
class _Statistics:
    """Column statistics of files: from the metadata table and, where that has none, from the footers of base files.

    ``known`` passes the results of :meth:`by_metadata` to :meth:`by_footers`.
    """

    table: HoodieTable
    metadata: MetadataTable | None
    filters: tuple[Filter, ...]
    known: dict[tuple[str, str], Ranges] = field(default_factory=dict)

    @property
    def fields(self) -> list[pa.Field]:
        return list({found.column: found.field for found in self.filters}.values())

    def by_metadata(self, slices: Sequence[FileSlice]) -> list[bool]:
        """Check all files of the slices in the metadata table with one lookup."""
        if self.metadata is None or COLUMN_STATS_PARTITION not in self.metadata.partitions:
            return [True] * len(slices)
        self.known.clear()
        self.known.update(metadata_ranges(self.metadata, self.fields, [file for s in slices for file in _names(s)]))
        return [not all(self._excluded(file) for file in _names(found)) for found in slices]

    def by_footers(self, slices: Sequence[FileSlice]) -> list[bool]:
        """Check the footer of a slice's base file if all of the slice's logs are excluded: else it cannot exclude it."""
        return [not self._out_by_footer(found) for found in slices]

    def _out_by_footer(self, found: FileSlice) -> bool:
        if found.base_path is None or found.base_file is None:
            return False
        if not all(self._excluded((found.partition_path, log.name)) for log in found.log_files):
            return False
        recorded = self.known.get((found.partition_path, found.base_file.name), {})
        unknown = [
            wanted for wanted in self.fields if wanted.name not in recorded or _is_partial(recorded[wanted.name])
        ]
        if not unknown:
            return False
        return excludes(self.filters, footer_ranges(self.table.storage, found.base_path, unknown))

    def _excluded(self, file: tuple[str, str]) -> bool:
        return excludes(self.filters, self.known.get(file, {}))


def _is_partial(found: ColumnRange) -> bool:
    return found.lower is None or found.upper is None


def _names(found: FileSlice) -> list[tuple[str, str]]:
    names = [found.base_file.name] if found.base_file is not None else []
    return [(found.partition_path, name) for name in (*names, *(log.name for log in found.log_files))]


_MOST = 10_000  # most combinations of values that are hashed


def bucket_pruner(hashing: BucketHash, filters: Sequence[Filter]) -> Pruner | None:
    """A pruner by bucket; None when the filters do not fix all hash fields, or a value's text in keys is not certain."""
    fixed = [_texts([f for f in filters if f.column == name and f.op in (Op.EQ, Op.IN)]) for name in hashing.fields]
    if any(values is None for values in fixed):
        return None
    choices = [sorted(values) for values in fixed if values is not None]
    if any(len(found) > _MOST for found in choices) or math.prod(map(len, choices)) > _MOST:
        return None
    keys = [_key(hashing, values) for values in itertools.product(*choices)]
    wanted = set(hashing.buckets(pa.array(keys, pa.string())).tolist())

    def may_hold(slices: Sequence[FileSlice]) -> list[bool]:
        # A file group without a bucket number in its id is not of the bucket index, and may have any row.
        return [(bucket := bucket_of(s.file_id)) is None or bucket in wanted for s in slices]

    return Pruner("buckets", may_hold)


def _key(hashing: BucketHash, values: Sequence[str]) -> str:
    """A record key with these values in the hash fields."""
    if len(hashing.record_key_fields) == 1:
        return values[0]
    by_name = dict(zip(hashing.fields, values, strict=True))
    return ",".join(f"{name}:{by_name.get(name, 'x') or EMPTY}" for name in hashing.record_key_fields)


def _texts(filters: Sequence[Filter]) -> set[str] | None:
    """Texts, as in record keys, of the values that all filters of one column allow; None: any value, or not certain."""
    found: set[str] | None = None
    for one in filters:
        kind = one.values.type
        if not (pa.types.is_string(kind) or pa.types.is_integer(kind)):
            return None
        texts = {str(value) for value in one.values.to_pylist()}
        if any("," in text or ":" in text for text in texts):
            return None
        found = texts if found is None else found & texts
    return found
