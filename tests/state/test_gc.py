"""Garbage collection keeps what a pointer of a retained batch can name, and only little more."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tagstream.state.batch_manifest import BatchManifest, manifest_names
from tagstream.state.durable_files import Pointer
from tagstream.state.errors import StateError
from tagstream.state.garbage_collection import collect_garbage
from tagstream.state.layout import StateLayout
from tagstream.state.local_store import open_at
from tagstream.state.tag_group import tag_key_group
from tagstream.table.storage.posix import PosixStorage
from tests.state.tagging import LABEL, Event, make_batch, make_profile
from tests.support.faulty_storage import Faults, FaultyStorage, InjectedError


@pytest.fixture
def layout(tmp_path: Path) -> StateLayout:
    return StateLayout(PosixStorage(str(tmp_path / "index"), sync=False), str(tmp_path / "local"), snapshot_every=3)


def files(layout: StateLayout) -> set[str]:
    return {name for _, _, names in os.walk(layout.durable.root) for name in names}


@pytest.mark.extended("longer random histories")
def test_every_retained_pointer_can_be_restored(layout: StateLayout, tmp_path: Path) -> None:
    manifests = PosixStorage(str(tmp_path / "manifests"))
    pointers: list[bytes | None] = []
    pointer = None
    most = 0
    for batch_id in range(40):
        events = [Event(f"k{batch_id * 3 + i}", "p", batch_id) for i in range(6)]
        if batch_id % 4:  # an attempt whose outcome was thrown away leaves orphans
            tag_key_group(LABEL, pointer, make_batch(events[:2], layout), make_profile(batch_id, run=2), layout)
        changed = not 20 <= batch_id < 28  # a long time without a record
        deltas: dict[int, str] = {}
        if changed:
            result = tag_key_group(LABEL, pointer, make_batch(events, layout), make_profile(batch_id), layout)
            assert result.delta
            pointer, deltas = result.pointer, {LABEL: result.delta}
        BatchManifest("q", batch_id, 1, deltas).write(manifests)
        pointers.append(pointer)
        oldest = batch_id - 5
        if oldest > 0:
            collect_garbage(layout, [LABEL], 0, oldest, manifests)
            shutil.rmtree(layout.local_dir)
            for retained in pointers[oldest:]:
                assert retained
                at = Pointer.from_bytes(retained, LABEL)
                store, meta = open_at(layout, LABEL, at)
                store.close()
                assert meta.chain == at.chain
        most = max(most, len(files(layout)))
    assert most < 120
    assert not any(name.startswith("000000000000-") for name in files(layout))
    assert len(manifests.names("")) == 6  # in the long time without a record one more, the group's newest


def test_old_temporary_files_go_and_young_ones_stay(layout: StateLayout, tmp_path: Path) -> None:
    manifests = PosixStorage(str(tmp_path / "manifests"))
    pointer = None
    for batch_id in range(4):
        result = tag_key_group(
            LABEL, pointer, make_batch([Event("k", "p", batch_id)], layout), make_profile(batch_id), layout
        )
        assert result.delta
        pointer = result.pointer
        BatchManifest("q", batch_id, 1, {LABEL: result.delta}).write(manifests)
    old, young = (Path(layout.durable.where(layout.deltas_dir(LABEL)), f".tmp-{b:012d}-host-1-0") for b in (1, 9))
    for path in (old, young):
        path.touch()
    collect_garbage(layout, [LABEL], 0, 3, manifests)
    assert (old.exists(), young.exists()) == (False, True)


def test_group_without_a_committed_change_keeps_everything(layout: StateLayout) -> None:
    tag_key_group(LABEL, None, make_batch([Event("k", "p", 1)], layout), make_profile(0), layout)
    before = files(layout)
    assert collect_garbage(layout, [LABEL], 0, 50, layout.durable) == 0
    assert files(layout) == before


def test_the_manifest_of_a_driver_that_was_succeeded_counts_for_nothing(tmp_path: Path) -> None:
    folder = PosixStorage(str(tmp_path))
    name = BatchManifest("q", 4, 10, {1: "b"}).write(folder)
    BatchManifest("q", 4, 9, {1: "a"}).write(folder)
    BatchManifest("q", 3, 9, {1: "c"}).write(folder)
    assert manifest_names(folder) == [f"{3:012d}-9.json", name]


def test_later_run_replaces_the_manifest_of_a_failed_one(tmp_path: Path) -> None:
    folder = PosixStorage(str(tmp_path))
    BatchManifest("q", 4, 1, {1: "a"}).write(folder)
    name = BatchManifest("q", 4, 2, {1: "b"}).write(folder)
    assert folder.names("") == (name,)
    assert BatchManifest.read(folder, name) == BatchManifest("q", 4, 2, {1: "b"})


@pytest.mark.parametrize("text", ["junk", "[]", '{"version":7}', '{"version":1}'])
def test_damaged_manifest_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(StateError, match=r"x\.json"):
        BatchManifest.read(PosixStorage(str(tmp_path)), "x.json")


def test_a_manifest_that_cannot_be_read_for_a_moment_is_not_damaged(tmp_path: Path) -> None:
    """Damage makes the index be loaded anew, which a store that does not answer is no reason for."""
    storage = PosixStorage(str(tmp_path / "m"), sync=False)
    name = BatchManifest("q", 4, 1, {1: "a"}).write(storage)
    with pytest.raises(InjectedError):
        BatchManifest.read(FaultyStorage(storage, Faults(str(tmp_path / "faults"), fail=1)), name)
