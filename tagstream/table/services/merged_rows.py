"""Rows of file slices for compaction and clustering: merged, sorted, within a limit of memory.

``merged_rows``: base rows batch by batch, each merged with the logs. Memory: one batch of base rows, the keys and
ordering values of all log records, and their rows up to a limit. ``GatheredRows``: all rows of a group's slices in the
order of the new files; they are read once, stored, and returned file by file. The sort columns and a number for each
row stay in memory. Rows beyond the limit are in temporary files that are memory-mapped (``RowKeeper``).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table import chunks
from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.read.merge import LogBatch, MergedLog, match_base, merge_log, taken, with_late
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.write.change_log import ChangeLog
from tagstream.table.write.upsert import copied_rows, old_batches

_BATCH_BYTES = 64 * 1024 * 1024
_Bools = npt.NDArray[np.bool_]
_Rows = npt.NDArray[np.int64]
_STEP_BYTES = 64 * 1024 * 1024
_LOG_SHARE = 4  # share of the memory (1/4) for the log rows of one slice during its merge


class RowKeeper:
    """Stores tables in memory or in unnamed files on this machine.

    Rows in a file are read page by page when they are used, and the operating system may drop the pages. The caller keeps
    the keys and ordering values that a merge always needs.
    """

    def __init__(self, limit: int) -> None:
        """``limit``: bytes of rows that stay in memory."""
        self._limit = limit
        self._held = 0
        self.spilled = 0
        self._files: list[pa.MemoryMappedFile] = []

    def keep(self, rows: pa.Table) -> pa.Table:
        """Store rows; returns the same rows, which can be used until this keeper is closed."""
        if self._held + rows.nbytes <= self._limit:
            self._held += rows.nbytes
            return rows
        self.spilled += rows.nbytes
        handle, path = tempfile.mkstemp(prefix="tagstream-rows-", suffix=".arrow")
        try:
            with os.fdopen(handle, "wb") as out, pa.ipc.new_file(out, rows.schema) as writer:
                writer.write_table(rows)
            source = pa.memory_map(path)
        finally:
            os.unlink(path)  # it is open: no file remains, however the process ends
        self._files.append(source)
        return pa.ipc.open_file(source).read_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files:
            file.close()


@dataclass
class Counts:
    """Number of rows by result. ``records``: records and deletes of all log blocks. ``keys``: distinct keys among them."""

    copied: int = 0
    updated: int = 0
    inserted: int = 0
    deleted: int = 0
    blocks: int = 0
    records: int = 0
    keys: int = 0
    spilled_bytes: int = 0


def merged_rows(
    reader: SliceReader,
    file_slice: FileSlice,
    file_name: str,
    counts: Counts,
    max_memory: int,
    changes: ChangeLog | None = None,
) -> Iterator[pa.Table]:
    """Rows of the base file, then those that only logs have; all with ``file_name`` as their file.

    ``reader`` has all columns of the new file. ``max_memory``: bytes of log rows in memory. ``changes`` receives the
    differences from the base file. CorruptFileError for a base row without a record key.
    """
    with RowKeeper(max_memory) as keeper:
        batches = [_kept(batch, keeper, counts) for batch in reader.scan_logs(file_slice)]
        log = merge_log(batches, reader.event_time, reader.hole_rule.both_ways)
        counts.keys, counts.spilled_bytes = len(log.keys), keeper.spilled
        placed = np.zeros(len(log.keys), dtype=np.bool_)
        if file_slice.base_path is not None:
            storage = reader.table.storage
            for batch in old_batches(storage, file_slice.base_path, reader.file_schema, _BATCH_BYTES, drops=True):
                rows = _merged(batch, log, reader, placed, counts, storage.where(file_slice.base_path), changes)
                yield copied_rows(rows, file_name)
        for rows in _rest(log, placed, counts):
            if changes is not None:
                changes.inserted(rows)
            yield copied_rows(rows, file_name)


def _kept(batch: LogBatch, keeper: RowKeeper, counts: Counts) -> LogBatch:
    counts.blocks += 1
    counts.records += len(batch.keys)
    return batch if batch.rows is None else replace(batch, rows=keeper.keep(batch.rows))


def _merged(
    rows: pa.Table,
    log: MergedLog,
    reader: SliceReader,
    placed: _Bools,
    counts: Counts,
    where: str,
    changes: ChangeLog | None,
) -> pa.Table:
    """Base rows with updates in their place and without deleted ones; ``placed``: winners that have a base row."""
    keys = pc.cast(rows.column(RECORD_KEY).combine_chunks(), pa.string())
    if keys.null_count:
        raise CorruptFileError(f"a row of {where} has no record key: the table needs repair")
    winner, stays = match_base(keys, reader.ordering(rows), log)
    hit = winner >= 0
    # A key that occurs twice in the base file (after a bulk insert) gets its new row only at the first place.
    at = np.flatnonzero(hit & ~stays)
    at = at[np.sort(np.unique(winner[at], return_index=True)[1])]
    at = at[(log.row[winner[at]] >= 0) & ~placed[winner[at]]]
    placed[winner[hit]] = True
    gone = np.flatnonzero(hit & ~stays)
    gone = gone[log.row[winner[gone]] < 0]
    kept = ~hit | stays
    counts.copied += int(kept.sum())
    counts.updated += len(at)
    kept[at] = True
    counts.deleted += rows.num_rows - int(kept.sum())
    rows = with_late(rows, winner, stays, log, reader.hole_rule)
    updates = rows.slice(0, 0)
    if len(at) and log.rows is not None:
        numbers = log.row[winner[at]]
        updates = taken(log, numbers, chunks.gather(log.rows, numbers), rows.take(pa.array(at)))
    if changes is not None:
        changes.merged(rows, gone, at, updates)
    if not updates.num_rows:
        return rows if kept.all() else rows.filter(pa.array(kept))
    return _replaced(rows, at, updates, kept)


def _replaced(rows: pa.Table, at: _Rows, updates: pa.Table, kept: _Bools) -> pa.Table:
    """The kept rows with updates at some places, by one take: replacing columns takes Arrow 2.6 times as long."""
    order = np.arange(rows.num_rows, dtype=np.int64)
    order[at] = rows.num_rows + np.arange(len(at))
    return chunks.take(chunks.combined([rows, updates]), order[kept])


def _rest(log: MergedLog, placed: _Bools, counts: Counts) -> Iterator[pa.Table]:
    """The winners that no base row has, in bounded batches."""
    if log.rows is None or not log.rows.num_rows:
        return
    rest = log.row[~placed & (log.row >= 0)]
    counts.inserted += len(rest)
    step = max(1, log.rows.num_rows * _BATCH_BYTES // max(log.rows.nbytes, 1))
    for start in range(0, len(rest), step):
        yield chunks.gather(log.rows, rest[start : start + step])


class GatheredRows:
    """All live rows of some slices. Use it inside the keeper's block."""

    def __init__(
        self,
        reader: SliceReader,
        slices: Sequence[FileSlice],
        sort_columns: Sequence[str],
        keeper: RowKeeper,
        memory: int,
    ) -> None:
        self.counts = Counts()
        kept, keys = [], []
        for each in slices:
            for rows in merged_rows(reader, each, "", self.counts, max(1, memory // _LOG_SHARE)):
                if not rows.num_rows:
                    continue
                keys.append(_copied(rows.select(list(sort_columns))))
                kept.append(keeper.keep(rows))
        self._rows = pa.concat_tables([*kept, reader.file_schema.empty_table()])
        self._order = _order(keys) if sort_columns and keys else None

    @property
    def num_rows(self) -> int:
        """Number of live rows of all slices."""
        return int(self._rows.num_rows)

    @property
    def keys(self) -> pa.Array:
        """The record keys of all rows, in the order of the slices."""
        return pc.cast(self._rows.column(RECORD_KEY), pa.string()).combine_chunks()

    def chosen(self, mask: _Bools) -> Iterator[pa.Table]:
        """The rows of the mask (in the order of the slices), in their new order and in bounded batches."""
        order = np.arange(self.num_rows) if self._order is None else self._order
        order = order[mask[order]]
        step = max(1, self.num_rows * _STEP_BYTES // max(self._rows.nbytes, 1))
        for start in range(0, len(order), step):
            yield chunks.gather(self._rows, order[start : start + step])

    def part(self, number: int, parts: int) -> Iterator[pa.Table]:
        """The rows of one of ``parts`` files of equal length, in bounded batches."""
        total = self.num_rows
        first, last = total * number // parts, total * (number + 1) // parts
        step = max(1, total * _STEP_BYTES // max(self._rows.nbytes, 1))
        for start in range(first, last, step):
            end = min(last, start + step)
            if self._order is None:
                yield self._rows.slice(start, end - start)
            else:
                yield chunks.gather(self._rows, self._order[start:end])


def _order(keys: list[pa.Table]) -> npt.NDArray[np.int64]:
    """Indexes of the rows in their new order: nulls first, equal ones in their order."""
    table = pa.concat_tables(keys)
    row = "row number of the slices"
    table = table.append_column(row, pa.array(np.arange(table.num_rows)))
    by = [(name, "ascending", "at_start") for name in table.column_names]
    found: npt.NDArray[np.int64] = pc.sort_indices(table, sort_keys=by).to_numpy().astype(np.int64)
    return found


def _copied(columns: pa.Table) -> pa.Table:
    """A copy of the columns: a slice of a batch would keep the whole batch in memory."""
    return pa.Table.from_arrays([pa.concat_arrays(each.chunks) for each in columns.columns], schema=columns.schema)
