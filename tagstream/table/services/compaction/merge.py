"""The rows of a slice as its compaction writes them: base rows batch by batch, with what the logs say of each in its place.

Memory: one batch of base rows, the keys and ordering values of all log records, and their rows up to a limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table import chunks
from tagstream.table.errors import CorruptFileError
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.read.merge import LogBatch, MergedLog, match_base, merge_log
from tagstream.table.read.partial import taken, with_late
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.services.spill import RowKeeper
from tagstream.table.write.upsert import old_batches
from tagstream.table.write.write_rows import copied_rows

_BATCH_BYTES = 64 * 1024 * 1024
_Bools = npt.NDArray[np.bool_]
_Rows = npt.NDArray[np.int64]


@dataclass
class Counts:
    """Rows by what became of them. ``records``: of all log blocks, deletes among them; ``keys``: different ones of these."""

    copied: int = 0
    updated: int = 0
    inserted: int = 0
    deleted: int = 0
    blocks: int = 0
    records: int = 0
    keys: int = 0
    spilled_bytes: int = 0


def merged_rows(
    reader: SliceReader, file_slice: FileSlice, file_name: str, counts: Counts, max_memory: int
) -> Iterator[pa.Table]:
    """Rows of the base file, then those that only logs have; all with ``file_name`` as the file they are in.

    ``reader`` has all columns of the new file. ``max_memory``: bytes of log rows held. CorruptFileError for a base row
    without a record key.
    """
    with RowKeeper(max_memory) as keeper:
        batches = [_kept(batch, keeper, counts) for batch in reader.scan_logs(file_slice)]
        log = merge_log(batches, reader.event_time, reader.hole_rule.both_ways)
        counts.keys, counts.spilled_bytes = len(log.keys), keeper.spilled
        placed = np.zeros(len(log.keys), dtype=np.bool_)
        if file_slice.base_path is not None:
            storage = reader.table.storage
            for batch in old_batches(storage, file_slice.base_path, reader.file_schema, _BATCH_BYTES, drops=True):
                rows = _merged(batch, log, reader, placed, counts, storage.where(file_slice.base_path))
                yield copied_rows(rows, file_name)
        yield from (copied_rows(rows, file_name) for rows in _rest(log, placed, counts))


def _kept(batch: LogBatch, keeper: RowKeeper, counts: Counts) -> LogBatch:
    counts.blocks += 1
    counts.records += len(batch.keys)
    return batch if batch.rows is None else replace(batch, rows=keeper.keep(batch.rows))


def _merged(
    rows: pa.Table, log: MergedLog, reader: SliceReader, placed: _Bools, counts: Counts, where: str
) -> pa.Table:
    """Base rows with updates in their place and deleted ones left out; ``placed``: winners that had a base row."""
    keys = pc.cast(rows.column(RECORD_KEY).combine_chunks(), pa.string())
    if keys.null_count:
        raise CorruptFileError(f"a row of {where} has no record key: the table needs repair")
    winner, stays = match_base(keys, reader.ordering(rows), log)
    hit = winner >= 0
    # A key that is twice in the base file (a bulk insert may do so) gets its one new row at the first place.
    at = np.flatnonzero(hit & ~stays)
    at = at[np.sort(np.unique(winner[at], return_index=True)[1])]
    at = at[(log.row[winner[at]] >= 0) & ~placed[winner[at]]]
    placed[winner[hit]] = True
    kept = ~hit | stays
    counts.copied += int(kept.sum())
    counts.updated += len(at)
    kept[at] = True
    counts.deleted += rows.num_rows - int(kept.sum())
    rows = with_late(rows, winner, stays, log, reader.hole_rule)
    if not len(at) or log.rows is None:
        return rows if kept.all() else rows.filter(pa.array(kept))
    numbers = log.row[winner[at]]
    updates = taken(log, numbers, chunks.gather(log.rows, numbers), rows.take(pa.array(at)))
    return _replaced(rows, at, updates, kept)


def _replaced(rows: pa.Table, at: _Rows, updates: pa.Table, kept: _Bools) -> pa.Table:
    """The kept rows with others at some places, taken at once: to replace them by columns costs Arrow 2.6 times that."""
    order = np.arange(rows.num_rows, dtype=np.int64)
    order[at] = rows.num_rows + np.arange(len(at))
    return chunks.take(chunks.together([rows, updates]), order[kept])


def _rest(log: MergedLog, placed: _Bools, counts: Counts) -> Iterator[pa.Table]:
    """The winners that no base row had, some at a time."""
    if log.rows is None or not log.rows.num_rows:
        return
    rest = log.row[~placed & (log.row >= 0)]
    counts.inserted += len(rest)
    step = max(1, log.rows.num_rows * _BATCH_BYTES // max(log.rows.nbytes, 1))
    for start in range(0, len(rest), step):
        yield chunks.gather(log.rows, rest[start : start + step])
