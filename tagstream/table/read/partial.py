"""Partial updates: log records that do not say all columns, merged column by column.

Two kinds. A block of Hudi 1.x whose header says IS_PARTIAL has some columns only (``MERGE INTO`` writes such). And from
version 9 on a table may say what in a whole row means "as it was" (``hoodie.table.partial.update.mode``): a null
(IGNORE_DEFAULTS), or a marker in a text or bytes column (FILL_UNAVAILABLE). Both become holes of rows, which are filled from
the earlier record, at last from the base file's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.read.log_batch import Bools, LogBatch, MergedLog
from tagstream.table.schema.conform import as_type

_Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class HoleRule:
    """What a table takes for "as it was": nulls, or a marker. Neither: only what a block leaves out.

    ``both_ways``: an older version that comes late fills the holes of the newer one, as Hudi does with these modes.
    """

    nulls: bool = False
    marker: str | None = None

    @property
    def both_ways(self) -> bool:
        """True with one of the modes, false for blocks that leave columns out."""
        return self.nulls or self.marker is not None

    def holes(self, rows: pa.Table, absent: Sequence[str] = ()) -> dict[str, Bools]:
        """The holes of rows; ``absent``: columns that the block does not have."""
        found = {name: np.ones(rows.num_rows, dtype=np.bool_) for name in absent if name in rows.column_names}
        for field in rows.schema if self.both_ways else ():
            mask = None if field.name in found else self._mask(rows.column(field.name))
            if mask is not None and mask.any():
                found[field.name] = mask
        return found

    def _mask(self, column: pa.ChunkedArray) -> Bools | None:
        if self.nulls:
            return _bools(pc.is_null(column))
        if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)):
            return None
        marker = pa.scalar(self.marker if pa.types.is_string(column.type) else str(self.marker).encode(), column.type)
        return _bools(pc.fill_null(pc.equal(column, marker), False))


def fold(
    batches: Sequence[LogBatch], codes: _Ints, count: int, ranks: _Ints | None, late_fills: bool
) -> tuple[_Ints, Bools, dict[str, _Ints]]:
    """Of each of ``count`` keys: (position of the winner, wins over any base row, by column the row its value is in).

    ``codes`` and ``ranks`` (None: commit time decides) are those of all entries of all batches, one after another. -1 for a
    value that no record says. Rows are counted over all batches that have some.
    """
    names = sorted({name for batch in batches for name in batch.holes})
    winner = np.full(count, -1, dtype=np.int64)
    rank = np.full(count, -1, dtype=np.int64)
    live, unconditional = np.zeros(count, dtype=np.bool_), np.full(count, ranks is None)
    source = {name: np.full(count, -1, dtype=np.int64) for name in names}
    for batch, of, at, row in _rounds(batches, codes):
        code, deleted, natural = codes[at], batch.deleted[of], batch.natural[of]
        new = np.zeros(len(at), dtype=np.int64) if ranks is None else ranks[at]
        wins = natural | (new >= rank[code]) if ranks is not None else np.ones(len(at), dtype=np.bool_)
        for name, values in source.items():
            said = np.where(batch.holes[name][of], -1, row) if name in batch.holes else row
            old = np.where(live[code], values[code], -1)
            filled = np.where(said >= 0, said, old)
            late = np.where((old < 0) & live[code] & ~deleted, said, old) if late_fills else values[code]
            values[code] = np.where(wins, np.where(deleted, -1, filled), late)
        winner[code] = np.where(wins, at, winner[code])
        rank[code] = np.where(wins, np.where(natural, 0, new), rank[code])
        live[code] = np.where(wins, ~deleted, live[code])
        unconditional[code] |= natural
    return winner, unconditional, source


def composed(rows: pa.Table, row: _Ints, source: Mapping[str, _Ints]) -> tuple[pa.Table, _Ints, dict[str, Bools]]:
    """The winners' rows with the values of the records that say them, their numbers by key, and the holes that are left.

    ``row``: of each key the winner's own row, -1 for a delete.
    """
    live = np.flatnonzero(row >= 0)
    columns, holes = [], {}
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        numbers = source[name][live] if name in source else row[live]
        missing = numbers < 0
        columns.append(column.take(pa.array(numbers, mask=missing)))
        if missing.any():
            holes[name] = missing
    place = np.full(len(row), -1, dtype=np.int64)
    place[live] = np.arange(len(live))
    return pa.Table.from_arrays(columns, schema=rows.schema), place, holes


def filled(updates: pa.Table, holes: Mapping[str, Bools], old: pa.Table) -> pa.Table:
    """Rows with their holes filled from other rows, one for one."""
    columns = []
    for field in updates.schema:
        column = updates.column(field.name)
        if field.name in holes and holes[field.name].any():
            order = np.arange(len(column), dtype=np.int64)
            order[holes[field.name]] += len(column)
            both = pa.chunked_array([*column.chunks, *as_type(old.column(field.name), field.type).chunks], field.type)
            column = both.take(pa.array(order))
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=updates.schema)


def taken(log: MergedLog, numbers: _Ints, rows: pa.Table, old: pa.Table) -> pa.Table:
    """``rows``, which are the log's of these numbers, with their holes filled from ``old``, the base file's rows."""
    if not log.holes:
        return rows
    return filled(rows, {name: mask[numbers] for name, mask in log.holes.items()}, old)


def with_late(base: pa.Table, winner: _Ints, stays: Bools, log: MergedLog, rule: HoleRule) -> pa.Table:
    """Rows of a base file, the holes of those that stay filled from the older versions that came late, in the log."""
    late = np.flatnonzero(stays)
    late = late[log.row[winner[late]] >= 0]
    if not rule.both_ways or log.rows is None or not len(late):
        return base
    kept, numbers = base.take(pa.array(late)), log.row[winner[late]]
    holes = rule.holes(kept)
    for name in holes.keys() & log.holes.keys():
        holes[name] &= ~log.holes[name][numbers]
    order = np.arange(base.num_rows, dtype=np.int64)
    order[late] = base.num_rows + np.arange(len(late))
    return pa.concat_tables([base, filled(kept, holes, log.rows.take(pa.array(numbers)))]).take(pa.array(order))


def merge_rows(base: pa.Table, winner: _Ints, stays: Bools, log: MergedLog, placed: Bools, rule: HoleRule) -> pa.Table:
    """Rows of a base file with what the log says of them, holes filled; ``winner`` and ``stays`` of ``match_base``.

    ``placed``: winners that had a base row; those of these rows are added.
    """
    hit = winner >= 0
    at = np.flatnonzero(hit & ~stays)
    at = at[np.sort(np.unique(winner[at], return_index=True)[1])]
    at = at[(log.row[winner[at]] >= 0) & ~placed[winner[at]]]
    placed[winner[hit]] = True
    parts = [with_late(base, winner, stays, log, rule).filter(pa.array(~hit | stays))]
    if log.rows is not None and len(at):
        numbers = log.row[winner[at]]
        parts.append(taken(log, numbers, log.rows.take(pa.array(numbers)), base.take(pa.array(at))))
    return pa.concat_tables(part.select(base.column_names) for part in parts)


def _rounds(batches: Sequence[LogBatch], codes: _Ints) -> Iterator[tuple[LogBatch, _Ints, _Ints, _Ints]]:
    """Batches in parts in which no key is twice: (batch, positions in it, among all entries, and among all rows or -1)."""
    start = rows = 0
    for batch in batches:
        here = np.arange(start, start + len(batch.keys), dtype=np.int64)
        row = here - start + rows if batch.rows is not None else np.full(len(here), -1, dtype=np.int64)
        occurrence = _occurrence(codes[here])
        for number in range(int(occurrence.max(initial=-1)) + 1):
            of = np.flatnonzero(occurrence == number)
            yield batch, of, here[of], row[of]
        start += len(here)
        rows += len(here) if batch.rows is not None else 0


def _occurrence(codes: _Ints) -> _Ints:
    """Of each entry how many of the same code came before it."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(codes) else np.zeros(0, dtype=np.int64)
    sizes = np.diff(np.r_[starts, len(codes)])
    found = np.empty(len(codes), dtype=np.int64)
    found[order] = np.arange(len(codes)) - np.repeat(starts, sizes)
    return found


def _bools(column: pa.ChunkedArray) -> Bools:
    values: Bools = column.combine_chunks().to_numpy(zero_copy_only=False)
    return values
