"""Open a key group's local store at exactly the state a pointer names."""

from __future__ import annotations

import os
import time

from tagstream.state.durable.delta import apply_deltas
from tagstream.state.durable.snapshot import restore_snapshot
from tagstream.state.errors import LocalStoreError, LockedStoreError
from tagstream.state.layout import StateLayout
from tagstream.state.local_folder import make_private
from tagstream.state.pointer import Pointer
from tagstream.state.store import scratch
from tagstream.state.store.holders import making
from tagstream.state.store.rocks_store import META_KEY, RocksStore
from tagstream.state.store.store_meta import StoreMeta
from tagstream.state.store.unopened import look_around

_LOCK_POLL_S = 0.1
_MAX_FOLDERS = 100


def open_at(layout: StateLayout, label: int, pointer: Pointer) -> tuple[RocksStore, StoreMeta]:
    """The group's store, brought to the pointer, and its meta entry.

    A store of the same lineage gets the deltas it lacks; one that is missing, damaged, ahead or of another lineage is
    built again from snapshot and deltas. One that stays locked is left alone and another folder is used.
    """
    make_private(layout)
    deadline = time.monotonic() + layout.lock_wait_s
    for number in range(_MAX_FOLDERS):
        path = os.path.join(layout.group_dir(label), f"store-{number}")
        while True:
            try:
                opened = _open_or_rebuild(layout, label, pointer, path)
            except LockedStoreError:
                if time.monotonic() >= deadline:
                    break  # its holder may never end: go on in a fresh folder
                time.sleep(_LOCK_POLL_S)
            else:
                if number == 0:
                    _clear_spares(layout.group_dir(label))
                look_around(layout.local_dir, path)
                return opened
    raise LocalStoreError(
        f"key group {label}: {_MAX_FOLDERS} local stores under {layout.group_dir(label)} are all locked; "
        "end the processes that hold them"
    )


def _open_or_rebuild(layout: StateLayout, label: int, pointer: Pointer, path: str) -> tuple[RocksStore, StoreMeta]:
    if scratch.exists(path):
        try:
            store = RocksStore(path, merges=True)
        except LockedStoreError:
            raise
        except LocalStoreError:
            store = None
        if store is not None:
            _clear_leftovers(path)
            try:
                meta = _advance(store, layout, label, pointer)
                if meta is not None:
                    return store, meta
            except LocalStoreError:
                pass
            except BaseException:
                store.close()
                raise
            store.close()
    return _rebuild(layout, label, pointer, path)


def _clear_leftovers(path: str) -> None:
    """Remove scratch files beside a store whose lock this process holds: their writers are dead."""
    folder, name = os.path.split(path)
    for other in scratch.names(folder):
        if other.startswith(f"{name}."):
            scratch.remove(os.path.join(folder, other))


def _clear_spares(folder: str) -> None:
    """Remove the stores that were used while the first one was locked, but for one that somebody still has open."""
    for name in scratch.names(folder):
        if name.startswith("store-") and name.removeprefix("store-").isdigit() and name != "store-0":
            path = os.path.join(folder, name)
            try:
                RocksStore(path, merges=True).close()
            except LockedStoreError:
                continue
            except LocalStoreError:
                pass  # damaged: nobody can have it open
            scratch.remove(path)


def _advance(store: RocksStore, layout: StateLayout, label: int, pointer: Pointer) -> StoreMeta | None:
    """Apply the missing deltas; None when the store is not of the pointer's lineage."""
    meta = StoreMeta.from_bytes(store.get([META_KEY])[0], label)
    missing = pointer.after(meta.chain)
    if missing is None:
        return None
    if not missing:
        return meta
    apply_deltas(store, layout, label, missing)
    after = StoreMeta.from_bytes(store.get([META_KEY])[0], label)
    if after.chain != pointer.chain:
        raise LocalStoreError(f"local store {store.path} stands at {after.chain!r} after its deltas")
    return after


def _rebuild(layout: StateLayout, label: int, pointer: Pointer, path: str) -> tuple[RocksStore, StoreMeta]:
    """A new store in place of whatever is at `path`."""
    scratch.remove(path)
    if pointer.snapshot is not None:
        with making(path):
            restore_snapshot(layout, label, pointer.snapshot, path)
    store = RocksStore(path, merges=True)
    try:
        meta = _advance(store, layout, label, pointer)
        if meta is None:
            raise LocalStoreError(f"key group {label}: the snapshot's own chain is not the pointer's; it is damaged")
    except BaseException:
        store.close()
        raise
    return store, meta


def discard(layout: StateLayout, label: int) -> None:
    """Throw the group's local stores away; the next opening builds one from the durable files."""
    scratch.remove(layout.group_dir(label))
