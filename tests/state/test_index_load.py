"""A bulk-loaded index load: what it resolves keys to, how groups start from it, and what of it is refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.state import codec
from tagstream.state.batch_manifest import BatchManifest, DeltaRef
from tagstream.state.bulk_load import DuplicateKey, KeyRun, LoadPlaces, bulk_load
from tagstream.state.codec import ORDERING_UNKNOWN, TOMBSTONE
from tagstream.state.durable_files import Pointer
from tagstream.state.errors import StateError
from tagstream.state.garbage_collection import collect_garbage
from tagstream.state.index_loads import (
    GroupStart,
    IndexLoadMarker,
    complete_index_load,
    marker_path,
    newest_index_load,
    start_path,
    starting_pointer,
)
from tagstream.state.layout import StateLayout
from tagstream.state.local_store import open_at
from tagstream.state.snapshot_and_deltas import snapshot_files
from tagstream.state.store_entries import places_of
from tagstream.state.tag_batch import OP_DELETE, OP_INSERT, OP_UPDATE
from tagstream.state.tag_group import tag_key_group
from tagstream.table.storage.posix import PosixStorage
from tests.state.tagging import LABEL, Event, FakeTable, Oracle, make_batch, make_profile, objects

PLACES = LoadPlaces([("p0", "f0"), ("p1", "f1"), ("p2", "f2")], np.array([30, 10, 20], np.int64))


class Row(NamedTuple):
    """A row to load; `ordering` None: unknown."""

    key: str
    place: int
    ordering: int | None
    dead: bool = False


@pytest.fixture
def layout(tmp_path: Path) -> StateLayout:
    return make_layout(tmp_path)


def make_layout(folder: Path) -> StateLayout:
    return StateLayout(PosixStorage(str(folder / "durable"), sync=False), str(folder / "local"), snapshot_every=4)


def run_of(rows: Sequence[Row]) -> KeyRun:
    return KeyRun(
        objects([b"\x01" + r.key.encode() for r in rows]),
        np.array([r.place for r in rows], np.int32),
        np.array([r.ordering or 0 for r in rows], np.int64),
        np.array([TOMBSTONE * r.dead | ORDERING_UNKNOWN * (r.ordering is None) for r in rows], np.uint8),
    )


def load(
    layout: StateLayout, *runs: Sequence[Row], index_load: int = 1, batch_id: int = 0, finish: bool = True
) -> tuple[GroupStart, list[DuplicateKey]]:
    """Load the one key group, and declare the generation complete."""
    twice: list[DuplicateKey] = []
    start = bulk_load(layout, LABEL, index_load, batch_id, 0, PLACES, map(run_of, runs), twice.extend)
    if finish:
        marker = IndexLoadMarker(index_load, "20260101000000000", start.live, start.tombstones, {LABEL: 0})
        complete_index_load(layout, marker)
    return start, twice


def content(layout: StateLayout, pointer: Pointer) -> dict[str, tuple[str | None, int | None]]:
    """Key -> (partition or None for a tombstone, ordering)."""
    store, meta = open_at(layout, LABEL, pointer)
    with store:
        entries = list(store.items())
        records = codec.decode([value for _, value in entries], layout.ordering)
        found: dict[str, tuple[str | None, int | None]] = {}
        for i, (key, _) in enumerate(entries):
            dead = bool(records.flags[i] & TOMBSTONE)
            place = None if dead else places_of(records.loc[i : i + 1], store.get, LABEL)[0][0]
            unknown = bool(records.flags[i] & ORDERING_UNKNOWN)
            found[key[1:].decode()] = (place, None if unknown else int(records.ordering[i]))
    assert (meta.live, meta.tombstones) == (
        sum(p is not None for p, _ in found.values()),
        sum(p is None for p, _ in found.values()),
    )
    return found


ROWS = st.lists(
    st.builds(Row, st.sampled_from("abcdefg"), st.integers(0, 2), st.none() | st.integers(-3, 3), st.booleans()).map(
        lambda r: r._replace(ordering=r.ordering or 0) if r.dead else r
    ),
    max_size=30,
)


@settings(max_examples=40, deadline=None)
@given(rows=ROWS)
def test_every_key_is_resolved_by_the_named_policy(rows: list[Row], tmp_path_factory: pytest.TempPathFactory) -> None:
    layout = make_layout(tmp_path_factory.mktemp("load"))
    start, twice = load(layout, rows)
    want: dict[str, tuple[str | None, int | None]] = {}
    places: dict[str, int] = {}
    for key in {r.key for r in rows}:
        alive = [r for r in rows if r.key == key and not r.dead]
        if alive:
            best = max(alive, key=lambda r: (PLACES.instants[r.place], r.ordering is not None, r.ordering or 0))
            want[key] = (PLACES.places[best.place][0], best.ordering)
            places[key] = len(alive)
        else:
            want[key] = (None, max(r.ordering or 0 for r in rows if r.key == key))
    assert content(layout, start.pointer()) == want
    assert {t.record_key: len(t.places) for t in twice} == {k: n for k, n in places.items() if n > 1}
    assert all(PLACES.places[t.places[-1]][0] == want[t.record_key][0] for t in twice)


def test_runs_by_key_range_give_the_same_index_as_one(tmp_path: Path) -> None:
    rows = [Row(f"k{i:03d}", i % 3, i, i % 7 == 0) for i in range(300)]
    one, other = make_layout(tmp_path / "1"), make_layout(tmp_path / "2")
    whole, _ = load(one, rows[::-1])
    parts, _ = load(other, rows[99::-1], [], rows[100:])
    assert (whole.live, whole.tombstones) == (parts.live, parts.tombstones)
    assert content(one, whole.pointer()) == content(other, parts.pointer())


def test_a_group_without_keys_starts_empty(layout: StateLayout) -> None:
    start, _ = load(layout)
    assert (start.live, start.tombstones, content(layout, starting_pointer(layout, 1, LABEL))) == (0, 0, {})


def test_batches_on_a_generation_find_its_keys(layout: StateLayout) -> None:
    load(layout, [Row("upd", 0, 5), Row("move", 1, 5), Row("del", 2, 5), Row("late", 0, 9), Row("dead", 1, 7, True)])
    events = [
        Event("upd", "p0", 6), Event("move", "p2", 6), Event("del", None, 6, delete=True), Event("late", "p1", 8),
        Event("dead", "p1", 6), Event("new", "p0", 1),
    ]  # fmt: skip
    result = tag_key_group(LABEL, None, make_batch(events, layout), make_profile(0, index_load=1), layout)
    rows = {(result.skey[i][1:].decode(), int(result.op[i])): result.partition[i] for i in range(len(result))}
    assert rows == {
        ("upd", OP_UPDATE): "p0", ("move", OP_INSERT): "p2", ("move", OP_DELETE): "p1", ("del", OP_DELETE): "p2",
        ("new", OP_INSERT): "p0",
    }  # fmt: skip
    assert (result.stats["late"], result.stats["live_keys"], result.stats["tombstones"]) == (2, 4, 2)


def test_many_batches_on_a_generation_equal_the_oracle(layout: StateLayout) -> None:
    rows = [Row(f"k{i:03d}", i % 3, i % 5) for i in range(200)]
    load(layout, rows)
    oracle = Oracle(known={r.key: (f"p{r.place}", r.ordering) for r in rows})
    table = FakeTable({b"\x01" + r.key.encode(): (f"p{r.place}", f"f{r.place}") for r in rows})
    rng, pointer = np.random.default_rng(1), None
    for batch_id in range(12):
        numbers = rng.integers(0, 260, 40).tolist()
        events = [Event(f"k{i:03d}", f"p{i % 4}", batch_id + i % 3, delete=i % 6 == 0) for i in numbers]
        oracle.apply(events)
        result = tag_key_group(LABEL, pointer, make_batch(events, layout), make_profile(batch_id, index_load=1), layout)
        pointer = result.pointer
        table.apply(result)
        if batch_id % 5 == 2:
            shutil.rmtree(layout.local_dir)
    assert {k[1:].decode(): p for k, (p, _) in table.rows.items()} == oracle.live()


def test_an_older_generation_is_void_and_a_newer_one_refused(layout: StateLayout) -> None:
    load(layout, [Row("a", 0, 1)])
    old = tag_key_group(
        LABEL, None, make_batch([Event("b", "p1", 1)], layout), make_profile(0, index_load=1), layout
    ).pointer
    load(layout, [Row("a", 2, 1)], index_load=2, batch_id=1)
    batch = make_batch([Event("a", "p2", 2), Event("b", "p2", 2)], layout)
    result = tag_key_group(LABEL, old, batch, make_profile(1, index_load=2), layout)
    assert list(zip(result.skey, result.op, strict=True)) == [(b"\x01a", OP_UPDATE), (b"\x01b", OP_INSERT)]
    assert newest_index_load(layout).index_load == 2  # type: ignore[union-attr]
    with pytest.raises(StateError, match="is at index load 2"):
        tag_key_group(LABEL, result.pointer, batch, make_profile(2, index_load=1), layout)


def test_a_replay_adopts_the_delta_made_on_the_generation(layout: StateLayout) -> None:
    load(layout, [Row("a", 0, 1)])
    batch = make_batch([Event("a", "p1", 2)], layout)
    first = tag_key_group(LABEL, None, batch, make_profile(0, index_load=1), layout)
    profile = make_profile(0, index_load=1, mode="replay", manifest={LABEL: first.delta})
    again = tag_key_group(LABEL, None, batch, profile, layout)
    assert (again.pointer, len(again)) == (first.pointer, 0)


def test_an_unfinished_generation_is_refused(layout: StateLayout) -> None:
    load(layout, [Row("a", 0, 1)], finish=False)
    with pytest.raises(StateError, match="index load 1 in .* is not complete"):
        tag_key_group(LABEL, None, make_batch([Event("a", "p0", 2)], layout), make_profile(0, index_load=1), layout)
    assert newest_index_load(layout) is None
    with pytest.raises(StateError, match="lacks key group 4"):
        complete_index_load(layout, IndexLoadMarker(1, None, 0, 0, {LABEL: 0, 4: 0}))


@pytest.mark.parametrize("victim", ["marker", "start", "start removed", "other start", "snapshot"])
def test_damage_is_named(layout: StateLayout, victim: str) -> None:
    start, _ = load(layout, [Row("a", 0, 1)])
    if victim == "other start":
        elsewhere = replace(layout, durable=PosixStorage(layout.durable.root + "2"))
        load(elsewhere, [Row("a", 1, 1)])
        path = layout.durable.where(start_path(layout, 1, LABEL))
        shutil.copyfile(elsewhere.durable.where(start_path(elsewhere, 1, LABEL)), path)
    elif victim == "snapshot":
        names = [f.stored for f in snapshot_files(layout, LABEL, start.snapshot) if f.stored.endswith(".sst")]
        path = layout.durable.where(f"{layout.snapshots_dir(LABEL)}/{names[0]}")
        flip(path)
    else:
        path = layout.durable.where(marker_path(layout, 1) if victim == "marker" else start_path(layout, 1, LABEL))
        flip(path) if victim != "start removed" else os.unlink(path)
    with pytest.raises(StateError, match=os.path.basename(path)):
        tag_key_group(LABEL, None, make_batch([Event("a", "p0", 2)], layout), make_profile(0, index_load=1), layout)


def flip(path: str) -> None:
    """Change one byte in the middle of a file."""
    data = bytearray(Path(path).read_bytes())
    data[len(data) // 2] ^= 1
    Path(path).write_bytes(bytes(data))


def test_another_attempt_of_the_same_load_is_the_same_start(layout: StateLayout) -> None:
    first, _ = load(layout, [Row("a", 0, 1)], finish=False)
    again, _ = load(layout, [Row("a", 0, 1)], finish=False)
    assert again == first


def test_garbage_collection_keeps_the_generation_that_the_query_works_on(layout: StateLayout, tmp_path: Path) -> None:
    """A driver that was paused and succeeded has loaded a newer one in its successor's index."""
    manifests = PosixStorage(str(tmp_path / "manifests"))
    load(layout, [Row("a", 0, 1)], batch_id=0)
    load(layout, [Row("c", 2, 1)], index_load=2, batch_id=0)
    for batch_id in range(4):
        BatchManifest("q", batch_id, 1, {}).write(manifests)
    collect_garbage(layout, [LABEL], 1, 3, manifests)
    assert content(layout, starting_pointer(layout, 1, LABEL)).keys() == {"a"}


def test_garbage_collection_keeps_what_a_generation_starts_from(layout: StateLayout, tmp_path: Path) -> None:
    manifests = PosixStorage(str(tmp_path / "manifests"))
    load(layout, [Row("a", 0, 1)], batch_id=0)
    result = tag_key_group(
        LABEL, None, make_batch([Event("b", "p1", 1)], layout), make_profile(0, index_load=1), layout
    )
    assert result.delta is not None and DeltaRef.from_json(result.delta).pointer.snapshot is not None
    BatchManifest("q", 0, 1, {LABEL: result.delta}).write(manifests)
    load(layout, [Row("c", 2, 1)], index_load=2, batch_id=1)
    collect_garbage(layout, [LABEL], 2, 0, manifests)
    assert content(layout, Pointer.from_bytes(result.pointer or b"", LABEL)).keys() == {"a", "b"}
    shutil.rmtree(layout.local_dir)
    assert content(layout, starting_pointer(layout, 2, LABEL)).keys() == {"c"}
    after = tag_key_group(
        LABEL, result.pointer, make_batch([Event("d", "p1", 1)], layout), make_profile(1, index_load=2), layout
    )
    BatchManifest("q", 1, 1, {LABEL: after.delta or ""}).write(manifests)
    assert collect_garbage(layout, [LABEL], 2, 1, manifests) > 0
    shutil.rmtree(layout.local_dir)
    assert content(layout, Pointer.from_bytes(after.pointer or b"", LABEL)).keys() == {"c", "d"}
