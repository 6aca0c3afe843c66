"""The index as of the newest committed batch, read from the checkpoint's files. None of them is changed.

This needs no Spark and no lock. A key group is read in a scratch folder, as a job that starts now would read it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np

from tagstream.state import codec
from tagstream.state.batch_manifest import BatchManifest, DeltaRef, manifest_names
from tagstream.state.catch_up import catch_up_change
from tagstream.state.checkpoint import INDEX, MANIFESTS, CheckpointMeta, current_query_folder, read_meta
from tagstream.state.codec import Records
from tagstream.state.durable_files import Pointer, batch_of
from tagstream.state.index_loads import (
    complete_catch_ups,
    index_load_numbers,
    newest_index_load,
    read_catch_up_marker,
    read_marker,
    read_start,
    starting_pointer,
)
from tagstream.state.layout import StateLayout
from tagstream.state.local_store import open_at
from tagstream.state.rocks_store import META_KEY, RocksStore
from tagstream.state.scratch import make_folder, remove
from tagstream.state.snapshot_and_deltas import apply_deltas, ingest_change, snapshot_files
from tagstream.state.store_entries import Location, StoreMeta, places_of
from tagstream.table.storage.storage import Storage


@dataclass(frozen=True)
class IndexHeads:
    """The committed state of every key group. `index_load`: number of the index load; `catch_up`: number of the
    catch-up that each group must have applied (`open_view` does it).

    `batch_id` and `instant`: of the newest committed batch; None before the first.
    """

    meta: CheckpointMeta
    layout: StateLayout
    pointers: dict[int, Pointer]
    index_load: int
    catch_up: int
    batch_id: int | None
    instant: str | None


def read_heads(
    checkpoint: Storage, local_dir: str, committed: Collection[str] | None = None, meta: CheckpointMeta | None = None
) -> IndexHeads:
    """The heads of the index in `checkpoint`; `local_dir`: a scratch folder in which key groups are opened later.

    `meta`: the fixed choices of a checkpoint that a command is still making, which has no file with them yet.
    `committed`: names of the manifests that commits of the table name. By default all batches in Spark's commit log
    count; the log may lack the newest one. StateError when the checkpoint has no index or one of its files is damaged.
    """
    meta = read_meta(checkpoint) if meta is None else meta
    query_folder = current_query_folder(checkpoint).files
    layout = _layout(query_folder, meta, local_dir)
    marker = newest_index_load(layout)
    index_load = marker.index_load if marker is not None else 0
    manifests = query_folder.below(MANIFESTS)
    read = (BatchManifest.read(manifests, name) for name in reversed(_committed(query_folder, committed)))
    return _heads(layout, meta, index_load, len(complete_catch_ups(layout, index_load)), read)


def heads_as_of(
    query_folder: Storage, meta: CheckpointMeta, local_dir: str, in_table: Callable[[str], bool]
) -> IndexHeads:
    """The heads of the index in a query's folder `query_folder`, as they were before the table was restored to an
    earlier time.

    ``in_table``: whether the write of an instant is still in the table. Index loads and catch-ups that cover a write which
    is not are left out, and so are batches whose commit is not. Without an index the result is index load 0 and no batch.
    IndexDamagedError when a file is damaged or missing.
    """
    layout = _layout(query_folder, meta, local_dir)
    markers = (read_marker(layout, number) for number in reversed(index_load_numbers(layout)))
    whole = (marker.index_load for marker in markers if marker is not None and all(map(in_table, marker.covered)))
    index_load = next(whole, 0)
    catch_ups = list(takewhile(lambda e: all(map(in_table, e.instants)), complete_catch_ups(layout, index_load)))
    manifests = query_folder.below(MANIFESTS)
    read = (BatchManifest.read(manifests, name) for name in reversed(manifest_names(manifests)))
    left = (manifest for manifest in read if manifest.index_load <= index_load and in_table(manifest.instant))
    return _heads(layout, meta, index_load, len(catch_ups), left)


def _layout(query_folder: Storage, meta: CheckpointMeta, local_dir: str) -> StateLayout:
    return StateLayout(query_folder.below(INDEX), local_dir, ordering=meta.ordering, global_index=meta.global_index)


def _heads(
    layout: StateLayout, meta: CheckpointMeta, index_load: int, catch_up: int, manifests: Iterable[BatchManifest]
) -> IndexHeads:
    """``manifests``: of the batches that count, newest first."""
    pointers: dict[int, Pointer] = {}
    newest: BatchManifest | None = None
    for manifest in manifests:
        newest = newest or manifest
        if manifest.index_load < index_load or len(pointers) == len(meta.labels):
            break
        for label, text in manifest.deltas.items():
            pointers.setdefault(label, DeltaRef.from_json(text).pointer)
    for label in meta.labels:
        if label not in pointers:
            pointers[label] = starting_pointer(layout, index_load, label) if index_load else Pointer()
    return IndexHeads(
        meta=meta,
        layout=layout,
        pointers=pointers,
        index_load=index_load,
        catch_up=catch_up,
        batch_id=newest.batch_id if newest is not None else None,
        instant=newest.instant if newest is not None else None,
    )


def _committed(query_folder: Storage, names: Collection[str] | None) -> list[str]:
    found = manifest_names(query_folder.below(MANIFESTS))
    if names is not None:
        return [n for n in found if n in names or _older(n, names)]
    done = max((int(n) for n in query_folder.names("commits") if n.isdigit()), default=-1)
    return [n for n in found if (batch_of(n) or 0) <= done]


def _older(name: str, names: Collection[str]) -> bool:
    """Whether it is the manifest of an archived commit: older than all in ``names``."""
    batches = [b for n in names if (b := batch_of(n)) is not None]
    batch = batch_of(name)
    return bool(batches) and batch is not None and batch < min(batches)


def open_view(layout: StateLayout, label: int, pointer: Pointer, catch_up: int) -> RocksStore:
    """The key group's store at `pointer` with all catch-ups up to `catch_up`, under `layout.local_dir` (a scratch folder).

    Close it, or use it as a context manager. IndexDamagedError when a durable file is missing or damaged.
    """
    make_folder(layout.local_dir)
    store, meta = open_at(layout, label, pointer)
    try:
        for number in range(pointer.catch_up + 1, catch_up + 1):
            marker = read_catch_up_marker(layout, pointer.index_load, number)
            change, _ = catch_up_change(store, layout, label, meta, marker, list_doubled=False)
            if change is not None:
                ingest_change(store, change)
                meta = replace(change.meta, chain=meta.chain)
    except BaseException:
        store.close()
        raise
    return store


def counts_at(layout: StateLayout, label: int, pointer: Pointer, index_load: int, catch_up: int) -> StoreMeta:
    """A key group's counters at `pointer`, read from its newest delta alone where possible."""
    if pointer.catch_up == catch_up:
        if pointer.deltas:
            return _counts_of_delta(layout, label, pointer)
        start = read_start(layout, index_load, label) if index_load else None
        if start is not None and start.snapshot == pointer.snapshot:
            return StoreMeta(pointer.chain, 0, start.live, start.tombstones)
        if pointer.snapshot is None:
            return StoreMeta()
    try:
        with open_view(layout, label, pointer, catch_up) as store:
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


def places_of_records(store: RocksStore, records: Records, label: int) -> tuple[list[Location], np.ndarray]:
    """(distinct locations, index into them per record, -1 for a tombstone)."""
    dead = records.loc == codec.NO_LOCATION
    codes, index = np.unique(records.loc[~dead], return_inverse=True)
    at = np.full(len(dead), -1, np.int64)
    at[~dead] = index
    return places_of(codes, store.get, label), at
