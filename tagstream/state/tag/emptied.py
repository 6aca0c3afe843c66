"""A table that was emptied at its source: every row that was there at that place in the order is deleted.

The event is told to every key group. Each looks its own store through and adds a delete for each of its live keys that is
older (memory: the keys of one group), which then are decided like all others. A row from before that comes later, out of
another partition of the topic, must not stay either: the group keeps the event's ordering value under a key that no record
has, as a tombstone, and each record that is older gets a delete as well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tagstream.state.layout import StateLayout
from tagstream.state.store import codec
from tagstream.state.store.codec import ORDERING_UNKNOWN, TOMBSTONE, Records
from tagstream.state.store.records import records_of
from tagstream.state.store.rocks_store import RocksStore
from tagstream.state.tag_batch import (
    FLAG_DELETE,
    FLAG_NO_ORDERING,
    FLAG_NO_PARTITION,
    GLOBAL_KEY,
    OBJECTS,
    PARTITIONED_KEY,
    TagBatch,
)


def emptied_key(layout: StateLayout) -> bytes:
    """The state key of the empty record key, which no record can have."""
    return GLOBAL_KEY if layout.global_index else PARTITIONED_KEY + b"\x00"


def emptied_record(store: RocksStore, layout: StateLayout) -> Records | None:
    """The entry of the newest emptying that a key group knows of; None for none."""
    found, records = codec.decode_some(store.get([emptied_key(layout)]), layout.ordering)
    return records if found[0] else None


def with_deletes(batch: TagBatch, store: RocksStore, layout: StateLayout) -> tuple[TagBatch, int]:
    """The batch with the deletes that an emptying of now or of before brings, behind its own records; and how many of them
    are of no row: that which keeps the ordering value.
    """
    if layout.ordering == "none":
        return batch, 0
    told = batch.emptied[0] if batch.emptied is not None else None
    kept = _kept(store, layout)
    newer = told is not None and (kept is None or told >= kept)  # the same again: rows may have come back since
    at = told if newer else kept
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
        names.add(emptied_key(layout))
    return (_appended(batch, sorted(names), at), int(newer)) if names else (batch, 0)


def _kept(store: RocksStore, layout: StateLayout) -> Any:
    """Ordering value of the newest emptying that this group knows of; None for none."""
    record = emptied_record(store, layout)
    return record.ordering[0] if record is not None else None


def _appended(batch: TagBatch, names: list[bytes], at: Any) -> TagBatch:
    count = len(names)
    source, high, low = batch.emptied[1:] if batch.emptied is not None else (None, -1, -1)
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
        elsewhere=None if batch.elsewhere is None else np.concatenate([batch.elsewhere, np.zeros(count, np.bool_)]),
    )


def _objects(values: list[Any]) -> OBJECTS:
    out = np.empty(len(values), object)
    out[:] = values
    return out
