"""Garbage collection of the index's durable files, by the driver, after Spark's commit log; tasks never delete any.

Which files a pointer of a retained batch can name follows from the manifests of committed batches: a group's newest
entry at or before the oldest retained batch tells the snapshot its pointer begins with, and everything that pointer or
a later one names was written in that snapshot's batch or after it. The manifest with a group's newest entry stays, so
that the index can be read from the manifests alone (state/durable/heads.py).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable

from tagstream.state.durable.epoch import complete_epochs, side_path
from tagstream.state.durable.files import batch_of, crc_of
from tagstream.state.durable.generation import generation_numbers, newest_generation
from tagstream.state.durable.manifest import BatchManifest, DeltaRef, manifest_names
from tagstream.state.durable.snapshot import MANIFEST_SUFFIX, snapshot_files
from tagstream.state.errors import IndexDamagedError
from tagstream.state.layout import StateLayout
from tagstream.state.pointer import FileRef, Pointer


def collect_garbage(layout: StateLayout, labels: Iterable[int], oldest_batch: int, manifests_dir: str) -> int:
    """Delete what no pointer of batch `oldest_batch` or later can name; returns the number of files deleted.

    `oldest_batch`: the oldest batch whose state Spark may still ask for; it must be committed. A group without any
    committed change until then keeps everything.
    """
    labels = list(labels)
    old = sorted((b, n) for n in _names(manifests_dir) if (b := batch_of(n)) is not None and b <= oldest_batch)
    newest: dict[int, Pointer] = {}
    needed: set[str] = set()
    for name in reversed(manifest_names(manifests_dir)):
        batch = batch_of(name)
        if batch is None or batch > oldest_batch:
            continue
        try:
            refs = BatchManifest.read(os.path.join(manifests_dir, name)).deltas
        except IndexDamagedError:  # an older one then stands for its groups, which keeps more
            needed.add(name)
            continue
        if batch == oldest_batch or any(label not in newest for label in refs):
            needed.add(name)
        for label, text in refs.items():
            if label not in newest:
                newest[label] = DeltaRef.from_json(text).pointer
    deleted = 0
    for label in labels:
        if label in newest:
            snapshot = newest[label].snapshot
            deleted += _collect_group(layout, label, snapshot.batch if snapshot else 0, oldest_batch)
    deleted += _collect_generations(layout, labels, newest, oldest_batch)
    for _, name in old:
        # A scratch file of the oldest retained batch itself may still be in use.
        if name not in needed and not (name.startswith(".") and batch_of(name) == oldest_batch):
            os.unlink(os.path.join(manifests_dir, name))
            deleted += 1
    return deleted


def _collect_generations(layout: StateLayout, labels: list[int], newest: dict[int, Pointer], oldest_batch: int) -> int:
    """Start files of generations that are void for every retained batch, and rows of epochs that every group is past."""
    current = newest_generation(layout)
    number = current.generation if current is not None else 0
    deleted = 0
    if current is not None and current.first_batch <= oldest_batch:
        for void in generation_numbers(layout):
            if void < number:
                folder = layout.generation_dir(void)
                deleted += sum(len(files) for _, _, files in os.walk(folder))
                shutil.rmtree(folder)
    pointers = [newest.get(label) for label in labels]
    if any(p is None or p.generation != number for p in pointers):
        return deleted
    past = min((p.epoch for p in pointers if p is not None), default=0)
    for marker in complete_epochs(layout, number)[:past]:
        for label in marker.files:
            path = side_path(layout, number, marker.epoch, label)
            if os.path.exists(path):
                os.unlink(path)
                deleted += 1
    return deleted


def _collect_group(layout: StateLayout, label: int, floor: int, oldest_batch: int) -> int:
    deleted = 0
    for folder, shared in ((layout.deltas_dir(label), False), (layout.snapshots_dir(label), True)):
        names = _names(folder)
        used = _used_by_snapshots(layout, label, names, floor) if shared else set()
        for name in names:
            batch = batch_of(name)
            limit = oldest_batch if name.startswith(".") else floor
            if batch is not None and batch < limit and name not in used:
                os.unlink(os.path.join(folder, name))
                deleted += 1
    return deleted


def _used_by_snapshots(layout: StateLayout, label: int, names: list[str], floor: int) -> set[str]:
    """Files that snapshots of batch `floor` or later need, whatever batch stored them first."""
    used: set[str] = set()
    for name in names:
        batch = batch_of(name)
        if name.endswith(MANIFEST_SUFFIX) and batch is not None and batch >= floor:
            used.update(f.stored for f in snapshot_files(layout, label, _unchecked(layout, label, name, batch)))
    return used


def _unchecked(layout: StateLayout, label: int, name: str, batch: int) -> FileRef:
    """A reference made from the file itself: here nothing depends on its bytes being the ones a pointer names."""
    return FileRef(batch, "", name, *crc_of(os.path.join(layout.snapshots_dir(label), name)))


def _names(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []
