"""The winning record of each key, with the values that it lacks. A record whose values no row has is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from tagstream.state import decide
from tagstream.state.codec import TOMBSTONE
from tagstream.state.decide import BOOLS, Keys, Known, Winners, choose_winners, distinct_keys
from tagstream.state.store_entries import Location
from tagstream.state.tag_batch import (
    FLAG_DELETE,
    FLAG_NO_ORDERING,
    FLAG_NO_PARTITION,
    INT64,
    OBJECTS,
    Completion,
    TagBatch,
    TagResult,
)

Codes = npt.NDArray[np.uint32]
PlacesOf = Callable[[Codes], Sequence[Location]]


@dataclass(frozen=True)
class Choice:
    """`batch`: the records that were not refused; `origin`: their row numbers in the whole batch; `refused`: the numbers of
    the refused ones.

    `own`: how the winners that lack values are completed; `own_keys`: their keys. `images`: the rows that other keys
    asked for; `image_known`: what the store has of them.
    """

    batch: TagBatch
    names: OBJECTS
    winners: Winners
    known: Known
    origin: INT64
    refused: INT64
    own: decide.Walk | None = None
    own_keys: INT64 | None = None
    images: decide.Walk | None = None
    image_known: Known | None = None
    image_open: BOOLS = field(default_factory=lambda: np.zeros(0, np.bool_))
    image_deleted: BOOLS = field(default_factory=lambda: np.zeros(0, np.bool_))

    def complete(self, result: TagResult, old: INT64, places: Sequence[Location], places_of: PlacesOf) -> TagResult:
        """The result with row numbers of the whole batch, and the sources of the values that winners lack.

        `old`: for each key, the index of its old location in `places`. `places_of`: the locations of location codes.
        """
        take = np.where(result.take >= 0, self.origin[result.take], -1) if len(self.origin) else result.take
        result = replace(result, take=take, refused=self.refused)
        if self.own is None or self.own_keys is None or self.images is None or self.image_known is None:
            return result
        own_places = [
            places[old[key]] if stored_row == decide.OWN else None
            for key, stored_row in zip(self.own_keys.tolist(), self.own.stored_row.tolist(), strict=True)
        ]
        codes, inverse = np.unique(self.image_known.records.loc[self.image_known.live], return_inverse=True)
        found, at = places_of(codes), np.full(len(self.batch.images), -1, np.int64)
        at[self.image_known.live] = inverse
        return replace(
            result,
            completion=Completion(
                rows=self._whole(self.own.rows),
                donor=self._whole(self.own.donor),
                stored_row=self._whole(self.own.stored_row),
                places=own_places,
                asked=self.batch.images,
                image_rows=self._whole(self.images.rows),
                image_donor=self._whole(self.images.donor),
                image_stored_row=self._whole(self.images.stored_row),
                image_places=[found[i] if i >= 0 else None for i in at.tolist()],
                image_open=self.image_open,
                image_deleted=self.image_deleted,
                image_orders=_orders(self.batch, self.images.rows, self.image_known),
            ),
        )

    def partitions(self, old: INT64, places: Sequence[Location]) -> OBJECTS:
        """The partition of each winner: its own, or that of the row before it when the record has none.

        `old`: for each key, the index of its old location in `places`.
        """
        found: OBJECTS = self.batch.partitions[self.winners.row]
        partial = self.batch.partial
        if partial is None or partial.place < 0 or self.own is None or self.own_keys is None:
            return found
        unsent = (self.batch.flags[self.own.rows] & FLAG_NO_PARTITION) != 0
        donor = self.own.donor[unsent, partial.place]
        for key, row in zip(self.own_keys[unsent].tolist(), donor.tolist(), strict=True):  # only of partial updates
            found[key] = self.batch.partitions[row] if row >= 0 else places[old[key]][0]
        return found

    def _whole(self, rows: INT64) -> INT64:
        """Row numbers of the whole batch; numbers below zero stay."""
        if not len(self.origin):
            return rows
        numbers: INT64 = np.where(rows >= 0, self.origin[np.maximum(rows, 0)], rows)
        return numbers


def choose(batch: TagBatch, look_up: Callable[[list[bytes]], Known]) -> Choice:
    """Winners by what `look_up` knows of keys. Records that lack values which no row has are left out."""
    origin, refused = np.arange(len(batch), dtype=np.int64), [np.zeros(0, np.int64)]
    while True:
        keys = distinct_keys(batch)
        names: OBJECTS = batch.skeys[keys.rows[keys.starts]]
        known = look_up(names.tolist())
        winners = choose_winners(batch, keys, known)
        short = decide.lacking(batch, winners)
        if not short.any() and not batch.images:
            return Choice(batch, names, winners, known, origin, np.concatenate(refused))
        in_batch = {name: i for i, name in enumerate(names.tolist())} if batch.images else {}
        asked = [in_batch.get(image.skey, -1) for image in batch.images]
        chains = decide.chains(batch, keys, known, _with(short, asked))
        own = decide.of_new_rows(batch, decide.walk(batch, winners.row[short], chains.before))
        lost = own.rows[own.stored_row == decide.LOST]
        if not len(lost):
            image_known = look_up([image.skey for image in batch.images])
            images = _images(batch, chains, asked, image_known)
            short_keys = np.flatnonzero(short)
            gone = [_deletes(batch, keys, key) for key in asked]
            return Choice(
                batch, names, winners, known, origin, np.concatenate(refused), own, short_keys, images, image_known,
                _open(batch, asked, gone, image_known), _deleted(gone, image_known),
            )  # fmt: skip
        keep = np.ones(len(batch), np.bool_)
        keep[lost] = False
        refused.append(origin[lost])
        batch, origin = batch.only(keep), origin[keep]


def _with(mask: npt.NDArray[np.bool_], more: Sequence[int]) -> npt.NDArray[np.bool_]:
    out = mask.copy()
    out[[i for i in more if i >= 0]] = True
    return out


def _images(batch: TagBatch, chains: decide.Chains, asked: Sequence[int], known: Known) -> decide.Walk:
    """The rows that other keys asked for. A loop, because a change of key is rare."""
    assert batch.absent is not None
    none = np.zeros(0, np.int64)
    columns = batch.absent.shape[1]
    start = [
        decide.image_row(batch, chains.rows_of.get(key, none), image)
        for key, image in zip(asked, batch.images, strict=True)
    ]
    rows = np.array(start, np.int64)
    donor = np.full((len(rows), columns), -1, np.int64)
    stored_row = np.where(rows == decide.OWN, np.where(_holds(batch, known), decide.OWN, decide.LOST), rows)
    there = np.flatnonzero(rows >= 0)
    walked = decide.walk(batch, rows[there], chains.before)
    donor[there], stored_row[there] = walked.donor, walked.stored_row
    return decide.Walk(rows, donor, stored_row)


def _orders(batch: TagBatch, rows: INT64, known: Known) -> list[int | bytes | None]:
    """The ordering value of each row that was asked for, from the batch or (OWN) the table; None where it has none."""
    found: list[int | bytes | None] = [None] * len(rows)
    for i, row in enumerate(rows.tolist()):
        if batch.ordering is None:
            continue
        if row >= 0 and not batch.flags[row] & FLAG_NO_ORDERING:
            found[i] = batch.ordering[row]
        elif row == decide.OWN and known.has_ordering[i]:
            found[i] = known.records.ordering[i]
    return found


def _open(batch: TagBatch, asked: Sequence[int], gone: Sequence[Sequence[int]], known: Known) -> BOOLS:
    """Whether neither the batch nor the state surely has the event that removed the row, so earlier events may still come.
    A delete without an ordering value may be an earlier one. ``gone``: the rows of the batch that delete each key.
    """
    out = np.zeros(len(asked), np.bool_)
    for i, (key, deletes, image) in enumerate(zip(asked, gone, batch.images, strict=True)):
        if batch.ordering is None or image.before is None:
            out[i] = not deletes and (bool(known.live[i]) or key >= 0)
            continue
        ordered = [row for row in deletes if not batch.flags[row] & FLAG_NO_ORDERING]
        newer = any(batch.ordering[row] >= image.before for row in ordered)
        out[i] = not newer and not (known.has_ordering[i] and known.records.ordering[i] >= image.before)
    return out


def _deleted(gone: Sequence[Sequence[int]], known: Known) -> BOOLS:
    """Whether the state or the batch (``gone``) has a delete of each key that was asked for."""
    here = np.array([bool(deletes) for deletes in gone], np.bool_)
    out: BOOLS = here | (known.found & ((known.records.flags & TOMBSTONE) != 0))
    return out


def _deletes(batch: TagBatch, keys: Keys, key: int) -> list[int]:
    """The rows of the batch that delete the key with number ``key``; -1: the batch does not have the key."""
    if key < 0:
        return []
    end = int(keys.starts[key + 1]) if key < len(keys) - 1 else len(keys.rows)
    return [row for row in keys.rows[int(keys.starts[key]) : end].tolist() if batch.flags[row] & FLAG_DELETE]


def _holds(batch: TagBatch, known: Known) -> npt.NDArray[np.bool_]:
    """Whether the table's row of each key that was asked for is the one from before the event."""
    out = known.live.copy()
    for i, image in enumerate(batch.images):
        if out[i] and image.before is not None and known.has_ordering[i]:
            out[i] = bool(known.records.ordering[i] < image.before)
    return out
