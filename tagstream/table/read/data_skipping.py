"""Leave out partitions and file slices that cannot hold a row of a filtered read.

A slice is left out only when none of its files, base or log, can hold such a row: an update may have changed what
the base file says, and merging needs all versions of a record. So filters are applied to merged rows, never
before. In a bucketed table, filters that fix every hash field to some values leave only the buckets of these
values.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.names import bucket_of
from tagstream.table.keys.bucket_hash import EMPTY, BucketHash
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import COLUMN_STATS_PARTITION, MetadataTable
from tagstream.table.read.column_stats import ColumnRange, footer_ranges, may_match, metadata_ranges, partition_ranges
from tagstream.table.read.filters import Comparison, Filter, Op, bind, matching
from tagstream.table.timeline.timeline import Timeline

Ranges = dict[str, ColumnRange]


@dataclass
class SkipReport:
    """What a read left out, counted while it goes on. Files of partitions that were skipped are not looked at.

    ``skipped_by``: files by what ruled them out last: ``metadata table`` or ``footers``, or another pruner's name.
    """

    partitions: int = 0
    partitions_skipped: int = 0
    files: int = 0
    files_skipped: int = 0
    skipped_by: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Pruner:
    """Looks at slices, also of several partitions: for each of them whether it may hold a row."""

    name: str
    may_hold: Callable[[Sequence[FileSlice]], Sequence[bool]]


@dataclass(frozen=True)
class DataSkipping:
    """The filters of one read and what is known to skip by. ``pruners`` are asked in their order."""

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
        """Bind the comparisons to the table's columns; ConfigError where they do not fit."""
        filters = bind(comparisons, schema)
        pruners = slice_pruners(table, timeline, filters) if filters else ()
        return DataSkipping(filters, table, schema, pruners, report if report is not None else SkipReport())

    def asking_last(self, pruner: Pruner) -> DataSkipping:
        """The same with one more pruner behind the others."""
        return replace(self, pruners=(*self.pruners, pruner))

    def asking_first(self, pruner: Pruner) -> DataSkipping:
        """The same with one more pruner before the others."""
        return replace(self, pruners=(pruner, *self.pruners))

    def with_filter(self, more: Filter) -> DataSkipping:
        """The same with one more filter, which statistics are not asked about."""
        return replace(self, filters=(*self.filters, more))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns the filters look at."""
        return tuple(dict.fromkeys(found.column for found in self.filters))

    def partitions(self, paths: Iterable[str]) -> list[str]:
        """The partitions that may hold rows, by the values their paths name."""
        found = list(paths)
        kept = [path for path in found if not self._ruled_out(path)]
        self.report.partitions += len(found)
        self.report.partitions_skipped += len(found) - len(kept)
        return kept

    def slices(self, slices: Sequence[FileSlice]) -> list[FileSlice]:
        """Those of the slices that may hold rows."""
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
        """The rows of merged ones that the filters let through."""
        return matching(batch, self.filters)

    def _ruled_out(self, path: str) -> bool:
        return bool(self.filters) and excludes(self.filters, partition_ranges(self.table.config, path, self.schema))


def excludes(filters: Sequence[Filter], ranges: Ranges) -> bool:
    """Whether values in these ranges fail one of the filters; a column that is not named may have any value."""
    return any(found.column in ranges and not may_match(found, ranges[found.column]) for found in filters)


def slice_pruners(table: HoodieTable, timeline: Timeline, filters: Sequence[Filter]) -> tuple[Pruner, ...]:
    """What can rule out slices of this table, cheapest first. A pruner of another kind is added here."""
    # A file without a column has nulls there, but for a column that the partition's path holds.
    stored = tuple(found for found in filters if found.column not in table.config.dropped_fields)
    if not stored:
        return ()
    statistics = _Statistics(table, MetadataTable.open(table, timeline), stored)
    return (Pruner("metadata table", statistics.by_metadata), Pruner("footers", statistics.by_footers))


def _files(found: FileSlice) -> int:
    return (found.base_file is not None) + len(found.log_files)


@dataclass(frozen=True)
class _Statistics:
    """Column statistics of files: those of the metadata table, and for base files that it does not tell of their footers.

    ``known`` keeps what the first step found for the second.
    """

    table: HoodieTable
    metadata: MetadataTable | None
    filters: tuple[Filter, ...]
    known: dict[tuple[str, str], Ranges] = field(default_factory=dict)

    @property
    def fields(self) -> list[pa.Field]:
        return list({found.column: found.field for found in self.filters}.values())

    def by_metadata(self, slices: Sequence[FileSlice]) -> list[bool]:
        """Ask the metadata table about all files of the slices at once."""
        if self.metadata is None or COLUMN_STATS_PARTITION not in self.metadata.partitions:
            return [True] * len(slices)
        self.known.clear()
        self.known.update(metadata_ranges(self.metadata, self.fields, [file for s in slices for file in _names(s)]))
        return [not all(self._excluded(file) for file in _names(found)) for found in slices]

    def by_footers(self, slices: Sequence[FileSlice]) -> list[bool]:
        """Open a base file's footer where that can rule out the slice: its logs, of which nothing else tells, are."""
        return [not self._out_by_footer(found) for found in slices]

    def _out_by_footer(self, found: FileSlice) -> bool:
        if found.base_path is None or found.base_file is None:
            return False
        if not all(self._excluded((found.partition_path, log.name)) for log in found.log_files):
            return False
        told = self.known.get((found.partition_path, found.base_file.name), {})
        unknown = [wanted for wanted in self.fields if wanted.name not in told or _is_partial(told[wanted.name])]
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


_MOST = 10_000  # combinations of values worth hashing


def bucket_pruner(hashing: BucketHash, filters: Sequence[Filter]) -> Pruner | None:
    """A pruner of file slices; None where the filters leave a hash field open, or the text of values in keys is not sure."""
    fixed = [_texts([f for f in filters if f.column == name and f.op in (Op.EQ, Op.IN)]) for name in hashing.fields]
    if any(values is None for values in fixed):
        return None
    choices = [sorted(values) for values in fixed if values is not None]
    if any(len(found) > _MOST for found in choices) or math.prod(map(len, choices)) > _MOST:
        return None
    keys = [_key(hashing, values) for values in itertools.product(*choices)]
    wanted = set(hashing.buckets(pa.array(keys, pa.string())).tolist())

    def may_hold(slices: Sequence[FileSlice]) -> list[bool]:
        # A group that names no bucket is not one of the bucket index; it may hold anything.
        return [(bucket := bucket_of(s.file_id)) is None or bucket in wanted for s in slices]

    return Pruner("buckets", may_hold)


def _key(hashing: BucketHash, values: Sequence[str]) -> str:
    """A record key with these values in the hash fields."""
    if len(hashing.record_key_fields) == 1:
        return values[0]
    by_name = dict(zip(hashing.fields, values, strict=True))
    return ",".join(f"{name}:{by_name.get(name, 'x') or EMPTY}" for name in hashing.record_key_fields)


def _texts(filters: Sequence[Filter]) -> set[str] | None:
    """The values that all filters of one column allow, as they stand in record keys; None: any, or not sure."""
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
