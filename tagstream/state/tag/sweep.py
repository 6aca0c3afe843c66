"""What a key group forgets when its next batch takes a snapshot: keys that have outlived their time, and places that no
record uses any more.

Both are found in one reading of the store, and go with the batch's own change: a delta takes them away, so that replays,
retries and restores need to know nothing of it, and the snapshot is without them. What is read for and when depends on
nothing but the committed state: another attempt of the batch makes the same change.

The reading costs 0.5 us a record for places alone, 0.9 us for outlived keys. So it has to be worth it: places are looked
through when there are many for the records, and when some may have lost theirs since the last look. After clusterings
that is in the snapshot to come; by moves and deletes, when as many new places as a quarter of the old ones have come, or
some snapshots later.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tagstream.state.layout import StateLayout
from tagstream.state.store.codec import TOMBSTONE
from tagstream.state.store.records import locations_of, records_of
from tagstream.state.store.rocks_store import RocksStore
from tagstream.state.store.store_meta import StoreMeta
from tagstream.state.store.used_places import SweepNote, UsedPlaces, last_sweep
from tagstream.state.tag.outlived import outlived
from tagstream.table.write.write_profile import WriteProfile

_TOMBSTONE_SHARE = 16
_MIN_PLACES = 256  # 24 kB
_RECORDS_A_PLACE = 64  # the dictionary is then a tenth of the store: 95 bytes a place, 15 a record
_GROWTH = 4
_SNAPSHOTS_BETWEEN = 16


@dataclass(frozen=True)
class Swept:
    """`keys`: outlived ones to forget, ascending, of which `live` are live and `tombstones` deleted. `unused`: keys of the
    store's own entries to remove, ascending; `entries`: of its own, to write.
    """

    keys: list[bytes] = field(default_factory=list)
    live: int = 0
    tombstones: int = 0
    unused: list[bytes] = field(default_factory=list)
    entries: list[tuple[bytes, bytes]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.keys or self.entries)


def before_a_snapshot(deltas: int, caught_up: int, layout: StateLayout) -> bool:
    """Whether the batch is the last one before a snapshot; `deltas` are the pointer's, of which the batch has made
    `caught_up` itself, by catching up.

    Where catching up skips the number, the snapshot is this batch's own, and its store is looked through all the same.
    """
    every = layout.snapshot_every
    after = deltas + 1 if deltas < every else 1
    return after >= every or deltas - caught_up < every <= deltas


def sweep(
    store: RocksStore,
    meta: StoreMeta,
    rewritten: set[bytes],
    codes: npt.NDArray[np.uint32],
    epoch: int,
    profile: WriteProfile,
    layout: StateLayout,
) -> Swept:
    """What to forget with a batch that is `before_a_snapshot`.

    `meta`: of the store as it is before the batch. `rewritten`: keys that the batch brings again, so that they stay.
    `codes`: places that the batch's records have or had. `epoch`: the one that the store is past.
    """
    keys_due = layout.forgets and (layout.ttl_ms > 0 or meta.tombstones * _TOMBSTONE_SHARE >= meta.live)
    places_due = _places_due(store, meta, epoch, profile.batch_id, layout)
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
    # A place that only a record had which this very batch moves stays until the next time.
    used.use(codes)
    number, unused = used.unused()
    note = SweepNote(profile.batch_id, epoch, len(used) - number, meta.next_code)
    return Swept(dropped, live, tombstones, unused, [note.entry()])


def _places_due(store: RocksStore, meta: StoreMeta, epoch: int, batch_id: int, layout: StateLayout) -> bool:
    if meta.next_code < _MIN_PLACES:  # so the note of a small dictionary is not even read
        return False
    last = last_sweep(store)
    new = meta.next_code - (last.next_code if last is not None else 0)
    places = new + (last.kept if last is not None else 0)
    if places < _MIN_PLACES or places * _RECORDS_A_PLACE < meta.live + meta.tombstones:
        return False
    if last is None or last.epoch != epoch or new * _GROWTH >= last.kept:
        return True
    return not 0 <= batch_id - last.batch < _SNAPSHOTS_BETWEEN * layout.snapshot_every
