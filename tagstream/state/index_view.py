"""The index as of the newest committed batch, read from the checkpoint's own files without changing any of them.

It needs no Spark and no lock. A key group is read as a job that starts now would see it, in a scratch folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np

from tagstream.state import codec
from tagstream.state.batch_manifest import BatchManifest, DeltaRef, manifest_names
from tagstream.state.catch_up import epoch_change
from tagstream.state.checkpoint import INDEX, MANIFESTS, CheckpointMeta, current_root, read_meta
from tagstream.state.codec import Records
from tagstream.state.durable_files import Pointer, batch_of
from tagstream.state.index_loads import (
    complete_epochs,
    generation_numbers,
    newest_generation,
    read_epoch_marker,
    read_marker,
    read_start,
    starting_pointer,
)
from tagstream.state.layout import StateLayout
from tagstream.state.local_store import open_at
from tagstream.state.rocks_store import META_KEY, RocksStore
from tagstream.state.scratch import make_folder, remove
from tagstream.state.snapshot_and_deltas import apply_deltas, ingest_change, snapshot_files
from tagstream.state.store_entries import Place, StoreMeta, places_of
from tagstream.table.storage.storage import Storage


@dataclass(frozen=True)
class IndexHeads:
    """Where every key group stands. `epoch`: the catch-up that each must be past (``view.open_view``).

    `batch_id` and `instant`: of the newest committed batch; None before the first.
    """

    meta: CheckpointMeta
    layout: StateLayout
    pointers: dict[int, Pointer]
    generation: int
    epoch: int
    batch_id: int | None
    instant: str | None


def read_heads(
    checkpoint: Storage, local_dir: str, committed: Collection[str] | None = None, meta: CheckpointMeta | None = None
) -> IndexHeads:
    """The heads of the index in `checkpoint`; `local_dir` is a scratch folder for whoever opens key groups.

    `meta`: the fixed choices of a checkpoint in the making, which has none of its own yet.
    `committed`: names of the manifests that commits of the table name; by default all batches in Spark's commit log,
    which may lack the very newest. StateError when the checkpoint has no index or one of its files is damaged.
    """
    meta = read_meta(checkpoint) if meta is None else meta
    root = current_root(checkpoint).files
    layout = _layout(root, meta, local_dir)
    marker = newest_generation(layout)
    generation = marker.generation if marker is not None else 0
    manifests = root.below(MANIFESTS)
    read = (BatchManifest.read(manifests, name) for name in reversed(_committed(root, committed)))
    return _heads(layout, meta, generation, len(complete_epochs(layout, generation)), read)


def heads_as_of(root: Storage, meta: CheckpointMeta, local_dir: str, stands: Callable[[str], bool]) -> IndexHeads:
    """The heads of a root's index as they were before the table went back in time.

    ``stands``: whether the write of an instant is still in the table. Generations and epochs that cover one which is not,
    and batches whose commit is not, are left out. What is told of a root without an index: generation 0, no batch.
    IndexDamagedError when a file is damaged or was removed.
    """
    layout = _layout(root, meta, local_dir)
    markers = (read_marker(layout, number) for number in reversed(generation_numbers(layout)))
    whole = (marker.generation for marker in markers if marker is not None and all(map(stands, marker.covered)))
    generation = next(whole, 0)
    epochs = list(takewhile(lambda e: all(map(stands, e.instants)), complete_epochs(layout, generation)))
    manifests = root.below(MANIFESTS)
    read = (BatchManifest.read(manifests, name) for name in reversed(manifest_names(manifests)))
    left = (manifest for manifest in read if manifest.generation <= generation and stands(manifest.instant))
    return _heads(layout, meta, generation, len(epochs), left)


def _layout(root: Storage, meta: CheckpointMeta, local_dir: str) -> StateLayout:
    return StateLayout(root.below(INDEX), local_dir, ordering=meta.ordering, global_index=meta.global_index)


def _heads(
    layout: StateLayout, meta: CheckpointMeta, generation: int, epoch: int, manifests: Iterable[BatchManifest]
) -> IndexHeads:
    """``manifests``: of the batches that count, the newest first."""
    pointers: dict[int, Pointer] = {}
    newest: BatchManifest | None = None
    for manifest in manifests:
        newest = newest or manifest
        if manifest.generation < generation or len(pointers) == len(meta.labels):
            break
        for label, text in manifest.deltas.items():
            pointers.setdefault(label, DeltaRef.from_json(text).pointer)
    for label in meta.labels:
        if label not in pointers:
            pointers[label] = starting_pointer(layout, generation, label) if generation else Pointer()
    return IndexHeads(
        meta=meta,
        layout=layout,
        pointers=pointers,
        generation=generation,
        epoch=epoch,
        batch_id=newest.batch_id if newest is not None else None,
        instant=newest.instant if newest is not None else None,
    )


def _committed(root: Storage, names: Collection[str] | None) -> list[str]:
    found = manifest_names(root.below(MANIFESTS))
    if names is not None:
        return [n for n in found if n in names or _older(n, names)]
    done = max((int(n) for n in root.names("commits") if n.isdigit()), default=-1)
    return [n for n in found if (batch_of(n) or 0) <= done]


def _older(name: str, names: Collection[str]) -> bool:
    """A manifest of an archived commit: older than all that are named."""
    batches = [b for n in names if (b := batch_of(n)) is not None]
    batch = batch_of(name)
    return bool(batches) and batch is not None and batch < min(batches)


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
