"""What a key group removes before a snapshot: keys that have outlived their time to live, and unused locations.

All keys have the time to live `ttl_ms`. Deleted keys (tombstones) may have a shorter one. A location is unused when no
record has its code any more. Both are found in one pass over the store, and the batch's own delta removes them. So
replays, retries and restores need no code for it, and the snapshot does not have them. When the pass runs and what it
looks for depend only on the committed state, so another attempt of the batch makes the same change.

A pass costs 0.5 us per record for locations alone, 0.9 us for outlived keys. So locations are checked only when there
are many of them per record, and when some may have become unused since the last pass. After clusterings the check is in
the next snapshot. After moves and deletes it is in the first snapshot with at least a quarter as many new
locations as old ones, or some snapshots later. The store records its last pass in an entry that earlier versions
ignore:

    NUL "swept" -> {"format":1,"batch":batch,"epoch":epoch,"kept":locations left,"next_code":first free code}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

import numpy as np
import numpy.typing as npt

from tagstream.state.codec import TOMBSTONE, Records, expired
from tagstream.state.layout import StateLayout
from tagstream.state.rocks_store import RocksStore
from tagstream.state.store_entries import StoreMeta, all_codes, all_copies, locations_of, own_keys, records_of
from tagstream.table.stored_names import from_stored, to_stored
from tagstream.table.write.write_context import WriteProfile

NOTE_KEY = b"\x00swept"
_FORMAT = 1


@dataclass(frozen=True)
class SweepNote:
    """The last pass for unused locations: its batch and catch-up number, how many locations it kept, the first free code."""

    batch: int
    catch_up: int
    kept: int
    next_code: int

    def entry(self) -> tuple[bytes, bytes]:
        """The store's entry."""
        doc = {"format": _FORMAT, **to_stored(asdict(self))}
        return NOTE_KEY, json.dumps(doc, separators=(",", ":"), sort_keys=True).encode()


def last_sweep(store: RocksStore) -> SweepNote | None:
    """The note in a store; None without one or for one of another version. A pass is then due."""
    data = store.get([NOTE_KEY])[0]
    if data is None:
        return None
    doc = json.loads(data)
    return SweepNote(**from_stored(doc)) if doc.pop("format", None) == _FORMAT else None


class UsedPlaces:
    """The locations in a store's dictionary, each marked as used or not. At first only other locations of keys are used."""

    def __init__(self, store: RocksStore) -> None:
        self._codes, self._places = all_codes(store)
        self._used = np.zeros(len(self._codes), np.bool_)
        for _, codes in all_copies(store):  # of keys that no sound table has
            self.use(np.array(codes, np.uint32))

    def __len__(self) -> int:
        return len(self._codes)

    def use(self, codes: npt.NDArray[np.uint32]) -> None:
        """Mark the location codes of records as used; NO_LOCATION and codes that the store does not have are ignored."""
        if len(self._codes):
            at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
            self._used[at[self._codes[at] == codes]] = True

    def use_all(self, pieces: Iterable[npt.NDArray[np.uint32]]) -> None:
        """`use` for many pieces."""
        for codes in pieces:
            self.use(codes)

    def unused(self) -> tuple[int, list[bytes]]:
        """(number of unused locations, keys of their entries in the store, ascending)."""
        gone = np.flatnonzero(~self._used)
        return len(gone), own_keys(self._codes[gone], [self._places[i] for i in gone.tolist()])


def outlived(records: Records, now_ms: int, layout: StateLayout) -> npt.NDArray[np.bool_]:
    """Which records have outlived their time at `now_ms`: keys without a record, or deleted, for too long."""
    buried = (records.flags & TOMBSTONE) != 0
    found: npt.NDArray[np.bool_] = buried & expired(records.minutes, now_ms, layout.tombstone_ttl_ms)
    found |= expired(records.minutes, now_ms, layout.ttl_ms)
    return found


_TOMBSTONE_SHARE = 16
_MIN_PLACES = 256  # 24 kB
_RECORDS_A_PLACE = 64  # the dictionary is then a tenth of the store: 95 bytes per location, 15 per record
_GROWTH = 4
_SNAPSHOTS_BETWEEN = 16


@dataclass(frozen=True)
class Swept:
    """`keys`: outlived keys to remove, ascending; `live` of them are live, `tombstones` deleted. `unused`: keys of the
    store's own entries to remove, ascending. `entries`: the store's own entries to write.
    """

    keys: list[bytes] = field(default_factory=list)
    live: int = 0
    tombstones: int = 0
    unused: list[bytes] = field(default_factory=list)
    entries: list[tuple[bytes, bytes]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.keys or self.entries)


def before_a_snapshot(deltas: int, caught_up: int, layout: StateLayout) -> bool:
    """Whether the batch is the last one before a snapshot.

    `deltas`: number of deltas in the pointer; `caught_up`: how many of them are catch-ups that this batch has applied.
    Catch-ups may skip the exact number. The snapshot is then taken in this batch, and its store is checked too.
    """
    every = layout.snapshot_every
    after = deltas + 1 if deltas < every else 1
    return after >= every or deltas - caught_up < every <= deltas


def sweep(
    store: RocksStore,
    meta: StoreMeta,
    rewritten: set[bytes],
    codes: npt.NDArray[np.uint32],
    catch_up: int,
    profile: WriteProfile,
    layout: StateLayout,
) -> Swept:
    """What to remove in a batch that is `before_a_snapshot`.

    `meta`: of the store before the batch. `rewritten`: keys that the batch writes again, so that they stay. `codes`:
    locations that the batch's records have or had. `catch_up`: number of the last catch-up that the store has applied.
    """
    keys_due = layout.forgets and (layout.ttl_ms > 0 or meta.tombstones * _TOMBSTONE_SHARE >= meta.live)
    places_due = _places_due(store, meta, catch_up, profile.batch_id, layout)
    if not keys_due and not places_due:
        return Swept()
    used = UsedPlaces(store) if places_due else None
    dropped: list[bytes] = []
    tombstones = 0
    if keys_due:
        for keys, records in records_of(store, layout):
            gone = np.flatnonzero(outlived(records, profile.batch_time_ms, layout)).tolist()
            gone = [i for i in gone if keys[i] not in rewritten]  # a row loop: over outlived keys only
            dropped += [keys[i] for i in gone]
            tombstones += int(np.count_nonzero(records.flags[gone] & TOMBSTONE))
            if used is not None:
                used.use(np.delete(records.loc, gone))
    elif used is not None:
        used.use_all(locations_of(store))
    live = len(dropped) - tombstones
    if used is None:
        return Swept(dropped, live, tombstones)
    # A location that only one record had, which this batch moves, is removed the next time.
    used.use(codes)
    number, unused = used.unused()
    note = SweepNote(profile.batch_id, catch_up, len(used) - number, meta.next_code)
    return Swept(dropped, live, tombstones, unused, [note.entry()])


def _places_due(store: RocksStore, meta: StoreMeta, catch_up: int, batch_id: int, layout: StateLayout) -> bool:
    if meta.next_code < _MIN_PLACES:  # the note of a small dictionary is not even read
        return False
    last = last_sweep(store)
    new = meta.next_code - (last.next_code if last is not None else 0)
    places = new + (last.kept if last is not None else 0)
    if places < _MIN_PLACES or places * _RECORDS_A_PLACE < meta.live + meta.tombstones:
        return False
    if last is None or last.catch_up != catch_up or new * _GROWTH >= last.kept:
        return True
    return not 0 <= batch_id - last.batch < _SNAPSHOTS_BETWEEN * layout.snapshot_every
