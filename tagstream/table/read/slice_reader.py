"""Read one file slice: the base file and its logs, merged to live rows.

Partition columns that the files lack get their values from the partition's path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.fields import columns_of, ordering_column, ordering_type
from tagstream.table.file_group.base_file import open_base_file
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.log_file import LogBlock, scan_log_file, with_block
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.keys.keys import values_of_path
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import PARTIAL_UPDATE_MODE, MergeMode, PartialUpdate, TableConfig
from tagstream.table.read.merge import HoleRule, LogBatch, MergedLog, match_base, merge_base, merge_log, merge_rows
from tagstream.table.schema.conform import from_file
from tagstream.table.schema.schema import OPERATION, RECORD_KEY
from tagstream.table.timeline.timeline import Timeline


def path_columns(config: TableConfig, partition_path: str, names: Sequence[str]) -> dict[str, str | None]:
    """The text of each column in ``names`` that only the path has; null for a partition without a value.

    UnsupportedTableError for a path from which the values cannot be read.
    """
    wanted = [name for name in names if name in config.dropped_fields]
    if not wanted:
        return {}
    values = values_of_path(partition_path, config.partition_fields)
    if values is None:
        raise UnsupportedTableError(
            f"table {config.name}: the path of partition {partition_path!r} does not have one folder for each of its "
            f"partition columns ({', '.join(config.partition_fields)}), which its files lack, so their values are not known"
        )
    return {name: value for name, value in zip(config.partition_fields, values, strict=True) if name in wanted}


def with_path_columns(rows: pa.Table, values: dict[str, str | None]) -> pa.Table:
    """The rows with these values in every row of the columns; a column that they lack is added at the end."""
    for name, value in values.items():
        place, field = rows.schema.get_field_index(name), pa.field(name, pa.string())
        column = pa.repeat(pa.scalar(value, pa.string()), rows.num_rows)
        rows = rows.append_column(field, column) if place < 0 else rows.set_column(place, field, column)
    return rows


DELETED_FIELD = "_hoodie_is_deleted"
_BATCH_ROWS = 65_536
_Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SliceReader:
    """Reads slices of one table as of one instant.

    ``file_schema`` is the table's full schema with meta columns, ``columns`` are the columns to return.
    ``keep_orderings``: log batches have the ordering values even if commit time decides.
    """

    table: HoodieTable
    timeline: Timeline
    as_of: str
    file_schema: pa.Schema
    columns: tuple[str, ...]
    keep_orderings: bool = False

    def read(self, file_slice: FileSlice) -> Iterator[pa.Table]:
        """The slice's live rows in bounded batches: first those of the base file, then those that only logs have."""
        values = path_columns(self.table.config, file_slice.partition_path, self.columns)
        return (with_path_columns(batch, values) for batch in self._stored(file_slice))

    def _stored(self, file_slice: FileSlice) -> Iterator[pa.Table]:
        """As :meth:`read`, with null in the columns that the files lack."""
        if not file_slice.log_files:
            yield from (batch.select(self.columns) for batch in self.base_batches(file_slice, self.columns))
            return
        log = self.merged_log(file_slice)
        needed = [f.name for f in self.file_schema if f.name in self._needed]
        lost = np.zeros(len(log.keys), dtype=np.bool_)
        for batch in self.base_batches(file_slice, needed):
            keys, ordering = _flat(batch.column(RECORD_KEY)), self.ordering(batch) if self.event_time else None
            if log.holes or self.hole_rule.both_ways:
                yield merge_rows(batch, *match_base(keys, ordering, log), log, lost, self.hole_rule).select(
                    self.columns
                )
                continue
            keep, lost = merge_base(keys, ordering, log, lost)
            yield (batch if keep.all() else batch.filter(pa.array(keep))).select(self.columns)
        if log.rows is not None:
            live = log.row[(log.row >= 0) & ~lost]
            yield log.rows.take(pa.array(live)).select(self.columns)

    def merged_log(self, file_slice: FileSlice) -> MergedLog:
        """The winners among the slice's log records and deletes."""
        return merge_log(self.log_batches(file_slice), self.event_time, self.hole_rule.both_ways)

    def log_batches(self, file_slice: FileSlice) -> list[LogBatch]:
        """The records and deletes of the slice's log blocks, in their order."""
        return list(self.scan_logs(file_slice))

    def scan_logs(self, file_slice: FileSlice) -> Iterator[LogBatch]:
        """As :meth:`log_batches`, one by one, each read when it is needed.

        UnsupportedTableError if logs cannot be merged.
        """
        check_mergeable(self.table)
        return (self._batch(block) for block in self._blocks(file_slice))

    @property
    def event_time(self) -> bool:
        """Whether ordering values decide which version of a record wins."""
        return self.table.config.merge_mode is MergeMode.EVENT_TIME and bool(self.table.config.ordering_fields)

    @property
    def hole_rule(self) -> HoleRule:
        """Which values mean "unchanged" in this table."""
        config = self.table.config
        return HoleRule(config.partial_update is PartialUpdate.IGNORE_DEFAULTS, config.unavailable_marker)

    @property
    def _needed(self) -> set[str]:
        """The columns to return and those that the merge needs."""
        config = self.table.config
        ordering = columns_of(config.ordering_fields, self.file_schema.names)
        return {*self.columns, RECORD_KEY, DELETED_FIELD, *ordering, config.delete_field or DELETED_FIELD}

    def base_batches(self, file_slice: FileSlice, columns: tuple[str, ...] | list[str]) -> Iterator[pa.Table]:
        """Rows of the slice's base file, without its logs; none for a slice without a base file."""
        if file_slice.base_path is None:
            return
        path = self.table.storage.where(file_slice.base_path)
        schema = pa.schema([self.file_schema.field(name) for name in columns])
        with open_base_file(self.table.storage, file_slice.base_path) as file:
            present = [name for name in columns if name in file.schema_arrow.names]
            try:
                for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=present):
                    yield from_file(pa.Table.from_batches([batch]), schema, path)
            except (pa.ArrowInvalid, OSError) as error:
                raise CorruptFileError(f"base file {path} cannot be read to its end ({error}): restore it") from error

    def _blocks(self, file_slice: FileSlice) -> list[LogBlock]:
        """The valid data and delete blocks, in order: committed, not rolled back, not after ``as_of``.

        UnsupportedTableError for rows in an HFile block, which Hudi writes with ``hoodie.logfile.data.block.format=hfile``.
        """
        queued: list[LogBlock] = []
        for rel in file_slice.log_paths:
            for block in scan_log_file(self.table.storage, rel):
                if block.type is BlockType.COMMAND or (block.type in RECORD_BLOCKS and self._counts(block)):
                    queued = with_block(queued, block)
                elif block.type is BlockType.HFILE_DATA and self._counts(block):
                    raise UnsupportedTableError(
                        f"{self.table.storage.where(rel)} has rows in an HFile block (instant {block.instant}), which this "
                        "version does not read: compact the table with Hudi, and set "
                        "hoodie.logfile.data.block.format=parquet or avro for its writers"
                    )
        return queued

    def _counts(self, block: LogBlock) -> bool:
        time = block.instant
        return time is not None and time <= self.as_of and self.timeline.is_valid(time)

    def _batch(self, block: LogBlock) -> LogBatch:
        if block.type is BlockType.DELETE:
            kind = self.ordering_type
            deletes = block.deletes(kind)
            orderings = deletes.orderings if kind is not None else None
            natural = deletes.natural.to_numpy(zero_copy_only=False)
            return LogBatch(deletes.keys, None, orderings, np.ones(len(deletes), dtype=np.bool_), natural)
        schema = [f for f in self.file_schema if f.name in self._needed]
        rows = block.read_table(pa.schema([*schema, pa.field(OPERATION, pa.string())]))
        holes = self.hole_rule.holes(
            rows, [f.name for f in schema if f.name not in block.columns] if block.is_partial else ()
        )
        holes.pop(OPERATION, None)
        deleted = self._deleted(rows)
        rows = rows.drop_columns([OPERATION]) if OPERATION not in self.file_schema.names else rows
        keys = _flat(rows.column(RECORD_KEY))
        return LogBatch(keys, rows, self.ordering(rows), deleted, np.zeros(len(keys), dtype=np.bool_), holes)

    def ordering(self, rows: pa.Table) -> pa.Array | None:
        """The ordering values of rows; None when they do not decide and are not kept."""
        return ordering_column(rows, self._ordering_fields)

    @property
    def ordering_type(self) -> pa.DataType | None:
        """Type of the values of :meth:`ordering`."""
        return ordering_type(self.file_schema, self._ordering_fields)

    @property
    def _ordering_fields(self) -> tuple[str, ...]:
        return self.table.config.ordering_fields if self.event_time or self.keep_orderings else ()

    def _deleted(self, rows: pa.Table) -> _Bools:
        """Which rows of a data block are deletes: by delete flag, change-log operation, or the configured marker."""
        config = self.table.config
        deleted = np.zeros(rows.num_rows, dtype=np.bool_)
        if DELETED_FIELD in rows.column_names and pa.types.is_boolean(rows.schema.field(DELETED_FIELD).type):
            deleted |= _mask(rows.column(DELETED_FIELD))
        deleted |= _mask(pc.is_in(rows.column(OPERATION), value_set=pa.array(["D", "-U"])))
        if config.delete_field and config.delete_marker and config.delete_field in rows.column_names:
            text = pc.cast(rows.column(config.delete_field), pa.string())
            deleted |= _mask(pc.equal(text, config.delete_marker))
        return deleted


def check_mergeable(table: HoodieTable) -> None:
    """UnsupportedTableError when this program cannot merge the logs of a table with these settings."""
    config = table.config
    problem = None
    if config.merge_mode is MergeMode.CUSTOM:
        problem = f"its records are merged by Java code ({config.payload_class or 'CUSTOM merge mode'})"
    elif len(config.ordering_fields) > 1 and config.is_event_time and not config.table_version.several_ordering_fields:
        problem = (
            f"it has several ordering fields ({', '.join(config.ordering_fields)}), which version 6 does not support"
        )
    elif config.partial_update is PartialUpdate.OTHER:
        problem = f"it has {PARTIAL_UPDATE_MODE}={config.raw.get(PARTIAL_UPDATE_MODE)}, which is not supported"
    elif not config.populate_meta_fields:
        problem = "its log records have no record keys (hoodie.populate.meta.fields=false)"
    if problem:
        raise UnsupportedTableError(
            f"cannot merge the log files of table {config.name} at {table.base_path}: {problem}; compact it with Hudi first"
        )


RECORD_BLOCKS = frozenset({BlockType.AVRO_DATA, BlockType.PARQUET_DATA, BlockType.DELETE})


def _mask(column: pa.ChunkedArray) -> _Bools:
    values: _Bools = column.combine_chunks().fill_null(False).to_numpy(zero_copy_only=False)
    return values


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return pc.cast(column.combine_chunks(), pa.string())
