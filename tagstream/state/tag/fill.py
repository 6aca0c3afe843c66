"""Records that lack values of their row: which record of the batch has them, or the row that is held.

A value that was not sent is the one before: of the record of the same key that was in force before, else of the row in the
table. After a change of key it is in the row of the old key, which another key group knows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tagstream.state.tag.decide import Keys, Known, Winners, in_force
from tagstream.state.tag_batch import FLAG_DELETE, FLAG_NO_ORDERING, INT64, ImageWanted, TagBatch

OWN, NEEDS_NONE, LOST = -1, -2, -3


@dataclass(frozen=True)
class Walk:
    """Per record: the row that has each column's value (-1: the held row), and where that is (`Completion.held`)."""

    rows: INT64
    donor: npt.NDArray[np.int64]
    held: INT64


@dataclass(frozen=True)
class Chains:
    """Of each row of a batch the one of its key that was in force before it: OWN for the table's row, LOST for none.

    `last`: of some keys, by their number, the rows in force in their order.
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
    """Go back from each row of `start` until all of its columns are found, or to the row that is held."""
    assert batch.absent is not None
    missing = batch.absent[start]
    donor = np.where(missing, -1, start[:, None])
    held = np.full(len(start), NEEDS_NONE, np.int64)
    deleted = (batch.flags & FLAG_DELETE) != 0
    elsewhere = batch.elsewhere if batch.elsewhere is not None else np.zeros(len(batch), np.bool_)
    at, left = start.copy(), np.flatnonzero(missing.any(axis=1))
    while len(left):  # as many steps as a key has records in the batch, not as there are records
        other = elsewhere[at[left]]
        held[left[other]] = at[left[other]]
        left = left[~other]
        back = before[at[left]]
        held[left[back < 0]] = back[back < 0]
        left, back = left[back >= 0], back[back >= 0]
        at[left] = back
        held[left[deleted[back]]] = LOST
        left = left[~deleted[back]]
        gives = missing[left] & ~batch.absent[at[left]]
        donor[left] = np.where(gives, at[left][:, None], donor[left])
        missing[left] &= ~gives
        left = left[missing[left].any(axis=1)]
    return Walk(start, donor, held)


def of_new_rows(batch: TagBatch, walked: Walk) -> Walk:
    """With partial records: a row that nothing holds takes from its own record what is left, unless it needs a value."""
    if batch.partial is None:
        return walked
    left = walked.donor < 0
    new = (walked.held == LOST) & ~(left & batch.partial.needed).any(axis=1)
    donor = np.where(new[:, None] & left, walked.rows[:, None], walked.donor)
    return Walk(walked.rows, donor, np.where(new, NEEDS_NONE, walked.held))


def lacking(batch: TagBatch, winners: Winners) -> npt.NDArray[np.bool_]:
    """Mask of the keys whose winning record lacks values."""
    if batch.absent is None:
        return np.zeros(len(winners.row), np.bool_)
    upsert = (batch.flags[winners.row] & FLAG_DELETE) == 0
    mask: npt.NDArray[np.bool_] = batch.absent[winners.row].any(axis=1) & ~winners.late & upsert
    return mask


def image_row(batch: TagBatch, rows: INT64, wanted: ImageWanted) -> int:
    """The row of a key that was in force before the event that took it away; -1: the table's, LOST: none of these."""
    deleted = (batch.flags[rows] & FLAG_DELETE) != 0
    event = -1 if wanted.at is None else _at(batch, rows, wanted.at)
    if event >= 0:
        at = event - 1
        while at >= 0 and deleted[at]:  # the same event, which came twice
            at -= 1
    elif batch.ordering is not None and wanted.before is not None:
        ordered = (batch.flags[rows] & FLAG_NO_ORDERING) == 0
        later = (i for i, row in enumerate(rows.tolist()) if ordered[i] and not batch.ordering[row] < wanted.before)
        at = next(later, len(rows)) - 1
        # The event itself may say no order, and come twice: it is then among those before the first that is later.
        while at >= 0 and deleted[at] and not ordered[at]:
            at -= 1
    else:
        gone = np.flatnonzero(deleted)
        at = int(gone[-1]) - 1 if len(gone) else len(rows) - 1
    if at < 0:
        return OWN
    return LOST if deleted[at] else int(rows[at])


def _at(batch: TagBatch, rows: INT64, position: tuple[int, int]) -> int:
    """Which of the rows came from this position; -1 for none."""
    found = (batch.pos_hi[rows] == position[0]) & (batch.pos_lo[rows] == position[1])
    return int(np.argmax(found)) if found.any() else -1
