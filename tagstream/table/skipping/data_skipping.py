"""Leave out partitions and file slices that cannot hold a row a filtered read asks for.

A slice is left out only when none of its files, base or log, can hold such a row: an update may have changed what the base
file says, and merging needs all versions of a record. So filters are applied to merged rows, never before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import COLUMN_STATS_PARTITION, MetadataTable
from tagstream.table.skipping.column_range import ColumnRange, may_match
from tagstream.table.skipping.column_stats import metadata_ranges
from tagstream.table.skipping.filters import Comparison, Filter, bind, matching
from tagstream.table.skipping.footer_ranges import footer_ranges
from tagstream.table.skipping.partition_ranges import partition_ranges
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
