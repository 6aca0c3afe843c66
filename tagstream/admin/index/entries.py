"""The keys of a key group as Arrow columns, in pieces; and the state's keys of record keys, both ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.state.durable.view import places_of_records
from tagstream.state.key_group import key_groups
from tagstream.state.layout import StateLayout
from tagstream.state.store.codec import ORDERING_UNKNOWN, TOMBSTONE, Records
from tagstream.state.store.dictionary import Place
from tagstream.state.store.records import records_of
from tagstream.state.store.rocks_store import RocksStore
from tagstream.state.tag.emptied import emptied_key
from tagstream.state.tag_batch import GLOBAL_KEY, PARTITIONED_KEY

_NUL = b"\x00"
_LONGEST = 2**31 - 1


@dataclass(frozen=True)
class Entries:
    """Some keys of a key group. ``place``: index into ``places``, -1 for a tombstone."""

    skeys: pa.Array
    records: Records
    places: list[Place]
    place: npt.NDArray[np.int64]

    @property
    def deleted(self) -> npt.NDArray[np.bool_]:
        """Which are tombstones."""
        deleted: npt.NDArray[np.bool_] = (self.records.flags & TOMBSTONE) != 0
        return deleted

    def partition_paths(self) -> pa.Array:
        """Partition path of every key; null for a tombstone of a global index."""
        return self._of_places(0)

    def file_ids(self) -> pa.Array:
        """File id of every key; null for a tombstone."""
        return self._of_places(1)

    def instants(self) -> pa.Array:
        """The instant that last set each key, as text."""
        return pa.array(self.records.instant, pa.int64()).cast(pa.string())

    def ordering(self, layout: StateLayout) -> pa.Array:
        """Ordering values as the index keeps them; null where not known."""
        unknown = (self.records.flags & ORDERING_UNKNOWN) != 0
        if layout.ordering == "bytes":
            return pa.array(self.records.ordering, pa.binary(), mask=unknown).cast(pa.string())
        kind = pa.binary() if layout.ordering == "tuple" else pa.int64()
        return pa.array(self.records.ordering, kind, mask=unknown)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Entries:
        """Some of them."""
        r = self.records
        records = Records(r.loc[chosen], r.instant[chosen], r.minutes[chosen], r.flags[chosen], r.ordering[chosen])
        return Entries(self.skeys.filter(pa.array(chosen)), records, self.places, self.place[chosen])

    def _of_places(self, part: int) -> pa.Array:
        names = pa.array([place[part] for place in self.places], pa.string())
        return names.take(pa.array(self.place, pa.int64(), mask=self.place < 0))


def entries_of(store: RocksStore, layout: StateLayout, label: int) -> Iterator[Entries]:
    """All keys of a key group, in the order of the state's keys, in bounded pieces."""
    for keys, records in records_of(store, layout):
        places, place = places_of_records(store, records, label)
        yield Entries(pa.array(keys, pa.binary()), records, places, place)


@dataclass
class EmptiedMark:
    """The newest event that emptied the table at its source, which every key group keeps under a key of no record.

    It is no key of the group that it is found in: a new index has it in each of its groups, a file once.
    """

    layout: StateLayout
    found: Entries | None = None

    def taken_from(self, entries: Entries) -> Entries:
        """The entries without it; it is kept here, the newest of all."""
        is_mark = pc.equal(entries.skeys, emptied_key(self.layout)).to_numpy(zero_copy_only=False)
        if not is_mark.any():
            return entries
        for number in np.flatnonzero(is_mark).tolist():  # one a key group
            self.take(entries.where(np.arange(len(is_mark)) == number))
        return entries.where(~is_mark)

    def take(self, mark: Entries | None) -> None:
        """Keep a mark that is newer than the one that is kept."""
        if mark is not None and (self.found is None or mark.records.ordering[0] > self.found.records.ordering[0]):
            self.found = mark


def record_keys(skeys: pa.Array, layout: StateLayout) -> tuple[pa.Array, pa.Array | None]:
    """(record keys, partition paths; None for a global index) in the state's keys."""
    rest = _without_first_byte(skeys)
    if layout.global_index:
        return rest.cast(pa.string()), None
    parts = pc.split_pattern(rest, _NUL, max_splits=1)
    return pc.list_element(parts, 1).cast(pa.string()), pc.list_element(parts, 0).cast(pa.string())


def state_keys(keys: pa.Array, partitions: pa.Array | str, layout: StateLayout) -> pa.Array:
    """The state's keys of record keys; ``partitions`` (or the one of all) count for an index that is not global."""
    keys = keys.cast(pa.binary())
    if layout.global_index:
        return pc.binary_join_element_wise(pa.scalar(GLOBAL_KEY), keys, pa.scalar(b""))
    paths = pa.scalar(partitions.encode()) if isinstance(partitions, str) else partitions.cast(pa.binary())
    return pc.binary_join_element_wise(pa.scalar(PARTITIONED_KEY), paths, pa.scalar(_NUL), keys, pa.scalar(b""))


def key_groups_of(skeys: pa.Array, groups: int) -> npt.NDArray[np.int32]:
    """Key group of every state key: ``crc32`` without the first byte modulo their number, as the stream's."""
    return key_groups(_without_first_byte(skeys).to_numpy(zero_copy_only=False).tolist(), groups)


def _without_first_byte(skeys: pa.Array) -> pa.Array:
    # Without a stop Arrow overflows its own size estimate (apache/arrow#51222).
    return pc.binary_slice(skeys, 1, _LONGEST)
