"""Garbage collection of the index's durable files, by the driver, after Spark's commit log; tasks never delete any.

Which files a pointer of a retained batch can name follows from the manifests of committed batches: a group's newest
entry at or before the oldest retained batch tells the snapshot its pointer begins with, and everything that pointer or
a later one names was written in that snapshot's batch or after it. Manifests are removed as well, so the newest entry
of each group is kept in `floors.json`, written before anything is deleted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from state.durable import batch_of, crc_of, sync_file, temp_path
from state.errors import StateError
from state.layout import StateLayout
from state.manifest import BatchManifest, DeltaRef
from state.pointer import FileRef
from state.snapshot import MANIFEST_SUFFIX, snapshot_files

_FLOORS = "floors.json"


def collect_garbage(
    layout: StateLayout, labels: Iterable[int], oldest_batch: int, manifests_dir: str | None = None
) -> int:
    """Delete what no pointer of batch `oldest_batch` or later can name; returns the number of files deleted.

    `oldest_batch`: the oldest batch whose state Spark may still ask for; it must be committed. A group without any
    committed change until then keeps everything.
    """
    manifests = manifests_dir or os.path.join(os.path.dirname(layout.durable_dir.rstrip("/")), "manifests")
    floors_path = os.path.join(layout.durable_dir, _FLOORS)
    if not os.path.isdir(layout.durable_dir):
        return 0
    floors = _read_floors(floors_path)
    old = sorted((b, n) for n in _names(manifests) if (b := batch_of(n)) is not None and b <= oldest_batch)
    for _, name in old:
        if name.endswith(".json") and not name.startswith("."):
            for label, text in BatchManifest.read(os.path.join(manifests, name)).deltas.items():
                ref = DeltaRef.from_json(text)
                floors[label] = ref.snapshot.batch if ref.snapshot else 0
    if old:
        _write_floors(floors_path, floors, oldest_batch, layout.durable_fsync)
    deleted = 0
    for label in labels:
        if label in floors:
            deleted += _collect_group(layout, label, floors[label], oldest_batch)
    for batch, name in old:
        # The oldest retained batch's own manifest stays: it may have to be replayed.
        if batch < oldest_batch:
            os.unlink(os.path.join(manifests, name))
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


def _read_floors(path: str) -> dict[int, int]:
    try:
        with open(path, encoding="utf-8") as f:
            return {int(label): int(batch) for label, batch in json.load(f)["floors"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise StateError(
            f"{path} is damaged ({e!r}); remove it: old index files are then kept until the next snapshots"
        ) from e


def _write_floors(path: str, floors: dict[int, int], oldest_batch: int, fsync: bool) -> None:
    temp = temp_path(os.path.dirname(path), oldest_batch)
    with open(temp, "x", encoding="utf-8") as f:
        json.dump({"oldest_batch": oldest_batch, "floors": {str(k): v for k, v in sorted(floors.items())}}, f)
    sync_file(temp, fsync)
    os.replace(temp, path)
    sync_file(os.path.dirname(path), fsync)
