"""A checkpoint's index opened for reading, key group by key group, in scratch folders.

The index is read as of the checkpoint's newest committed batch. The keys of a key group are Arrow columns, in pieces. State
keys are converted to record keys and back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.cli.output import AdminError, Fact
from tagstream.state.checkpoint import META_FILE, TABLE_INDEX, CheckpointMeta, read_meta
from tagstream.state.codec import ORDERING_UNKNOWN, TOMBSTONE, Records
from tagstream.state.errors import StateError
from tagstream.state.implied_deletes import truncate_key
from tagstream.state.index_loads import IndexLoadMarker, read_marker
from tagstream.state.index_view import IndexHeads, counts_at, open_view, places_of_records, read_heads, sizes_at
from tagstream.state.layout import StateLayout
from tagstream.state.rocks_store import RocksStore
from tagstream.state.scratch import remove, scratch_folder
from tagstream.state.store_entries import Location, StoreMeta, records_of
from tagstream.state.tag_batch import GLOBAL_KEY, PARTITIONED_KEY
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import Storage

_NUL = b"\x00"
_LONGEST = 2**31 - 1


@dataclass(frozen=True)
class Index:
    """The index of a checkpoint as of its newest committed batch. ``layout.local_dir`` is a scratch folder."""

    files: Storage
    heads: IndexHeads

    @property
    def checkpoint(self) -> str:
        """The path of the checkpoint, for messages."""
        return self.files.root

    @property
    def layout(self) -> StateLayout:
        """Folders and fixed choices of the index."""
        return self.heads.layout

    @property
    def labels(self) -> tuple[int, ...]:
        """Labels of the key groups. The index of a label is the number of its key group."""
        return self.heads.meta.labels

    @property
    def marker(self) -> IndexLoadMarker | None:
        """The marker of the index load; None for an index that began empty."""
        return read_marker(self.layout, self.heads.index_load) if self.heads.index_load else None

    @property
    def partition_regex(self) -> str:
        """Matches the partitions whose keys the index has."""
        marker = self.marker
        return str(marker.report.get("partition_regex", ".*")) if marker is not None else ".*"

    def facts(self) -> list[Fact]:
        """The facts that every command on an index shows first."""
        heads, marker = self.heads, self.marker
        instant = heads.instant or (marker.instant if marker is not None else None)
        return [
            Fact("checkpoint", "checkpoint", self.checkpoint),
            Fact("batch_id", "newest batch", heads.batch_id),
            Fact("instant", "index as of", instant),
        ]

    @contextmanager
    def group(self, label: int) -> Iterator[RocksStore]:
        """A key group's store, removed at the end of the block."""
        try:
            with open_view(self.layout, label, self.heads.pointers[label], self.heads.catch_up) as store:
                yield store
        finally:
            remove(self.layout.group_dir(label))

    def counts(self, label: int) -> StoreMeta:
        """A key group's counters, read from its newest delta alone where possible."""
        heads = self.heads
        return counts_at(self.layout, label, heads.pointers[label], heads.index_load, heads.catch_up)

    def sizes(self, label: int) -> tuple[int, int]:
        """Bytes of a key group's snapshot and of the deltas after it."""
        return sizes_at(self.layout, label, self.heads.pointers[label])


def existing_checkpoint(url: str) -> Storage:
    """The files of a checkpoint with an index; AdminError when there is none at ``url``."""
    checkpoint = open_storage(url)
    path = checkpoint.root
    if not checkpoint.exists(META_FILE):
        if not checkpoint.exists(""):
            raise AdminError(f"{path} does not exist; check --checkpoint-dir")
        raise AdminError(f"{path} is not a checkpoint of Tagstream: it has no {META_FILE}; check --checkpoint-dir")
    if read_meta(checkpoint).index == TABLE_INDEX:
        raise AdminError(
            f"{path} has no index: its stream looks keys up in the table (hoodie.index.type). Use these commands instead: "
            "tagstream table rows --key, tagstream table validate"
        )
    return checkpoint


@contextmanager
def open_index(
    checkpoint: Storage, committed: Collection[str] | None = None, meta: CheckpointMeta | None = None
) -> Iterator[Index]:
    """The index in an existing checkpoint. The checkpoint is neither locked nor changed.

    ``committed``: names of the batch manifests that count; by default those of the batches that Spark has committed.
    ``meta``: the choices of a checkpoint that is not complete yet.
    """
    with scratch_folder("tagstream-index-") as scratch:
        try:
            heads = read_heads(checkpoint, scratch, committed, meta)
        except FileNotFoundError as e:  # a running job has removed a file that it no longer needs
            raise StateError(f"{e.filename} has just been removed by the job; run the command again") from e
        yield Index(checkpoint, replace(heads, layout=replace(heads.layout, lock_wait_s=0.0)))


@dataclass(frozen=True)
class Entries:
    """Some keys of a key group. ``place``: index of the location in ``places``, -1 for a tombstone."""

    skeys: pa.Array
    records: Records
    places: list[Location]
    place: npt.NDArray[np.int64]

    @property
    def deleted(self) -> npt.NDArray[np.bool_]:
        """Mask of the tombstones."""
        deleted: npt.NDArray[np.bool_] = (self.records.flags & TOMBSTONE) != 0
        return deleted

    def partition_paths(self) -> pa.Array:
        """Partition path of every key; null for a tombstone of a global index."""
        return self._of_places(0)

    def file_ids(self) -> pa.Array:
        """File id of every key; null for a tombstone."""
        return self._of_places(1)

    def instants(self) -> pa.Array:
        """The instant that last set each key, as strings."""
        return pa.array(self.records.instant, pa.int64()).cast(pa.string())

    def ordering(self, layout: StateLayout) -> pa.Array:
        """Ordering values as in the index; null where unknown."""
        unknown = (self.records.flags & ORDERING_UNKNOWN) != 0
        if layout.ordering == "bytes":
            return pa.array(self.records.ordering, pa.binary(), mask=unknown).cast(pa.string())
        kind = pa.binary() if layout.ordering == "tuple" else pa.int64()
        return pa.array(self.records.ordering, kind, mask=unknown)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Entries:
        """The entries where the mask ``chosen`` is True."""
        r = self.records
        records = Records(r.loc[chosen], r.instant[chosen], r.minutes[chosen], r.flags[chosen], r.ordering[chosen])
        return Entries(self.skeys.filter(pa.array(chosen)), records, self.places, self.place[chosen])

    def _of_places(self, part: int) -> pa.Array:
        names = pa.array([place[part] for place in self.places], pa.string())
        return names.take(pa.array(self.place, pa.int64(), mask=self.place < 0))


def entries_of(store: RocksStore, layout: StateLayout, label: int) -> Iterator[Entries]:
    """All keys of a key group, in the order of the state keys, in bounded pieces."""
    for keys, records in records_of(store, layout):
        places, place = places_of_records(store, records, label)
        yield Entries(pa.array(keys, pa.binary()), records, places, place)


@dataclass
class EmptiedMark:
    """The newest TRUNCATE of the source table. Every key group keeps it under a key that no record has.

    That key does not belong to the group that has it. So a new index has it in each of its groups, and a file has it once.
    """

    layout: StateLayout
    found: Entries | None = None

    def taken_from(self, entries: Entries) -> Entries:
        """The entries without the mark. The newest mark of all is kept in ``found``."""
        is_mark = pc.equal(entries.skeys, truncate_key(self.layout)).to_numpy(zero_copy_only=False)
        if not is_mark.any():
            return entries
        for number in np.flatnonzero(is_mark).tolist():  # one per key group
            self.take(entries.where(np.arange(len(is_mark)) == number))
        return entries.where(~is_mark)

    def take(self, mark: Entries | None) -> None:
        """Keep ``mark`` if it is newer than the one in ``found``."""
        if mark is not None and (self.found is None or mark.records.ordering[0] > self.found.records.ordering[0]):
            self.found = mark


def record_keys(skeys: pa.Array, layout: StateLayout) -> tuple[pa.Array, pa.Array | None]:
    """(record keys, partition paths) of state keys; partition paths are None for a global index."""
    rest = _without_first_byte(skeys)
    if layout.global_index:
        return rest.cast(pa.string()), None
    parts = pc.split_pattern(rest, _NUL, max_splits=1)
    return pc.list_element(parts, 1).cast(pa.string()), pc.list_element(parts, 0).cast(pa.string())


def state_keys(keys: pa.Array, partitions: pa.Array | str, layout: StateLayout) -> pa.Array:
    """State keys of record keys. ``partitions``: of each key, or one for all; used only if the index is not global."""
    keys = keys.cast(pa.binary())
    if layout.global_index:
        return pc.binary_join_element_wise(pa.scalar(GLOBAL_KEY), keys, pa.scalar(b""))
    paths = pa.scalar(partitions.encode()) if isinstance(partitions, str) else partitions.cast(pa.binary())
    return pc.binary_join_element_wise(pa.scalar(PARTITIONED_KEY), paths, pa.scalar(_NUL), keys, pa.scalar(b""))


def _without_first_byte(skeys: pa.Array) -> pa.Array:
    # Without a stop Arrow overflows its own size estimate (apache/arrow#51222).
    return pc.binary_slice(skeys, 1, _LONGEST)
