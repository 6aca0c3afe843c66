"""Garbage collection of the index's durable files, by the driver, after Spark's commit log. Tasks never delete any.

The manifests of committed batches say which files a pointer of a retained batch can name. Of each group, the newest
entry at or before the oldest retained batch has the snapshot with which its pointer begins. The snapshot's batch and
later ones wrote everything that this pointer or a later one names. The manifest with the newest entry of a group is
kept, so that the index can be read from the manifests alone (state/index_view.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tagstream.state.batch_manifest import BatchManifest, DeltaRef, manifest_names
from tagstream.state.durable_files import Pointer, batch_of
from tagstream.state.errors import IndexDamagedError
from tagstream.state.index_loads import find_catch_up_marker, index_load_numbers, read_marker, side_path
from tagstream.state.layout import StateLayout
from tagstream.state.snapshot_and_deltas import MANIFEST_SUFFIX, files_of_manifest
from tagstream.table.storage.storage import Storage, each


def collect_garbage(
    layout: StateLayout, labels: Iterable[int], index_load: int, oldest_batch: int, manifests: Storage
) -> int:
    """Delete the files that no pointer of batch `oldest_batch` or later can name. Returns the number of deleted files.

    `index_load`: number of the index load that the query uses. A paused driver that was replaced may have made a newer
    one. `oldest_batch`: the oldest batch whose state Spark may still read; it must be committed. A group without a
    committed change up to that batch keeps all files.
    """
    labels = list(labels)
    old = [(b, n) for n in manifests.names("") if (b := batch_of(n)) is not None and b <= oldest_batch]
    newest: dict[int, Pointer] = {}
    needed: set[str] = set()
    for name in reversed(manifest_names(manifests)):
        batch = batch_of(name)
        if batch is None or batch > oldest_batch:
            continue
        try:
            refs = BatchManifest.read(manifests, name).deltas
        except IndexDamagedError:  # an older manifest then counts for its groups, which keeps more files
            needed.add(name)
            continue
        if batch == oldest_batch or any(label not in newest for label in refs):
            needed.add(name)
        for label, text in refs.items():
            if label not in newest:
                newest[label] = DeltaRef.from_json(text).pointer
    floors = {label: p.snapshot.batch if p.snapshot else 0 for label in labels if (p := newest.get(label)) is not None}
    garbage = [*_old_deltas(layout, floors, oldest_batch), *_old_snapshots(layout, floors, oldest_batch)]
    layout.durable.delete_many(garbage)
    deleted = len(garbage) + _collect_index_loads(layout, labels, index_load, newest, oldest_batch)
    # A scratch file of the oldest retained batch itself may still be in use.
    void = [n for b, n in old if n not in needed and not (n.startswith(".") and b == oldest_batch)]
    manifests.delete_many(void)
    return deleted + len(void)


def _collect_index_loads(
    layout: StateLayout, labels: list[int], number: int, newest: dict[int, Pointer], oldest_batch: int
) -> int:
    """Delete start files of index loads that no retained batch uses, and rows of catch-ups that every group has applied."""
    current = read_marker(layout, number) if number else None
    deleted = 0
    if current is not None and current.first_batch <= oldest_batch:
        for void in index_load_numbers(layout):
            if void < number:
                folder = layout.index_load_dir(void)
                deleted += sum(1 for _ in layout.durable.walk_files(folder))
                layout.durable.delete_tree(folder)
    pointers = [newest.get(label) for label in labels]
    if any(p is None or p.index_load != number for p in pointers):
        return deleted
    past = min((p.catch_up for p in pointers if p is not None), default=0)
    for catch_up in range(past, 0, -1):
        marker = find_catch_up_marker(layout, number, catch_up)
        if marker is None or not marker.files:
            continue
        there = set(layout.durable.names(layout.catch_up_dir(number, marker.catch_up)))
        sides = (side_path(layout, number, marker.catch_up, label) for label in marker.files)
        paths = [path for path in sides if path.rpartition("/")[2] in there]
        if not paths:
            break  # those before it were removed, too
        layout.durable.delete_many(paths)
        deleted += len(paths)
    return deleted


def _old_deltas(layout: StateLayout, floors: Mapping[int, int], oldest_batch: int) -> list[str]:
    found = _by_group(layout.durable, "deltas")
    return [
        f"{layout.deltas_dir(label)}/{name}"
        for label, floor in floors.items()
        for name in found.get(label, ())
        if _is_before(name, floor, oldest_batch)
    ]


def _old_snapshots(layout: StateLayout, floors: Mapping[int, int], oldest_batch: int) -> list[str]:
    """Snapshot files that no snapshot of a group's floor or later needs, whichever batch stored them first."""
    found = _by_group(layout.durable, "snapshots")
    old = {
        label: [name for name in found.get(label, ()) if _is_before(name, floor, oldest_batch)]
        for label, floor in floors.items()
    }
    needed = [  # manifests are read only where a file can be deleted
        (label, name)
        for label, names in old.items()
        for name in (found[label] if names else ())
        if name.endswith(MANIFEST_SUFFIX) and (batch_of(name) or 0) >= floors[label]
    ]
    used: dict[int, set[str]] = {}
    for label, stored in each(lambda at: (at[0], files_of_manifest(layout, *at)), needed):
        used.setdefault(label, set()).update(f.stored for f in stored)
    return [
        f"{layout.snapshots_dir(label)}/{name}"
        for label, names in old.items()
        for name in names
        if name not in used.get(label, ())
    ]


def _is_before(name: str, floor: int, oldest_batch: int) -> bool:
    batch = batch_of(name)
    return batch is not None and batch < (oldest_batch if name.startswith(".") else floor)


def _by_group(durable: Storage, folder: str) -> dict[int, list[str]]:
    """File names of every key group, from one listing of all groups."""
    found: dict[int, list[str]] = {}
    for path in durable.walk_files(folder):
        label, _, name = path.removeprefix(f"{folder}/").partition("/")
        if label.isdigit():
            found.setdefault(int(label), []).append(name)
    return found
