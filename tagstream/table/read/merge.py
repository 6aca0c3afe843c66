"""Which version of a record wins inside a file slice: log records among each other, then against the base file.

Event-time ordering: a later record or delete replaces an earlier one unless its ordering value is smaller; a delete
in natural order (without an ordering value) removes whatever came before it, and whatever comes after it counts.
Commit-time ordering: the later one in log order wins, and the log wins over the base file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.chunks import flat
from tagstream.table.ordering import greater, ranks
from tagstream.table.read.log_batch import LogBatch, MergedLog
from tagstream.table.read.partial import composed, fold

__all__ = ["LogBatch", "MergedLog", "match_base", "merge_base", "merge_log"]
_Ints = npt.NDArray[np.int64]
_Bools = npt.NDArray[np.bool_]


def merge_log(batches: Sequence[LogBatch], event_time: bool, late_fills: bool = False) -> MergedLog:
    """Fold the blocks of a slice, in their order, to one winner a key.

    ``late_fills``: an older version that comes late fills the holes of a newer one.
    """
    keys = _concat([batch.keys for batch in batches], pa.string())
    data = [batch.rows for batch in batches if batch.rows is not None]
    deleted = np.concatenate([batch.deleted for batch in batches]) if batches else np.zeros(0, dtype=np.bool_)
    natural = np.concatenate([batch.natural for batch in batches]) if batches else np.zeros(0, dtype=np.bool_)
    known = [batch.orderings for batch in batches if batch.orderings is not None]
    carried = _concat(known, known[0].type) if known else None
    orderings = carried if event_time else None
    codes = pc.dictionary_encode(keys).indices.to_numpy().astype(np.int64)
    count = int(codes.max()) + 1 if len(codes) else 0
    barrier = np.full(count, -1, dtype=np.int64)
    source: dict[str, _Ints] = {}
    if any(batch.holes for batch in batches):
        rank = ranks(orderings) if orderings is not None else None
        winner, unconditional, source = fold(batches, codes, count, rank, late_fills)
    elif orderings is None:
        winner = np.full(count, -1, dtype=np.int64)
        winner[codes] = np.arange(len(codes))  # repeated indices: the last one stays
        unconditional = np.ones(count, dtype=np.bool_)
    else:
        positions = np.flatnonzero(natural)
        barrier[codes[positions]] = positions
        winner = _greatest(codes, ranks(orderings), barrier)
        unconditional = barrier >= 0
    row = np.where(deleted, -1, _row_numbers(batches))[winner]
    rows = pa.concat_tables(data) if data else None
    holes: dict[str, _Bools] = {}
    if source and rows is not None:
        rows, row, holes = composed(rows, row, source)
    return MergedLog(
        keys=keys.take(pa.array(winner)),
        rows=rows,
        row=row,
        orderings=orderings.take(pa.array(winner)) if orderings is not None else None,
        unconditional=unconditional,
        winner_orderings=carried.take(pa.array(winner)) if carried is not None else None,
        holes=holes,
    )


def merge_base(keys: pa.Array, orderings: pa.Array | None, log: MergedLog, superseded: _Bools) -> tuple[_Bools, _Bools]:
    """Compare rows of the base file with the log's winners: (rows of the base file that stay, winners that lost).

    ``superseded`` are the winners found to have lost before; the second result includes them.
    """
    winner, stays = match_base(keys, orderings, log)
    if not stays.any():
        return winner < 0, superseded
    lost = superseded.copy()
    lost[winner[stays]] = True
    return (winner < 0) | stays, lost


def match_base(keys: pa.Array, orderings: pa.Array | None, log: MergedLog) -> tuple[_Ints, _Bools]:
    """For rows of the base file: (the log's winner of the same key, -1 where it has none; rows that stay in spite of it)."""
    winner: _Ints = pc.index_in(keys, value_set=log.keys).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    stays = np.zeros(len(keys), dtype=np.bool_)
    hit = np.flatnonzero(winner >= 0)
    if not len(hit) or orderings is None or log.orderings is None:
        return winner, stays
    base_ordering = orderings.take(pa.array(hit))
    log_ordering = log.orderings.take(pa.array(winner[hit]))
    # Nulls are smaller than every value; equal ones go to the log.
    later = pc.or_(
        greater(base_ordering, log_ordering).fill_null(False), _null_only_in_log(base_ordering, log_ordering)
    )
    stays[hit] = later.to_numpy(zero_copy_only=False) & ~log.unconditional[winner[hit]]
    return winner, stays


def _null_only_in_log(base: pa.Array, log: pa.Array) -> pa.Array:
    return pc.and_(base.is_valid(), log.is_null())


def _greatest(codes: _Ints, rank: _Ints, barrier: _Ints) -> _Ints:
    """Position of the winner of each code: greatest rank, then latest position, from the barrier on."""
    positions = np.arange(len(codes), dtype=np.int64)
    counted = positions >= barrier[codes]
    codes, rank, positions = codes[counted], rank[counted], positions[counted]
    order = np.lexsort((positions, rank, codes))
    last = np.append(np.flatnonzero(np.diff(codes[order])), len(order) - 1) if len(order) else np.zeros(0, np.int64)
    winner: _Ints = positions[order[last]]
    return winner


def _row_numbers(batches: Sequence[LogBatch]) -> _Ints:
    parts: list[_Ints] = [np.zeros(0, dtype=np.int64)]
    start = 0
    for batch in batches:
        if batch.rows is None:
            parts.append(np.full(len(batch.keys), -1, dtype=np.int64))
        else:
            parts.append(np.arange(start, start + len(batch.keys), dtype=np.int64))
            start += len(batch.keys)
    return np.concatenate(parts)


def _concat(arrays: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    pieces = [flat(a) for a in arrays]
    return pa.concat_arrays(pieces) if pieces else pa.array([], kind)
