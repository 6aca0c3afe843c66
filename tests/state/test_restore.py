"""Lost, locked, damaged and foreign stores; replay; damaged durable files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tagstream.state.batch_manifest import DeltaRef
from tagstream.state.durable_files import Pointer
from tagstream.state.errors import StateError
from tagstream.state.layout import StateLayout
from tagstream.state.local_store import open_at
from tagstream.state.rocks_store import RocksStore
from tagstream.state.snapshot_and_deltas import snapshot_files, take_snapshot
from tagstream.state.tag_group import tag_key_group
from tagstream.table.storage.posix import PosixStorage
from tests.state.tagging import LABEL, Event, make_batch, make_profile
from tests.support.faulty_storage import Faults, FaultyStorage


@pytest.fixture
def layout(tmp_path: Path) -> StateLayout:
    return StateLayout(
        PosixStorage(str(tmp_path / "durable"), sync=False), str(tmp_path / "local"), snapshot_every=4, lock_wait_s=0.2
    )


def events_of(batch_id: int) -> list[Event]:
    """Twenty keys, half of them new, some moving."""
    return [Event(f"k{batch_id * 10 + i:04d}", f"p{(batch_id + i) % 3}", batch_id) for i in range(20)]


def run(layout: StateLayout, batches: range, pointer: bytes | None = None) -> bytes | None:
    """Tag some batches and return the last pointer."""
    for batch_id in batches:
        batch = make_batch(events_of(batch_id), layout)
        pointer = tag_key_group(LABEL, pointer, batch, make_profile(batch_id), layout).pointer
    return pointer


def content(layout: StateLayout, pointer: bytes | None) -> list[tuple[bytes, bytes]]:
    """All entries of the store at a pointer."""
    assert pointer is not None
    store, _ = open_at(layout, LABEL, Pointer.from_bytes(pointer, LABEL))
    with store:
        return list(store.items(b"\x00"))


def test_rebuilt_store_equals_the_grown_one(layout: StateLayout) -> None:
    for last in (2, 5, 11):
        pointer = run(layout, range(last))
        grown = content(layout, pointer)
        shutil.rmtree(layout.local_dir)
        assert content(layout, pointer) == grown
        shutil.rmtree(layout.local_dir)
        shutil.rmtree(layout.durable.root)


def test_pointer_stays_small(layout: StateLayout) -> None:
    pointer = run(layout, range(30))
    assert pointer is not None
    assert len(Pointer.from_bytes(pointer, LABEL).deltas) <= layout.snapshot_every


def test_store_ahead_of_the_pointer_is_not_used(layout: StateLayout) -> None:
    first = run(layout, range(2))
    at_first = content(layout, first)
    run(layout, range(2, 4), first)
    assert content(layout, first) == at_first


def test_other_lineage_is_not_used(layout: StateLayout, tmp_path: Path) -> None:
    first = run(layout, range(2))
    tag_key_group(LABEL, first, make_batch([Event("x", "p1", 9)], layout), make_profile(2), layout)
    other = tag_key_group(LABEL, first, make_batch([Event("y", "p1", 9)], layout), make_profile(2), layout).pointer
    keys = [k for k, _ in content(layout, other)]
    assert b"\x01y" in keys
    assert b"\x01x" not in keys


HOLDER = """
import sys
from tagstream.state.rocks_store import RocksStore
store = RocksStore(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def test_store_locked_by_a_live_process_is_bypassed(layout: StateLayout) -> None:
    pointer = run(layout, range(3))
    path = Path(layout.group_dir(LABEL), "store-0")
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin and holder.stdout
    try:
        assert holder.stdout.readline() == b"open\n"
        after = run(layout, range(3, 4), pointer)
    finally:
        holder.stdin.close()
        holder.wait()
        holder.stdout.close()
    spare = Path(layout.group_dir(LABEL), "store-1")
    assert spare.exists()
    shutil.copytree(spare, spare.with_name("store-2"))
    with RocksStore(str(spare), merges=True):  # somebody still has it open
        before = content(layout, pointer)
        assert (spare.exists(), spare.with_name("store-2").exists()) == (True, False)
    assert len(content(layout, after)) > len(before)
    assert not spare.exists()


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("harm", [truncate, flip, Path.unlink], ids=["truncated", "changed", "removed"])
@pytest.mark.parametrize("kind", ["deltas", "snapshots"])
def test_damaged_durable_file_is_named(layout: StateLayout, kind: str, harm: Callable[[Path], None]) -> None:
    pointer = run(layout, range(7))
    assert pointer is not None
    at = Pointer.from_bytes(pointer, LABEL)
    assert at.snapshot
    name = at.deltas[0].file if kind == "deltas" else at.snapshot.file
    path = Path(layout.durable.root, kind, str(LABEL), name)
    harm(path)
    shutil.rmtree(layout.local_dir)
    with pytest.raises(StateError, match=f"key group {LABEL} .*{name}"):
        run(layout, range(7, 8), pointer)


@pytest.mark.parametrize("harm", [truncate, flip, Path.unlink], ids=["truncated", "changed", "removed"])
def test_damaged_snapshot_data_is_named(layout: StateLayout, harm: Callable[[Path], None]) -> None:
    pointer = run(layout, range(7))
    path = next(Path(layout.durable.where(layout.snapshots_dir(LABEL))).glob("*.sst"))
    harm(path)
    shutil.rmtree(layout.local_dir)
    with pytest.raises(StateError, match=f"key group {LABEL} .*{path.name}"):
        run(layout, range(7, 8), pointer)


@pytest.mark.parametrize("harm", [truncate, flip, Path.unlink], ids=["truncated", "changed", "removed"])
@pytest.mark.parametrize("pattern", ["*.sst", "MANIFEST-*", "CURRENT"])
def test_damaged_local_store_is_built_again(layout: StateLayout, pattern: str, harm: Callable[[Path], None]) -> None:
    pointer = run(layout, range(6))
    whole = content(layout, pointer)
    for path in Path(layout.group_dir(LABEL), "store-0").glob(pattern):
        harm(path)
    after = run(layout, range(6, 7), pointer)
    assert len(content(layout, after)) > len(whole)
    shutil.rmtree(layout.local_dir)
    assert content(layout, pointer) == whole


def test_damaged_delta_of_an_earlier_attempt_is_not_adopted(layout: StateLayout) -> None:
    pointer = run(layout, range(2))
    batch, profile = make_batch(events_of(2), layout), make_profile(2)
    first = tag_key_group(LABEL, pointer, batch, profile, layout)
    assert first.delta
    path = Path(layout.durable.where(layout.deltas_dir(LABEL)), DeltaRef.from_json(first.delta).delta.file)
    truncate(path)
    again = tag_key_group(LABEL, pointer, batch, profile, layout)
    assert again.delta
    assert DeltaRef.from_json(again.delta).delta.file != path.name
    assert content(layout, again.pointer)


def test_replay_adopts_the_commits_delta_and_emits_nothing(layout: StateLayout) -> None:
    for last in (3, 4):  # the second takes a snapshot in the replayed batch
        pointer = run(layout, range(last))
        batch = make_batch(events_of(last), layout)
        committed = tag_key_group(LABEL, pointer, batch, make_profile(last), layout)
        # An attempt with another outcome must not matter.
        tag_key_group(LABEL, pointer, make_batch(events_of(last)[:3], layout), make_profile(last, run=2), layout)
        replay = make_profile(last, run=3, mode="replay", manifest={LABEL: committed.delta})
        result = tag_key_group(LABEL, pointer, batch, replay, layout)
        assert (len(result), result.pointer, result.delta) == (0, committed.pointer, committed.delta)
        unchanged = tag_key_group(LABEL, pointer, batch, make_profile(last, mode="replay"), layout)
        assert (len(unchanged), unchanged.pointer, unchanged.delta) == (0, pointer, None)
        shutil.rmtree(layout.durable.root)


def test_replay_on_a_state_the_commit_was_not_made_from_is_refused(layout: StateLayout) -> None:
    pointer = run(layout, range(3))
    committed = tag_key_group(LABEL, pointer, make_batch(events_of(3), layout), make_profile(3), layout)
    older = run(layout, range(2))
    replay = make_profile(3, mode="replay", manifest={LABEL: committed.delta})
    with pytest.raises(StateError, match="batch 3"):
        tag_key_group(LABEL, older, make_batch(events_of(3), layout), replay, layout)


def test_nothing_to_change_keeps_the_pointer(layout: StateLayout) -> None:
    pointer = run(layout, range(2))
    late = make_batch([Event("k0010", "p1", 0)], layout)
    result = tag_key_group(LABEL, pointer, late, make_profile(5), layout)
    assert (result.pointer, result.delta, result.stats["late"]) == (pointer, None, 1)
    empty = tag_key_group(LABEL, pointer, make_batch([], layout), make_profile(6), layout)
    assert (empty.pointer, empty.delta, len(empty)) == (pointer, None, 0)


def test_pointer_of_another_version_is_refused(layout: StateLayout) -> None:
    for data in (b'{"v":9}', b"junk", b"[]"):
        with pytest.raises(StateError, match=f"key group {LABEL}"):
            tag_key_group(LABEL, data, make_batch(events_of(0), layout), make_profile(0), layout)


def test_scratch_files_of_dead_processes_are_removed(layout: StateLayout) -> None:
    pointer = run(layout, range(2))
    group = Path(layout.group_dir(LABEL))
    (group / "store-0.left.sst").touch()
    (group / "store-0.snapshot.1").mkdir()
    run(layout, range(2, 3), pointer)
    assert {name.split(".")[0] for name in os.listdir(group)} == {"store-0", "kept"}
    assert len(os.listdir(group)) == 2


@pytest.mark.parametrize("harm", ["none", "gone", "damaged", "of another batch"])
def test_the_newest_delta_is_kept_here_until_the_next_batch(harm: str, layout: StateLayout, tmp_path: Path) -> None:
    """A store far away is then asked for no delta that this machine has written itself."""
    faults = Faults(str(tmp_path / "faults"))
    counted = replace(layout, durable=FaultyStorage(layout.durable, faults))
    pointer = run(layout, range(1, 3))
    (kept,) = (path for path in Path(layout.group_dir(LABEL)).iterdir() if path.name.startswith("kept."))
    if harm == "gone":
        kept.unlink()
    elif harm == "damaged":
        kept.write_bytes(kept.read_bytes()[:-1] + b"?")
    elif harm == "of another batch":
        kept.rename(kept.with_name(f"kept.000000000009-{kept.name.partition('-')[2]}"))
    grown = content(counted, pointer)
    fetched = [rel for kind, rel in faults.calls() if kind == "fetch"]
    assert len(fetched) == (0 if harm == "none" else 1)
    shutil.rmtree(layout.local_dir)
    assert content(layout, pointer) == grown


def test_ordering_values_that_lost_digits_are_refused(layout: StateLayout) -> None:
    batch = make_batch(events_of(0), layout)
    assert batch.ordering is not None
    with pytest.raises(ValueError, match="float64"):
        tag_key_group(LABEL, None, replace(batch, ordering=batch.ordering.astype(float)), make_profile(0), layout)


def test_second_snapshot_copies_only_new_sorted_files(layout: StateLayout) -> None:
    pointer = run(layout, range(2))
    assert pointer
    at = Pointer.from_bytes(pointer, LABEL)
    store, _ = open_at(layout, LABEL, at)
    with store:
        first = take_snapshot(store, layout, LABEL, 2, at.chain, None)
        second = take_snapshot(store, layout, LABEL, 3, at.chain, first)
    names = [name for name in layout.durable.names(layout.snapshots_dir(LABEL)) if name.endswith(".sst")]
    assert names
    assert all(name.startswith("000000000002-") for name in names)
    assert {f.stored for f in snapshot_files(layout, LABEL, second)} >= set(names)
