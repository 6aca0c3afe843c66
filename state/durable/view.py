"""Read a key group as a job that starts now would see it, in a scratch folder and without touching the checkpoint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tagstream.state.durable.catch_up import epoch_change
from tagstream.state.durable.delta import ingest_change
from tagstream.state.durable.epoch import read_epoch_marker
from tagstream.state.durable.restore import open_at
from tagstream.state.layout import StateLayout
from tagstream.state.pointer import Pointer
from tagstream.state.store import codec
from tagstream.state.store.codec import Records
from tagstream.state.store.dictionary import Place, places_of
from tagstream.state.store.rocks_store import RocksStore
from tagstream.state.store.scratch import make_folder


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


def places_of_records(store: RocksStore, records: Records, label: int) -> tuple[list[Place], np.ndarray]:
    """(distinct places, index into them per record, -1 for a tombstone)."""
    dead = records.loc == codec.NO_LOCATION
    codes, index = np.unique(records.loc[~dead], return_inverse=True)
    at = np.full(len(dead), -1, np.int64)
    at[~dead] = index
    return places_of(codes, store.get, label), at
