"""A key group that applies catch-ups ends with what the table has, whatever the other writers did."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tagstream.state.batch_manifest import BatchManifest, DeltaRef
from tagstream.state.codec import ORDERING_UNKNOWN, TOMBSTONE
from tagstream.state.durable_files import Pointer
from tagstream.state.errors import IndexDamagedError
from tagstream.state.garbage_collection import collect_garbage
from tagstream.state.index_loads import (
    CatchUpMarker,
    CatchUpRows,
    TouchedGroup,
    complete_catch_up,
    complete_catch_ups,
    side_path,
    write_side,
)
from tagstream.state.index_view import open_view
from tagstream.state.layout import StateLayout
from tagstream.state.store_entries import records_of
from tagstream.state.tag_batch import OP_INSERT, OP_UPDATE
from tagstream.state.tag_group import tag_key_group
from tagstream.table.storage.posix import PosixStorage
from tests.state.tagging import LABEL, Event, make_batch, make_profile, objects
from tests.state.test_index_load import content, make_layout

Row = tuple[str | None, int | None]  # partition (None: deleted), ordering


@pytest.fixture
def layout(tmp_path: Path) -> StateLayout:
    return make_layout(tmp_path)


def write_catch_up(
    layout: StateLayout,
    catch_up: int,
    rows: Mapping[str, Row],
    partitions: list[str],
    files: Mapping[str, str],
    *,
    removals: bool = True,
    minutes: int = 7,
) -> CatchUpMarker:
    """An epoch whose commits left `rows` in the file groups of `partitions`."""
    touched = tuple(TouchedGroup(p, files[p], "20260101000000500") for p in partitions)
    keys = sorted(rows)
    place = [partitions.index(rows[k][0] or partitions[0]) for k in keys]
    flags = [TOMBSTONE * (rows[k][0] is None) | ORDERING_UNKNOWN * (rows[k][1] is None) for k in keys]
    side = CatchUpRows(
        objects([b"\x01" + k.encode() for k in keys]),
        np.array(place, np.int32),
        np.array([rows[k][1] or 0 for k in keys], np.int64),
        np.array(flags, np.uint8),
    )
    crcs = {LABEL: write_side(layout, 0, catch_up, LABEL, side)} if keys else {}
    marker = CatchUpMarker(0, catch_up, (f"2026010100000050{catch_up}",), touched, removals, minutes, crcs)
    return complete_catch_up(layout, marker)


def files_of(layout: StateLayout, pointer: bytes) -> dict[str, str]:
    """The file group of every partition that the index knows."""
    found: dict[str, str] = {}
    with open_view(layout, LABEL, Pointer.from_bytes(pointer, LABEL), 0) as store:
        for key, _ in store.items(b"\x00l"):
            if not key.startswith(b"\x00l"):
                break
            partition, file_id = key[2:].split(b"\x00")
            found[partition.decode()] = file_id.decode()
    return found


def tag(layout: StateLayout, pointer: bytes | None, batch_id: int, events: list[Event], catch_up: int = 0) -> bytes:
    result = tag_key_group(
        LABEL, pointer, make_batch(events, layout), make_profile(batch_id, catch_up=catch_up), layout
    )
    assert result.pointer is not None
    return result.pointer


def start(layout: StateLayout) -> tuple[bytes, dict[str, str]]:
    events = [Event(k, p, 10) for k, p in (("a", "p1"), ("b", "p1"), ("c", "p2"), ("d", "p3"))]
    pointer = tag(layout, None, 0, [*events, Event("e", "p1", 5, delete=True)])
    return pointer, files_of(layout, pointer)


def test_keys_come_move_go_and_stay(layout: StateLayout) -> None:
    pointer, files = start(layout)
    rows: dict[str, Row] = {"a": ("p2", 11), "c": ("p2", 10), "n": ("p1", 3), "e": (None, 9)}
    write_catch_up(layout, 1, rows, ["p1", "p2"], files)
    after = tag(layout, pointer, 1, [Event("x", "p9", 1)], catch_up=1)
    assert content(layout, Pointer.from_bytes(after, LABEL)) == {
        "a": ("p2", 11),
        "b": (None, 10),  # gone: what is older than it stays late
        "c": ("p2", 10),
        "d": ("p3", 10),
        "e": (None, 9),
        "n": ("p1", 3),
        "x": ("p9", 1),
    }
    late = tag_key_group(
        LABEL,
        after,
        make_batch([Event("b", "p1", 9), Event("e", "p1", 8)], layout),
        make_profile(2, catch_up=1),
        layout,
    )
    assert late.stats["late"] == 2


def test_an_order_that_the_table_does_not_hold_is_kept(layout: StateLayout) -> None:
    """A position in the source's log is in no column: the rows of an epoch come without an ordering value."""
    pointer, files = start(layout)
    rows: dict[str, Row] = {"a": ("p1", None), "c": ("p1", None), "e": ("p1", None), "n": ("p1", None)}
    write_catch_up(layout, 1, rows, ["p1", "p2"], files)
    after = tag(layout, pointer, 1, [Event("x", "p9", 1)], catch_up=1)
    found = content(layout, Pointer.from_bytes(after, LABEL))
    assert {key: found[key] for key in "abcen"} == {
        "a": ("p1", 10),
        "b": (None, 10),  # gone
        "c": ("p1", 10),  # moved
        "e": ("p1", 5),  # deleted in the stream, and put back by the other writer
        "n": ("p1", None),
    }
    late = [Event("a", "p1", 9), Event("c", None, 9, delete=True), Event("e", "p1", 4), Event("n", "p1", 1)]
    result = tag_key_group(LABEL, after, make_batch(late, layout), make_profile(2, catch_up=1), layout)
    assert (result.stats["late"], result.stats["updates"]) == (3, 1)


def test_a_key_that_was_only_moved_lives_no_longer_for_it(layout: StateLayout) -> None:
    """A clustering gives its keys another file group, and no record. What another writer changed counts as one."""
    hour = 3_600_000
    layout = replace(layout, ttl_ms=10 * hour)
    pointer, files = start(layout)  # at hour 0
    moved: dict[str, Row] = {"a": ("p2", 10), "b": ("p2", None), "c": ("p2", 11), "n": ("p2", 1)}
    write_catch_up(layout, 1, moved, ["p1", "p2"], files, minutes=(make_profile(0).batch_time_ms + 8 * hour) // 60_000)
    later = make_profile(1, catch_up=1, batch_time_ms=make_profile(0).batch_time_ms + 12 * hour)
    events = [Event(key, "p2", 20) for key in "abcn"]
    result = tag_key_group(LABEL, pointer, make_batch(events, layout), later, layout)
    ops = dict(zip([e.key for e in events], result.op.tolist(), strict=True))
    assert ops == {"a": OP_INSERT, "b": OP_INSERT, "c": OP_UPDATE, "n": OP_UPDATE}


def test_a_delete_in_the_log_of_a_place_that_a_key_has_left(layout: StateLayout) -> None:
    pointer, files = start(layout)
    write_catch_up(layout, 1, {"d": (None, 12), "a": ("p1", 10), "b": ("p1", 10)}, ["p1"], files)
    after = tag(layout, pointer, 1, [Event("x", "p9", 1)], catch_up=1)
    assert content(layout, Pointer.from_bytes(after, LABEL))["d"] == ("p3", 10)


def test_a_key_made_live_twice_is_counted_and_listed(layout: StateLayout) -> None:
    pointer, files = start(layout)
    write_catch_up(layout, 1, {"d": ("p1", 20), "a": ("p1", 10), "b": ("p1", 10)}, ["p1"], files)
    result = tag_key_group(
        LABEL, pointer, make_batch([Event("x", "p9", 1)], layout), make_profile(1, catch_up=1), layout
    )
    assert (result.stats["twice"], result.stats["caught_up"]) == (1, 1)
    (listed,) = Path(layout.durable.where(layout.catch_up_dir(0, 1))).glob("*.twice.jsonl")
    assert '"key": "d"' in listed.read_text() and files["p3"] in listed.read_text()


def test_an_attempt_that_failed_leaves_nothing_behind(layout: StateLayout) -> None:
    pointer, files = start(layout)
    write_catch_up(layout, 1, {"a": ("p1", 11)}, ["p1"], files)
    first = tag(layout, pointer, 1, [Event("x", "p9", 1)], catch_up=1)  # whose batch is never committed
    again = tag(layout, pointer, 1, [Event("y", "p9", 1)], catch_up=1)
    found = content(layout, Pointer.from_bytes(again, LABEL))
    assert "x" not in found and found["a"] == ("p1", 11) and found["y"] == ("p9", 1)
    assert Pointer.from_bytes(first, LABEL).deltas[1].chain == Pointer.from_bytes(again, LABEL).deltas[1].chain


def test_a_replay_adopts_the_epochs_too(layout: StateLayout) -> None:
    pointer, files = start(layout)
    write_catch_up(layout, 1, {"a": ("p1", 11)}, ["p1"], files)
    batch = make_batch([Event("x", "p9", 1)], layout)
    result = tag_key_group(LABEL, pointer, batch, make_profile(1, catch_up=1), layout)
    assert result.delta is not None
    shutil.rmtree(layout.local_dir)
    profile = make_profile(1, mode="replay", catch_up=1, manifest={LABEL: result.delta})
    assert tag_key_group(LABEL, pointer, batch, profile, layout).pointer == result.pointer
    write_catch_up(layout, 2, {}, ["p9"], {"p9": files_of(layout, result.pointer or b"")["p9"]})
    after = tag(layout, result.pointer, 2, [Event("z", "p9", 1)], catch_up=2)
    assert content(layout, Pointer.from_bytes(after, LABEL))["x"] == (None, 1)


def test_a_view_goes_past_epochs_without_leaving_a_trace(layout: StateLayout, tmp_path: Path) -> None:
    pointer, files = start(layout)
    write_catch_up(layout, 1, {"a": ("p1", 11)}, ["p1"], files)
    before = sorted(Path(layout.durable.root).rglob("*"))
    scratch = replace(layout, local_dir=str(tmp_path / "scratch"))
    with open_view(scratch, LABEL, Pointer.from_bytes(pointer, LABEL), 1) as store:
        ((keys, records),) = records_of(store, scratch)
    assert dict(zip(keys, records.flags.tolist(), strict=True))[b"\x01b"] == TOMBSTONE
    assert sorted(Path(layout.durable.root).rglob("*")) == before


def test_damage_is_named_and_rows_go_when_every_group_is_past(layout: StateLayout, tmp_path: Path) -> None:
    manifests = PosixStorage(str(tmp_path / "manifests"))
    pointer, files = start(layout)
    write_catch_up(layout, 1, {"a": ("p1", 11)}, ["p1"], files)
    side = Path(layout.durable.where(side_path(layout, 0, 1, LABEL)))
    whole = side.read_bytes()
    side.write_bytes(whole[:-3])
    with pytest.raises(IndexDamagedError, match=f"{LABEL}.arrow"):
        tag(layout, pointer, 1, [Event("x", "p9", 1)], catch_up=1)
    side.write_bytes(whole)
    result = tag_key_group(
        LABEL, pointer, make_batch([Event("x", "p9", 1)], layout), make_profile(1, catch_up=1), layout
    )
    BatchManifest("q", 1, 1, {LABEL: result.delta or ""}).write(manifests)
    collect_garbage(layout, [LABEL], 0, 1, manifests)
    assert not side.exists()
    assert [m.catch_up for m in complete_catch_ups(layout, 0)] == [1]
    assert DeltaRef.from_json(result.delta or "").pointer.catch_up == 1
    assert content(layout, Pointer.from_bytes(result.pointer or b"", LABEL))["x"] == ("p9", 1)


KEYS = "abcdefgh"
PARTS = ["p1", "p2", "p3"]
TABLE = st.dictionaries(st.sampled_from(KEYS), st.tuples(st.sampled_from(PARTS), st.integers(0, 20)), max_size=8)


@settings(max_examples=40, deadline=None)
@given(before=TABLE, after=TABLE, touched=st.sets(st.sampled_from(PARTS), min_size=1))
def test_any_two_states_of_the_table(
    before: dict[str, tuple[str, int]],
    after: dict[str, tuple[str, int]],
    touched: set[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    layout = make_layout(tmp_path_factory.mktemp("epoch"))
    first = [Event(k, p, o) for k, (p, o) in before.items()] + [Event(f"own-{p}", p, 1) for p in PARTS]
    pointer = tag(layout, None, 0, first)
    files = files_of(layout, pointer)
    # Commits can only change the groups they touch, and a sound table has no key twice.
    now = {k: v for k, v in before.items() if v[0] not in touched}
    now |= {k: v for k, v in after.items() if v[0] in touched and k not in now}
    rows: dict[str, Row] = {k: v for k, v in now.items() if v[0] in touched}
    rows |= {f"own-{p}": (p, 1) for p in touched}
    write_catch_up(layout, 1, rows, sorted(touched), files)
    result = tag(layout, pointer, 1, [Event("z", "p1", 1)], catch_up=1)
    found = content(layout, Pointer.from_bytes(result, LABEL))
    live = {k: v for k, v in found.items() if v[0] is not None}
    assert live == {**now, **{f"own-{p}": (p, 1) for p in PARTS}, "z": ("p1", 1)}
    assert {k for k, v in found.items() if v[0] is None} == before.keys() - now.keys()
