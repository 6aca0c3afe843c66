"""Deletes that a batch implies: of rows that another writer has inserted again, and of all rows before a TRUNCATE.

Another writer may have inserted rows of an existing key into the table. A new row of the key replaces all of them, and
a delete deletes all of them, whatever their ordering values are: the index decides by the ordering value of the one
row that it knows.

A TRUNCATE of the source table deletes every row with an older ordering value. Every key group gets the event. Each
group reads its own store and adds a delete for each of its older live keys (memory: the keys of one group). These
deletes are then decided like all others. An older row may come later from another partition of the topic, and must
not stay either. So the group keeps the event's ordering value in a tombstone under a key that no record has. Each
record that is older than this value gets a delete too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.state import codec
from tagstream.state.codec import ORDERING_UNKNOWN, TOMBSTONE, Records
from tagstream.state.decide import Decision
from tagstream.state.layout import StateLayout
from tagstream.state.rocks_store import RocksStore
from tagstream.state.store_entries import Location, StoreMeta, copies_entry, copies_of, places_of, records_of
from tagstream.state.tag_batch import (
    FLAG_DELETE,
    FLAG_NO_ORDERING,
    FLAG_NO_PARTITION,
    GLOBAL_KEY,
    INT64,
    OBJECTS,
    OP_DELETE,
    PARTITIONED_KEY,
    TagBatch,
    TagResult,
)


@dataclass(frozen=True)
class Copies:
    """`skeys` and `places`: rows to delete; `entries`: of keys without other locations now; `keys`: their number."""

    skeys: list[bytes]
    places: list[Location]
    entries: list[tuple[bytes, bytes]]
    keys: int

    def counted(self, meta: StoreMeta) -> StoreMeta:
        """The counters after the batch."""
        return replace(meta, copies=meta.copies - self.keys) if self.keys else meta

    def deleted_too(self, result: TagResult) -> TagResult:
        """The result with a delete for each of these rows. These deletes need no ordering value."""
        n = len(self.places)
        if not n:
            return result
        nothing = np.zeros(n, result.ordering.dtype) if result.ordering.dtype != object else _keys_or_texts([b""] * n)
        return replace(
            result,
            take=np.concatenate([result.take, np.full(n, -1, np.int64)]),
            skey=np.concatenate([result.skey, _keys_or_texts(self.skeys)]),
            partition=np.concatenate([result.partition, _keys_or_texts([partition for partition, _ in self.places])]),
            file_id=np.concatenate([result.file_id, _keys_or_texts([file_id for _, file_id in self.places])]),
            op=np.concatenate([result.op, np.full(n, OP_DELETE, np.int8)]),
            ordering=np.concatenate([result.ordering, nothing]),
            has_ordering=np.concatenate([result.has_ordering, np.zeros(n, np.bool_)]),
        )


def find_copies(
    store: RocksStore,
    label: int,
    meta: StoreMeta,
    names: OBJECTS,
    decision: Decision,
    codes: npt.NDArray[np.uint32],
    new: INT64,
) -> Copies:
    """Other locations of the keys that the batch writes or deletes, except those that the batch writes them to.

    `codes`: location codes, into which `new` points, by key; -1 in `new`: the key has no location left.
    """
    if not meta.copies:
        return Copies([], [], [], 0)
    touched = np.flatnonzero(decision.kept | decision.buried)
    others = copies_of([names[i] for i in touched.tolist()], store.get)
    skeys, wanted, entries = list[bytes](), list[int](), list[tuple[bytes, bytes]]()
    # A row loop, over keys that no sound table has.
    for i, found in zip(touched.tolist(), others, strict=True):
        if not found:
            continue
        entries.append(copies_entry(names[i], ()))
        own = int(codes[new[i]]) if new[i] >= 0 else None
        skeys += [names[i] for code in found if code != own]
        wanted += [code for code in found if code != own]
    if not entries:
        return Copies([], [], [], 0)
    distinct, at = np.unique(np.array(wanted, np.uint32), return_inverse=True)
    places = places_of(distinct, store.get, label)
    return Copies(skeys, [places[i] for i in at.tolist()], entries, len(entries))


def _keys_or_texts(values: list[bytes] | list[str]) -> OBJECTS:
    out = np.empty(len(values), object)
    out[:] = values
    return out


def truncate_key(layout: StateLayout) -> bytes:
    """The state key of the empty record key, which no record can have."""
    return GLOBAL_KEY if layout.global_index else PARTITIONED_KEY + b"\x00"


def truncate_record(store: RocksStore, layout: StateLayout) -> Records | None:
    """The entry of the newest TRUNCATE that a key group has seen; None for none."""
    found, records = codec.decode_some(store.get([truncate_key(layout)]), layout.ordering)
    return records if found[0] else None


def with_deletes(batch: TagBatch, store: RocksStore, layout: StateLayout) -> tuple[TagBatch, int]:
    """The batch with the deletes of its own or an earlier TRUNCATE after its own records. Also how many of these deletes
    have no row: only the one that keeps the ordering value.
    """
    if layout.ordering == "none":
        return batch, 0
    truncated_at = batch.truncates[0] if batch.truncates is not None else None
    kept = _kept(store, layout)
    newer = truncated_at is not None and (
        kept is None or truncated_at >= kept
    )  # also for the same event: rows may be back since then
    at = truncated_at if newer else kept
    if at is None:
        return batch, 0
    assert batch.ordering is not None, "a batch whose layout has an order"
    names = set[bytes]()
    if len(batch):
        known = (batch.flags & FLAG_NO_ORDERING) == 0
        names.update(batch.skeys[known & (batch.ordering < at).astype(np.bool_)].tolist())
    if newer:
        for keys, records in records_of(store, layout):
            alive = (records.flags & TOMBSTONE) == 0
            unordered = (records.flags & ORDERING_UNKNOWN) != 0
            older = alive & (unordered | (records.ordering < at).astype(np.bool_))
            names.update(keys[i] for i in np.flatnonzero(older).tolist())
        names.add(truncate_key(layout))
    return (_appended(batch, sorted(names), at), int(newer)) if names else (batch, 0)


def _kept(store: RocksStore, layout: StateLayout) -> Any:
    """Ordering value of the newest TRUNCATE that this group has seen; None for none."""
    record = truncate_record(store, layout)
    return record.ordering[0] if record is not None else None


def _appended(batch: TagBatch, names: list[bytes], at: Any) -> TagBatch:
    count = len(names)
    source, high, low = batch.truncates[1:] if batch.truncates is not None else (None, -1, -1)
    ordering = np.full(count, at, np.int64) if batch.ordering is not None and batch.ordering.dtype != object else None
    return replace(
        batch,
        skeys=np.concatenate([batch.skeys, _objects(names)]),
        partitions=np.concatenate([batch.partitions, _objects([None] * count)]),
        ordering=np.concatenate([batch.ordering, _objects([at] * count) if ordering is None else ordering]),
        flags=np.concatenate([batch.flags, np.full(count, FLAG_DELETE | FLAG_NO_PARTITION, np.uint8)]),
        source=np.concatenate([batch.source, _objects([source] * count)]),
        pos_hi=np.concatenate([batch.pos_hi, np.full(count, high, np.int64)]),
        pos_lo=np.concatenate([batch.pos_lo, np.full(count, low, np.int64)]),
        absent=None
        if batch.absent is None
        else np.concatenate([batch.absent, np.zeros((count, batch.absent.shape[1]), np.bool_)]),
        in_other_row=None
        if batch.in_other_row is None
        else np.concatenate([batch.in_other_row, np.zeros(count, np.bool_)]),
    )


def _objects(values: list[Any]) -> OBJECTS:
    out = np.empty(len(values), object)
    out[:] = values
    return out
