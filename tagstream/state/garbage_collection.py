"""Garbage collection of the index's durable files, by the driver, after Spark's commit log; tasks never delete any.

The manifests of committed batches say which files a pointer of a retained batch can name. A group's newest entry
at or before the oldest retained batch gives the snapshot its pointer begins with, and everything that pointer or
a later one names was written in that snapshot's batch or after it. The manifest with a group's newest entry
stays, so that the index can be read from the manifests alone (state/index_view.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tagstream.state.batch_manifest import BatchManifest, DeltaRef, manifest_names
from tagstream.state.durable_files import Pointer, batch_of
from tagstream.state.errors import IndexDamagedError
from tagstream.state.index_loads import complete_epochs, generation_numbers, read_marker, side_path
from tagstream.state.layout import StateLayout
from tagstream.state.snapshot_and_deltas import MANIFEST_SUFFIX, files_of_manifest
from tagstream.table.storage.storage import Storage, each


def collect_garbage(
    layout: StateLayout, labels: Iterable[int], generation: int, oldest_batch: int, manifests: Storage
) -> int:
    """Delete what no pointer of batch `oldest_batch` or later can name; returns the number of files deleted.

    `generation`: the one that the query works on. There may be a newer one, of a driver that was paused and succeeded.
    `oldest_batch`: the oldest batch whose state Spark may still ask for; it must be committed. A group without any
    committed change until then keeps everything.
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
        except IndexDamagedError:  # an older one then stands for its groups, which keeps more
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
    deleted = len(garbage) + _collect_generations(layout, labels, generation, newest, oldest_batch)
    # A scratch file of the oldest retained batch itself may still be in use.
    void = [n for b, n in old if n not in needed and not (n.startswith(".") and b == oldest_batch)]
    manifests.delete_many(void)
    return deleted + len(void)


def _collect_generations(
    layout: StateLayout, labels: list[int], number: int, newest: dict[int, Pointer], oldest_batch: int
) -> int:
    """Start files of generations that are void for every retained batch, and rows of epochs that every group is past."""
    current = read_marker(layout, number) if number else None
    deleted = 0
    if current is not None and current.first_batch <= oldest_batch:
        for void in generation_numbers(layout):
            if void < number:
                folder = layout.generation_dir(void)
                deleted += sum(1 for _ in layout.durable.walk_files(folder))
                layout.durable.delete_tree(folder)
    pointers = [newest.get(label) for label in labels]
    if any(p is None or p.generation != number for p in pointers):
        return deleted
    past = min((p.epoch for p in pointers if p is not None), default=0)
    for marker in complete_epochs(layout, number)[:past]:
        there = set(layout.durable.names(layout.epoch_dir(number, marker.epoch)))
        sides = (side_path(layout, number, marker.epoch, label) for label in marker.files)
        paths = [path for path in sides if path.rpartition("/")[2] in there]
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
    """Snapshot files that no snapshot of a group's floor or later needs, whatever batch stored them first."""
    found = _by_group(layout.durable, "snapshots")
    old = {
        label: [name for name in found.get(label, ()) if _is_before(name, floor, oldest_batch)]
        for label, floor in floors.items()
    }
    needed = [  # read only where something could go
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
    """Names of the files of every key group, from one listing of all groups."""
    found: dict[int, list[str]] = {}
    for path in durable.walk_files(folder):
        label, _, name = path.removeprefix(f"{folder}/").partition("/")
        if label.isdigit():
            found.setdefault(int(label), []).append(name)
    return found
