"""Read a key group as a job that starts now would see it, in a scratch folder and without touching the checkpoint."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from tagstream.state.durable.catch_up import epoch_change
from tagstream.state.durable.delta import apply_deltas, ingest_change
from tagstream.state.durable.epoch import read_epoch_marker
from tagstream.state.durable.generation import read_start
from tagstream.state.durable.restore import open_at
from tagstream.state.durable.snapshot import snapshot_files
from tagstream.state.layout import StateLayout
from tagstream.state.pointer import Pointer
from tagstream.state.store import codec
from tagstream.state.store.codec import Records
from tagstream.state.store.dictionary import Place, places_of
from tagstream.state.store.rocks_store import META_KEY, RocksStore
from tagstream.state.store.scratch import make_folder, remove
from tagstream.state.store.store_meta import StoreMeta


def open_view(layout: StateLayout, label: int, pointer: Pointer, epoch: int) -> RocksStore:
    """The key group's store at `pointer`, brought past the epochs it lacks, under `layout.local_dir` (a scratch folder).

    Close it, or use it as a context manager. IndexDamagedError when a durable file is missing or damaged.
    """
    make_folder(layout.local_dir)
    store, meta = open_at(layout, label, pointer)
    try:
        for number in range(pointer.epoch + 1, epoch + 1):
            marker = read_epoch_marker(layout, pointer.generation, number)
            change, _ = epoch_change(store, layout, label, meta, marker, list_doubled=False)
            if change is not None:
                ingest_change(store, change)
                meta = replace(change.meta, chain=meta.chain)
    except BaseException:
        store.close()
        raise
    return store


def counts_at(layout: StateLayout, label: int, pointer: Pointer, generation: int, epoch: int) -> StoreMeta:
    """A key group's counters at `pointer`, read from its newest delta alone where that is enough."""
    if pointer.epoch == epoch:
        if pointer.deltas:
            return _counts_of_delta(layout, label, pointer)
        start = read_start(layout, generation, label) if generation else None
        if start is not None and start.snapshot == pointer.snapshot:
            return StoreMeta(pointer.chain, 0, start.live, start.tombstones)
        if pointer.snapshot is None:
            return StoreMeta()
    try:
        with open_view(layout, label, pointer, epoch) as store:
            return StoreMeta.from_bytes(store.get([META_KEY])[0], label)
    finally:
        remove(layout.group_dir(label))


def sizes_at(layout: StateLayout, label: int, pointer: Pointer) -> tuple[int, int]:
    """Bytes of a key group's snapshot and of the deltas after it."""
    files = snapshot_files(layout, label, pointer.snapshot) if pointer.snapshot is not None else []
    return sum(f.size for f in files), sum(d.size for d in pointer.deltas)


def _counts_of_delta(layout: StateLayout, label: int, pointer: Pointer) -> StoreMeta:
    folder = layout.group_dir(label)
    try:
        with RocksStore(os.path.join(folder, "newest")) as store:
            apply_deltas(store, layout, label, pointer.deltas[-1:])
            return StoreMeta.from_bytes(store.get([META_KEY])[0], label)
    finally:
        remove(folder)


def places_of_records(store: RocksStore, records: Records, label: int) -> tuple[list[Place], np.ndarray]:
    """(distinct places, index into them per record, -1 for a tombstone)."""
    dead = records.loc == codec.NO_LOCATION
    codes, index = np.unique(records.loc[~dead], return_inverse=True)
    at = np.full(len(dead), -1, np.int64)
    at[~dead] = index
    return places_of(codes, store.get, label), at
