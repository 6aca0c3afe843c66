"""Which record of a key wins, and what it does to the key: insert, update, delete, move, or nothing.

All data is in columns. The "winner" of a key is the record that is in force after the batch, unless the state has a
newer one.

A record may lack values of its row. A missing value is taken from the record of the same key that was in force
before, or else from the row in the table. After a change of key it is in the row of the old key, which is in another
key group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.state.codec import ORDERING_UNKNOWN, TOMBSTONE, Records, sort_keys
from tagstream.state.tag_batch import FLAG_DELETE, FLAG_NO_ORDERING, FLAG_NO_PARTITION, INT64, ImageWanted, TagBatch

BOOLS = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Known:
    """What the store has of each distinct key, in key order.

    `stored`: the store has a record of the key. `found`: it also has not outlived its time. Zeros where not stored.
    """

    stored: BOOLS
    found: BOOLS
    records: Records

    @property
    def live(self) -> BOOLS:
        """Keys that have a record in the table."""
        live: BOOLS = self.found & ((self.records.flags & TOMBSTONE) == 0)
        return live

    @property
    def has_ordering(self) -> BOOLS:
        """Keys whose ordering value is known (a tombstone's counts too)."""
        known: BOOLS = self.found & ((self.records.flags & ORDERING_UNKNOWN) == 0)
        return known


@dataclass(frozen=True)
class Keys:
    """The distinct keys of a batch: `rows` has all row numbers in key order; those of key i begin at `starts[i]`."""

    rows: INT64
    starts: INT64

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True)
class Winners:
    """Per distinct key, in key order: the winning row and its ordering (a row without one takes the greatest known)."""

    row: INT64
    ordering: npt.NDArray[Any]
    has_ordering: BOOLS
    late: BOOLS


@dataclass(frozen=True)
class Decision:
    """Per distinct key: masks of what happens. `kept`: live afterwards; `buried`: a tombstone afterwards; late: neither."""

    late: BOOLS
    kept: BOOLS
    buried: BOOLS
    update: BOOLS
    insert: BOOLS
    move: BOOLS
    delete: BOOLS


def distinct_keys(batch: TagBatch) -> Keys:
    """Sort the batch by key."""
    rows, first = sort_keys(batch.skeys)
    return Keys(rows, np.flatnonzero(first))


def choose_winners(batch: TagBatch, keys: Keys, known: Known) -> Winners:
    """The winner of every key by (ordering, position), compared with the state's ordering value."""
    winner = keys.rows[keys.starts]
    sizes = np.diff(keys.starts, append=len(keys.rows))
    ordering, has = _ordering_of(batch, winner)
    no_ordering = (batch.flags & FLAG_NO_ORDERING) != 0
    crowded = sizes > 1
    if batch.ordering is not None:
        crowded |= no_ordering[winner]  # its ordering value is that of the state
    if crowded.any():
        # Only keys with several records, or with one without ordering value, are compared.
        group = np.repeat(np.arange(len(keys)), sizes)
        members = crowded[group]
        rows, group = keys.rows[members], group[members]
        best_group, winner_rows, best, best_has = _compare(batch, rows, group, known)
        winner = winner.copy()
        winner[best_group] = winner_rows
        ordering[best_group] = best
        has[best_group] = best_has
    if batch.ordering is None:
        late = np.zeros(len(keys), np.bool_)
    else:
        late = np.zeros(len(keys), np.bool_)
        both = np.flatnonzero(known.has_ordering & has)
        late[both] = (ordering[both] < known.records.ordering[both]).astype(np.bool_)
        # A winner without ordering value is a delete or an upsert (a snapshot's row) of a key of which nothing is known.
    return Winners(winner, ordering, has, late)


def _ordering_of(batch: TagBatch, rows: INT64) -> tuple[npt.NDArray[Any], BOOLS]:
    if batch.ordering is None:
        return np.zeros(len(rows), np.int64), np.zeros(len(rows), np.bool_)
    has = (batch.flags[rows] & FLAG_NO_ORDERING) == 0
    ordering = batch.ordering[rows]
    if not has.all():
        ordering = np.where(has, ordering, _empty(ordering))
    return ordering, has


def _empty(ordering: npt.NDArray[Any]) -> Any:
    return b"" if ordering.dtype == object else 0


def _compare(batch: TagBatch, rows: INT64, group: INT64, known: Known) -> tuple[INT64, INT64, npt.NDArray[Any], BOOLS]:
    """(group, winning row, its ordering, known?) of the given groups: the last row with the greatest ordering."""
    if batch.ordering is None:
        rows, group = in_stream_order(batch, rows, group)
        ordering, has = _ordering_of(batch, rows)
        groups, start = np.unique(group, return_index=True)
        last = np.append(start[1:], len(rows)) - 1
        return groups, rows[last], ordering[last], has[last]
    ranked = _rank(batch, rows, group, known)
    # The last of the greatest in each group: the maximum of (effective, position in the stream).
    best = np.lexsort((np.arange(len(rows)), ranked.effective, ranked.place))
    last = best[np.append(ranked.start[1:], len(rows)) - 1]
    best_rank = ranked.effective[last]
    best_has = best_rank >= 0
    empty = _empty(_ordering_of(batch, rows[:0])[0])
    best_ordering = np.where(best_has, ranked.values[np.maximum(best_rank, 0)], empty)
    return ranked.groups, ranked.rows[last], best_ordering, best_has


def in_force(batch: TagBatch, rows: INT64, group: INT64, known: Known) -> tuple[INT64, INT64]:
    """(rows, their keys), key by key, in the order in which they come into force. Rows older than the state are left out."""
    if batch.ordering is None:
        return in_stream_order(batch, rows, group)
    ranked = _rank(batch, rows, group, known)
    order = np.lexsort((np.arange(len(rows)), ranked.effective, ranked.place))
    order = order[(ranked.effective >= ranked.state[ranked.place])[order]]
    return ranked.rows[order], ranked.groups[ranked.place[order]]


def in_stream_order(batch: TagBatch, rows: INT64, group: INT64) -> tuple[INT64, INT64]:
    """Rows and their keys by key, then by position in the stream."""
    names = sorted({str(s) for s in batch.source[rows].tolist()})
    columns = [batch.pos_lo[rows]]
    if len(names) > 1:
        columns.append(np.searchsorted(np.array(names), batch.source[rows].astype(str)))
    columns.append(batch.pos_hi[rows])
    order = np.lexsort((*columns, group))
    return rows[order], group[order]


@dataclass(frozen=True)
class _Ranked:
    """Rows in stream order, key by key. `groups`: the keys; the rows of each begin at `start`. `place`: for each row the
    index of its key in `groups`. `effective`: the rank of each row's ordering value in `values`; `state`: that of each key.
    """

    rows: INT64
    groups: INT64
    start: INT64
    place: INT64
    effective: INT64
    state: INT64
    values: npt.NDArray[Any]


def _rank(batch: TagBatch, rows: INT64, group: INT64, known: Known) -> _Ranked:
    """Records with the ranks of their ordering values; -1 is less than any value.

    A record without ordering value takes the greatest one of the state and of all records before it.
    """
    rows, group = in_stream_order(batch, rows, group)
    groups, start = np.unique(group, return_index=True)
    ordering, has = _ordering_of(batch, rows)
    state, state_has = known.records.ordering[groups], known.has_ordering[groups]
    values, ranks = np.unique(np.concatenate([ordering, state]), return_inverse=True)
    rank = np.where(has, ranks[: len(rows)], -1)
    state_rank = np.where(state_has, ranks[len(rows) :], -1)
    place = np.repeat(np.arange(len(groups)), np.diff(start, append=len(rows)))
    # A running maximum that starts again in each group: the ranks of each group are above all of the group before.
    lift = place * np.int64(len(values) + 1)
    greatest = np.maximum.accumulate(np.maximum(rank, state_rank[place]) + lift) - lift
    return _Ranked(rows, groups, start, place, np.where(has, rank, greatest), state_rank, values)


def decide(batch: TagBatch, winners: Winners, known: Known, same_partition: BOOLS) -> Decision:
    """What each winner does. `same_partition`: the winner's partition is that of the live record."""
    delete = (batch.flags[winners.row] & FLAG_DELETE) != 0
    timely = ~winners.late
    kept = timely & ~delete
    update = kept & known.live & same_partition
    return Decision(
        late=winners.late,
        kept=kept,
        buried=timely & delete,
        update=update,
        insert=kept & ~known.live,
        move=kept & known.live & ~same_partition,
        delete=timely & delete & known.live,
    )


def check_batch(batch: TagBatch) -> None:
    """ValueError for records that the decoder should have refused."""
    if batch.ordering is not None and batch.ordering.dtype not in (np.dtype(np.int64), np.dtype(object)):
        raise ValueError(f"ordering values are {batch.ordering.dtype}; a null among them has cost them digits")
    upsert = (batch.flags & FLAG_DELETE) == 0
    if batch.partial is None and (upsert & ((batch.flags & FLAG_NO_PARTITION) != 0)).any():
        raise ValueError("an upsert has no partition path")


OWN, NEEDS_NONE, LOST = -1, -2, -3


@dataclass(frozen=True)
class Walk:
    """Per record: the row that has each column's value (-1: the stored row), and the stored row
    (`Completion.stored_row`).
    """

    rows: INT64
    donor: npt.NDArray[np.int64]
    stored_row: INT64


@dataclass(frozen=True)
class Chains:
    """For each row of a batch, the row of its key that was in force before it: OWN for the table's row, LOST for none.

    `rows_of`: number of a key -> its rows in force, in their order; only of some keys.
    """

    before: INT64
    rows_of: dict[int, INT64]


def chains(batch: TagBatch, keys: Keys, known: Known, wanted: npt.NDArray[np.bool_]) -> Chains:
    """The chains of the `wanted` keys."""
    sizes = np.diff(keys.starts, append=len(keys.rows))
    group = np.repeat(np.arange(len(keys)), sizes)
    members = wanted[group]
    rows, group = in_force(batch, keys.rows[members], group[members], known)
    before = np.full(len(batch), LOST, np.int64)
    first = np.concatenate(([True], group[1:] != group[:-1])) if len(rows) else np.zeros(0, np.bool_)
    before[rows] = np.concatenate(([LOST], rows[:-1])) if len(rows) else rows
    before[rows[first]] = np.where(known.live[group[first]], OWN, LOST)
    starts = np.flatnonzero(first)
    cut = np.split(rows, starts[1:]) if len(starts) else []
    return Chains(before, dict(zip(group[starts].tolist(), cut, strict=True)))


def walk(batch: TagBatch, start: INT64, before: INT64) -> Walk:
    """Go back from each row of `start` until each of its columns has a value, or until the stored row is reached."""
    assert batch.absent is not None
    missing = batch.absent[start]
    donor = np.where(missing, -1, start[:, None])
    stored_row = np.full(len(start), NEEDS_NONE, np.int64)
    deleted = (batch.flags & FLAG_DELETE) != 0
    in_other_row = batch.in_other_row if batch.in_other_row is not None else np.zeros(len(batch), np.bool_)
    at, left = start.copy(), np.flatnonzero(missing.any(axis=1))
    while len(left):  # the number of steps is that of the records of one key, not of the batch
        other = in_other_row[at[left]]
        stored_row[left[other]] = at[left[other]]
        left = left[~other]
        back = before[at[left]]
        stored_row[left[back < 0]] = back[back < 0]
        left, back = left[back >= 0], back[back >= 0]
        at[left] = back
        stored_row[left[deleted[back]]] = LOST
        left = left[~deleted[back]]
        gives = missing[left] & ~batch.absent[at[left]]
        donor[left] = np.where(gives, at[left][:, None], donor[left])
        missing[left] &= ~gives
        left = left[missing[left].any(axis=1)]
    return Walk(start, donor, stored_row)


def of_new_rows(batch: TagBatch, walked: Walk) -> Walk:
    """With partial records: where no row has the missing values, the row takes its own, unless it needs one of them."""
    if batch.partial is None:
        return walked
    left = walked.donor < 0
    new = (walked.stored_row == LOST) & ~(left & batch.partial.needed).any(axis=1)
    donor = np.where(new[:, None] & left, walked.rows[:, None], walked.donor)
    return Walk(walked.rows, donor, np.where(new, NEEDS_NONE, walked.stored_row))


def lacking(batch: TagBatch, winners: Winners) -> npt.NDArray[np.bool_]:
    """Mask of the keys whose winning record lacks values."""
    if batch.absent is None:
        return np.zeros(len(winners.row), np.bool_)
    upsert = (batch.flags[winners.row] & FLAG_DELETE) == 0
    mask: npt.NDArray[np.bool_] = batch.absent[winners.row].any(axis=1) & ~winners.late & upsert
    return mask


def image_row(batch: TagBatch, rows: INT64, wanted: ImageWanted) -> int:
    """The row of a key that was in force before the event that removed it; -1: the table's row, LOST: none of these."""
    deleted = (batch.flags[rows] & FLAG_DELETE) != 0
    event = -1 if wanted.at is None else _number_at(batch, rows, wanted.at)
    if event >= 0:
        at = event - 1
        while at >= 0 and deleted[at]:  # the same event, received twice
            at -= 1
    elif batch.ordering is not None and wanted.before is not None:
        ordered = (batch.flags[rows] & FLAG_NO_ORDERING) == 0
        later = (i for i, row in enumerate(rows.tolist()) if ordered[i] and not batch.ordering[row] < wanted.before)
        at = next(later, len(rows)) - 1
        # The event itself may have no ordering value, and be received twice: it is before the first later record.
        while at >= 0 and deleted[at] and not ordered[at]:
            at -= 1
    else:
        gone = np.flatnonzero(deleted)
        at = int(gone[-1]) - 1 if len(gone) else len(rows) - 1
    if at < 0:
        return OWN
    return LOST if deleted[at] else int(rows[at])


def _number_at(batch: TagBatch, rows: INT64, position: tuple[int, int]) -> int:
    """The index of the row that came from this position; -1 for none."""
    found = (batch.pos_hi[rows] == position[0]) & (batch.pos_lo[rows] == position[1])
    return int(np.argmax(found)) if found.any() else -1
