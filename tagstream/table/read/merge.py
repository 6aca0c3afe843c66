"""Which version of a record wins in a file slice: first among the log records, then against the base file.

Event-time ordering: a later record or delete replaces an earlier one unless its ordering value is smaller. A
delete in natural order (without an ordering value) deletes everything before it; records after it are valid.
Commit-time ordering: the later one in log order wins, and the log wins over the base file.

Log records of a partial update lack some columns, and are merged column by column. There are two kinds. A block of
Hudi 1.x whose header says IS_PARTIAL has only some columns (``MERGE INTO`` writes such blocks). From version 9 on a
table may define a value that means "unchanged" (``hoodie.table.partial.update.mode``): null (IGNORE_DEFAULTS), or a
marker in a text or bytes column (FILL_UNAVAILABLE). Both become holes in rows, which are filled from the earlier
record, and finally from the base file's record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.chunks import flat
from tagstream.table.fields import greater, ranks
from tagstream.table.schema.conform import as_type

_Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LogBatch:
    """The records or deletes of one block. ``orderings`` None: the table has no ordering field.

    ``rows`` is None for a delete block. ``deleted`` marks deletes (also rows with a delete flag), ``natural`` those
    without an ordering value. ``holes``: by column, the rows that lack its value (a partial update) and take it from
    the earlier version.
    """

    keys: pa.Array
    rows: pa.Table | None
    orderings: pa.Array | None
    deleted: Bools
    natural: Bools
    holes: Mapping[str, Bools] = field(default_factory=dict)


@dataclass(frozen=True)
class MergedLog:
    """The winner of each key of a slice's logs, as aligned arrays: ``row`` is an index into ``rows``, -1 for a delete.

    ``unconditional``: the winner replaces the base row whatever its ordering value. ``orderings`` is None when ordering
    values do not decide; ``winner_orderings`` are the winners' ordering values if the blocks have them. ``holes``: by
    column, the ``rows`` that take its value from the base file's row.
    """

    keys: pa.Array
    rows: pa.Table | None
    row: _Ints
    orderings: pa.Array | None
    unconditional: Bools
    winner_orderings: pa.Array | None = None
    holes: Mapping[str, Bools] = field(default_factory=dict)


@dataclass(frozen=True)
class HoleRule:
    """Which values of a table mean "unchanged": nulls, or a marker. Neither: only columns that a block lacks.

    ``both_ways``: an older version that comes late fills the holes of the newer one, as Hudi does in these modes.
    """

    nulls: bool = False
    marker: str | None = None

    @property
    def both_ways(self) -> bool:
        """True for nulls or a marker, false for blocks that lack columns."""
        return self.nulls or self.marker is not None

    def holes(self, rows: pa.Table, absent: Sequence[str] = ()) -> dict[str, Bools]:
        """The holes of rows, by column; ``absent``: columns that the block lacks."""
        found = {name: np.ones(rows.num_rows, dtype=np.bool_) for name in absent if name in rows.column_names}
        for own in rows.schema if self.both_ways else ():
            mask = None if own.name in found else self._mask(rows.column(own.name))
            if mask is not None and mask.any():
                found[own.name] = mask
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
    """For each of ``count`` keys: (position of the winner, whether it wins over any base row, by column the row of the
    value).

    ``codes`` (key numbers) and ``ranks`` (None: commit time decides) are those of all entries of all batches,
    concatenated. A value that no record has is -1. Rows are counted over all batches with rows. ``late_fills``: an
    older version that comes late fills the holes of a newer one.
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
    """(the winners' rows with each value from the record that has it, their index by key, the holes that remain).

    ``row``: for each key the winner's own row, -1 for a delete. ``source``: as from :func:`fold`, by column.
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
    """Rows with their holes filled from other rows, row by row."""
    columns = []
    for own in updates.schema:
        column = updates.column(own.name)
        if own.name in holes and holes[own.name].any():
            order = np.arange(len(column), dtype=np.int64)
            order[holes[own.name]] += len(column)
            both = pa.chunked_array([*column.chunks, *as_type(old.column(own.name), own.type).chunks], own.type)
            column = both.take(pa.array(order))
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=updates.schema)


def taken(log: MergedLog, numbers: _Ints, rows: pa.Table, old: pa.Table) -> pa.Table:
    """``rows``, the log's rows with these numbers, with their holes filled from ``old``, the base file's rows."""
    if not log.holes:
        return rows
    return filled(rows, {name: mask[numbers] for name, mask in log.holes.items()}, old)


def with_late(base: pa.Table, winner: _Ints, stays: Bools, log: MergedLog, rule: HoleRule) -> pa.Table:
    """Rows of a base file. In rows that stay, holes are filled from older versions that came late in the log."""
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
    """Rows of a base file merged with the log, with holes filled; ``winner`` and ``stays`` are from :func:`match_base`.

    ``placed`` marks winners that have a base row; those of these rows are added to it.
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
    """Parts of batches with unique keys: (batch, positions in it, among all entries, and among all rows or -1)."""
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
    """For each entry, how many earlier entries have the same code."""
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


def merge_log(batches: Sequence[LogBatch], event_time: bool, late_fills: bool = False) -> MergedLog:
    """Merge the blocks of a slice, in their order, to one winner for each key.

    ``event_time``: ordering values decide. ``late_fills``: an older version that comes late fills the holes of a newer
    one.
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
        winner[codes] = np.arange(len(codes))  # for repeated indices NumPy keeps the last value
        unconditional = np.ones(count, dtype=np.bool_)
    else:
        positions = np.flatnonzero(natural)
        barrier[codes[positions]] = positions
        winner = _greatest(codes, ranks(orderings), barrier)
        unconditional = barrier >= 0
    row = np.where(deleted, -1, _row_numbers(batches))[winner]
    rows = pa.concat_tables(data) if data else None
    holes: dict[str, Bools] = {}
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


def merge_base(keys: pa.Array, orderings: pa.Array | None, log: MergedLog, superseded: Bools) -> tuple[Bools, Bools]:
    """Compare rows of the base file with the log's winners: (rows of the base file that stay, winners that lost).

    ``superseded`` are winners that lost before; the second result includes them.
    """
    winner, stays = match_base(keys, orderings, log)
    if not stays.any():
        return winner < 0, superseded
    lost = superseded.copy()
    lost[winner[stays]] = True
    return (winner < 0) | stays, lost


def match_base(keys: pa.Array, orderings: pa.Array | None, log: MergedLog) -> tuple[_Ints, Bools]:
    """For rows of the base file: (index of the log's winner with the same key or -1, whether the base row wins over it)."""
    winner: _Ints = pc.index_in(keys, value_set=log.keys).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    stays = np.zeros(len(keys), dtype=np.bool_)
    hit = np.flatnonzero(winner >= 0)
    if not len(hit) or orderings is None or log.orderings is None:
        return winner, stays
    base_ordering = orderings.take(pa.array(hit))
    log_ordering = log.orderings.take(pa.array(winner[hit]))
    # Nulls are smaller than every value. For equal values the log wins.
    later = pc.or_(
        greater(base_ordering, log_ordering).fill_null(False), _null_only_in_log(base_ordering, log_ordering)
    )
    stays[hit] = later.to_numpy(zero_copy_only=False) & ~log.unconditional[winner[hit]]
    return winner, stays


def _null_only_in_log(base: pa.Array, log: pa.Array) -> pa.Array:
    return pc.and_(base.is_valid(), log.is_null())


def _greatest(codes: _Ints, rank: _Ints, barrier: _Ints) -> _Ints:
    """Position of the winner of each code, from the barrier on: greatest rank, then latest position."""
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
