"""Deleted keys leave the index of a key group on every storage, and a host that restores it agrees."""

from __future__ import annotations

import shutil
from pathlib import Path

from tagstream.state.layout import StateLayout
from tagstream.table.storage.storage import Storage
from tests.state.tagging import Event
from tests.state.test_tombstone_ttl import HOUR, Group


def test_tombstones_leave_the_index(storage: Storage, tmp_path: Path) -> None:
    local = tmp_path / "local"
    layout = StateLayout(storage.below("index"), str(local), tombstone_ttl_ms=2 * HOUR, snapshot_every=3)
    group = Group(layout)
    group.batch([Event("a", "p", 1), Event("b", "p", 1)], 0)
    group.batch([Event("a", None, 2, delete=True)], 0)
    assert group.batch([Event("a", "p", 1)], 1)["late"] == 1
    for hour in range(3, 9):
        found = group.batch([Event("b", "p", hour)], hour)
    assert (found["live_keys"], found["tombstones"]) == (1, 0)
    shutil.rmtree(local)
    assert group.batch([Event("a", "p", 1)], 9)["inserts"] == 1
