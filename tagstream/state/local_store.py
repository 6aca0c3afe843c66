"""The local store of a key group: opened at exactly the state that a pointer names, removed when no longer used.

A key group may move to another host. Its old store is removed when no task of this host has opened it for a day. Once
an hour per host, whatever the number of processes, a task that opens a store also checks all stores of the checkpoint,
in a separate thread. The time of a file records the last check. All times are those of the file system. The day ends
at the last check before, not now. So a stream that runs once a day, or was stopped for some time, finds all its stores.

A store is renamed under its own lock and then removed. A task that opens it at that moment finds it locked or missing,
and builds it again.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress

from tagstream.state import scratch
from tagstream.state.durable_files import Pointer
from tagstream.state.errors import LocalStoreError, LockedStoreError
from tagstream.state.layout import StateLayout
from tagstream.state.rocks_store import META_KEY, RocksStore, alone, making
from tagstream.state.scratch import make_private
from tagstream.state.snapshot_and_deltas import apply_deltas, restore_snapshot
from tagstream.state.store_entries import StoreMeta

_EVERY_S = 3_600
_UNOPENED_S = 86_400
_LOOKED = "looked"
_GONE = ".gone"


def look_around(local_dir: str, opened: str) -> threading.Thread | None:
    """Remove stores that no task opens any more, if an hour has passed since the last check.

    Returns the thread that removes them, None when there is nothing to do. `opened`: the path of the store that was just
    opened. Opening changes its folder, so the folder's time is the present time.
    """
    mark = os.path.join(local_dir, _LOOKED)
    try:
        now, last = os.stat(opened).st_mtime, os.stat(mark).st_mtime
    except FileNotFoundError:  # the first check: how long the host has worked on the checkpoint is not known
        now, last = 0.0, None
    if last is not None and abs(now - last) < _EVERY_S:
        return None
    try:
        scratch.renew(mark)
    except OSError:  # a full disk: without the mark, each opening would check again
        return None
    if last is None:
        return None
    thread = threading.Thread(
        target=remove_unopened, args=(local_dir, min(now, last) - _UNOPENED_S), name="unopened-stores", daemon=True
    )
    thread.start()
    return thread


def remove_unopened(local_dir: str, before: float) -> list[str]:
    """Remove the stores of key groups in which nothing has changed since `before` and which nobody has open.

    `before`: seconds of the file system's clock. Files of killed processes in the same folders are removed too. Returns
    the paths of the removed stores.
    """
    gone = []
    with suppress(OSError):  # this is only a cache: whatever fails, the next check is in an hour
        for label in os.listdir(local_dir):
            if label.isdigit():
                with suppress(OSError):  # another process may remove it too
                    gone += _remove_group(os.path.join(local_dir, label), before)
    return gone


def _remove_group(folder: str, before: float) -> list[str]:
    _remove(folder, [name for name in scratch.names(folder) if name.endswith(_GONE)])  # of a process that was killed
    names = scratch.names(folder)
    if any(_changed(folder, name) >= before for name in names):
        return []
    gone: list[str] = []
    for name in (n for n in names if n.startswith("store-") and n.removeprefix("store-").isdigit()):
        path = os.path.join(folder, name)
        with alone(path) as free:
            # Checked again: it may have been opened and closed meanwhile.
            if not free or _changed(folder, name) >= before:
                return gone
            os.rename(path, path + _GONE)
        gone.append(path)
    # The folder is kept: a task that makes a store in it now finds the folder.
    left = scratch.names(folder)
    _remove(folder, [name for name in left if name.endswith(_GONE) or _changed(folder, name) < before])
    return gone


def _remove(folder: str, names: list[str]) -> None:
    for name in names:
        scratch.remove(os.path.join(folder, name))


def _changed(folder: str, name: str) -> float:
    return os.lstat(os.path.join(folder, name)).st_mtime


_LOCK_POLL_S = 0.1
_MAX_FOLDERS = 100


def open_at(layout: StateLayout, label: int, pointer: Pointer) -> tuple[RocksStore, StoreMeta]:
    """The group's store at exactly the state of the pointer, and its meta entry.

    A store of the same history gets the deltas that it lacks. A store that is missing, damaged, ahead or of another
    history is built again from snapshot and deltas. One that stays locked is not used: another folder is used instead.
    LocalStoreError when all folders are locked.
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
                    break  # the process that has it may never end: continue in a fresh folder
                time.sleep(_LOCK_POLL_S)
            else:
                if number == 0:
                    _clear_spares(layout.group_dir(label))
                look_around(layout.local_dir, path)
                return opened
    raise LocalStoreError(
        f"key group {label}: {_MAX_FOLDERS} local stores under {layout.group_dir(label)} are all locked; "
        "end the processes that have them open"
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
    """Remove scratch files next to a store whose lock this process has: the processes that wrote them are dead."""
    folder, name = os.path.split(path)
    for other in scratch.names(folder):
        if other.startswith(f"{name}."):
            scratch.remove(os.path.join(folder, other))


def _clear_spares(folder: str) -> None:
    """Remove the stores that were used while the first one was locked, unless somebody still has one open."""
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
    """Apply the missing deltas; None when the store does not have the pointer's history."""
    meta = StoreMeta.from_bytes(store.get([META_KEY])[0], label)
    missing = pointer.after(meta.chain)
    if missing is None:
        return None
    if not missing:
        return meta
    apply_deltas(store, layout, label, missing)
    after = StoreMeta.from_bytes(store.get([META_KEY])[0], label)
    if after.chain != pointer.chain:
        raise LocalStoreError(
            f"local store {store.path} is at {after.chain!r} after its deltas, which is not the pointer's chain"
        )
    return after


def _rebuild(layout: StateLayout, label: int, pointer: Pointer, path: str) -> tuple[RocksStore, StoreMeta]:
    """A new store that replaces whatever is at `path`."""
    scratch.remove(path)
    if pointer.snapshot is not None:
        with making(path):
            restore_snapshot(layout, label, pointer.snapshot, path)
    store = RocksStore(path, merges=True)
    try:
        meta = _advance(store, layout, label, pointer)
        if meta is None:
            raise LocalStoreError(
                f"key group {label}: the chain in the snapshot is not the pointer's; the snapshot is damaged; start the "
                "job, which loads the index from the table again"
            )
    except BaseException:
        store.close()
        raise
    return store, meta


def discard(layout: StateLayout, label: int) -> None:
    """Remove the group's local stores. The next opening builds one from the durable files."""
    scratch.remove(layout.group_dir(label))
