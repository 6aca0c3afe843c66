"""Records carried into a new index come out as they went in, whatever kind of ordering value and index."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pytest

from tagstream.cli.index_load import GroupLoader, RecordSpiller, complete
from tagstream.cli.index_processes import load_groups
from tagstream.cli.index_reader import Entries, entries_of, record_keys, state_keys
from tagstream.cli.output import AdminError
from tagstream.state.codec import NO_LOCATION, ORDERING_UNKNOWN, TOMBSTONE, Records
from tagstream.state.implied_deletes import truncate_key
from tagstream.state.index_loads import IndexLoadMarker, newest_index_load, starting_pointer
from tagstream.state.index_view import open_view
from tagstream.state.key_crc import state_key_groups
from tagstream.state.layout import OrderingKind, StateLayout, balanced_labels, key_group
from tagstream.state.rocks_store import RocksStore
from tagstream.state.snapshot_and_deltas import Change, ingest_change
from tagstream.state.store_entries import StoreMeta, all_copies, copies_entry, intern, places_of
from tagstream.table.storage.posix import PosixStorage

LABELS = balanced_labels(5, 2)
PLACES = [("p0", "f0-0"), ("p1", "f1-0"), ("", "f2-0")]
KINDS = list(product(get_args(OrderingKind), (True, False)))


def made(layout: StateLayout, n: int, first: int = 0) -> Entries:
    """Records of every sort: some are tombstones, of some the ordering value is not known."""
    numbers = np.arange(first, first + n)
    keys = pa.array([f"key-{i}-é" * (1 + i % 3) for i in numbers.tolist()])
    place = np.where(numbers % 7 == 0, -1, numbers % len(PLACES)).astype(np.int64)
    partitions = pa.array([PLACES[i % len(PLACES)][0] for i in numbers.tolist()])
    flags = np.where(place < 0, TOMBSTONE, 0) | np.where((numbers % 11 == 0) | (layout.ordering == "none"), 2, 0)
    known = (flags & ORDERING_UNKNOWN) == 0
    ordering: Any = np.where(known, numbers * 3 - 100, 0).astype(np.int64) if layout.ordering != "none" else 0 * numbers
    if layout.ordering in ("bytes", "tuple"):
        ordering = np.array([b"v%d" % i if ok else b"" for i, ok in zip(numbers.tolist(), known, strict=True)], object)
    instant = 20_260_101_000_000_000 + numbers
    minutes = (29_000_000 + numbers).astype(np.uint32)
    loc = np.full(n, NO_LOCATION, np.uint32)
    records = Records(loc, instant, minutes, flags.astype(np.uint8), ordering)
    return Entries(state_keys(keys, partitions, layout), records, PLACES, place)


def rows(entries: Entries) -> list[tuple[Any, ...]]:
    """Each key with all that is known of it."""
    r = entries.records
    places = [entries.places[i] if i >= 0 else None for i in entries.place.tolist()]
    columns = (r.instant.tolist(), r.minutes.tolist(), r.flags.tolist(), r.ordering.tolist())
    return list(zip(entries.skeys.to_pylist(), places, *columns, strict=True))


def content(layout: StateLayout) -> dict[int, list[tuple[Any, ...]]]:
    """What is in every key group of generation 1."""
    found: dict[int, list[tuple[Any, ...]]] = {}
    for label in LABELS:
        with open_view(layout, label, starting_pointer(layout, 1, label), 0) as store:
            found[label] = [row for piece in entries_of(store, layout, label) for row in rows(piece)]
    return found


def loaded(
    folder: Path, layout: StateLayout, *spillers: RecordSpiller, covered: tuple[str, ...] = ()
) -> IndexLoadMarker:
    """What the spillers took, loaded by one process."""
    loader = GroupLoader.of(layout, len(LABELS), str(folder / "scratch"), [spiller.close() for spiller in spillers])
    return complete(layout, load_groups(loader, LABELS, 1, lambda _: None), "/t", covered, ".*")


def make_layout(folder: Path, kind: OrderingKind, global_index: bool) -> StateLayout:
    return StateLayout(PosixStorage(str(folder / "durable"), sync=False), str(folder / "local"), kind, global_index)


@pytest.mark.extended("the same records in many small files", first=("1000000-",))
@pytest.mark.parametrize(("kind", "global_index"), KINDS)
@pytest.mark.parametrize("run_rows", [1_000_000, 50])
def test_records_come_out_as_they_went_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: OrderingKind, global_index: bool, run_rows: int
) -> None:
    monkeypatch.setattr("tagstream.cli.index_load.RUN_ROWS", run_rows)
    layout = make_layout(tmp_path, kind, global_index)
    pieces = [made(layout, 300), made(layout, 200, 300)]
    spillers = [RecordSpiller(layout, len(LABELS), str(tmp_path / "scratch"), task) for task in range(len(pieces))]
    for spiller, piece in zip(spillers, pieces, strict=True):
        spiller.add(piece)
    marker = loaded(tmp_path, layout, *spillers, covered=("20260101000000000", "20260102000000000"))

    found = content(layout)
    wanted = [row for piece in pieces for row in rows(piece)]
    assert sorted(row for group in found.values() for row in group) == sorted(wanted)
    for label, group in found.items():
        assert {LABELS[key_group(row[0][1:], len(LABELS))] for row in group} == {label}
        assert [row[0] for row in group] == sorted(row[0] for row in group)
    dead = sum(place is None for _, place, *_ in wanted)
    assert (marker.live, marker.tombstones) == (len(wanted) - dead, dead)
    assert (marker.instant, marker.covered) == ("20260102000000000", ("20260101000000000", "20260102000000000"))
    assert newest_index_load(layout) == marker


def test_a_key_that_comes_twice(tmp_path: Path) -> None:
    layout = make_layout(tmp_path, "int64", True)
    spiller = RecordSpiller(layout, len(LABELS), str(tmp_path / "scratch"))
    spiller.add(made(layout, 20))
    spiller.add(made(layout, 1, 4))
    with pytest.raises(AdminError, match="'key-4-é.*' is there twice"):
        loaded(tmp_path, layout, spiller)
    assert newest_index_load(layout) is None


def mark(layout: StateLayout, at: int) -> Entries:
    """What a key group holds since the table was emptied at its source."""
    value: Any = b"v%d" % at if layout.ordering in ("bytes", "tuple") else at
    ordering = np.array([value], object if isinstance(value, bytes) else np.int64)
    one = np.ones(1, np.int64)
    records = Records(
        np.full(1, NO_LOCATION, np.uint32), one * 20_260_101_000_000_000 + at, one.astype(np.uint32) * 29_000_000,
        np.full(1, TOMBSTONE, np.uint8), ordering,
    )  # fmt: skip
    return Entries(pa.array([truncate_key(layout)], pa.binary()), records, [], -one)


@pytest.mark.parametrize("global_index", [True, False])
@pytest.mark.parametrize("kind", [kind for kind in get_args(OrderingKind) if kind != "none"])
def test_every_new_group_knows_when_the_table_was_emptied(
    tmp_path: Path, kind: OrderingKind, global_index: bool
) -> None:
    layout = make_layout(tmp_path, kind, global_index)
    spiller = RecordSpiller(layout, len(LABELS), str(tmp_path / "scratch"))
    for piece in (mark(layout, 5), made(layout, 40), mark(layout, 7), mark(layout, 6)):  # one of each old group
        spiller.add(piece)
    marker = loaded(tmp_path, layout, spiller)
    found = content(layout)
    assert [group[0] for group in found.values()] == [row for _ in LABELS for row in rows(mark(layout, 7))]
    others = sorted(row for group in found.values() for row in group[1:])
    assert others == sorted(rows(made(layout, 40)))
    dead = sum(place is None for _, place, *_ in others)
    assert (marker.live, marker.tombstones) == (40 - dead, dead + len(LABELS))


def test_other_places_of_keys_come_along(tmp_path: Path) -> None:
    """Keys that another writer put into the table again."""
    layout = make_layout(tmp_path, "int64", True)
    entries = made(layout, 20)
    spiller = RecordSpiller(layout, len(LABELS), str(tmp_path / "scratch"))
    spiller.add(entries)
    wanted = {entries.skeys[n].as_py(): [("p1", f"f{n}"), PLACES[0]] for n in (3, 4)}
    with RocksStore(str(tmp_path / "store")) as store:
        places = sorted({place for found in wanted.values() for place in found})
        codes, known, _ = intern(places, lambda names: [None] * len(names), 0)
        of_place = dict(zip(places, codes, strict=True))
        known += [copies_entry(skey, [of_place[place] for place in found]) for skey, found in wanted.items()]
        ingest_change(store, Change([], (), b"", (), known, StoreMeta(copies=2)))
        spiller.copies.add(store, 0)
    loaded(tmp_path, layout, spiller)
    back: dict[bytes, list[tuple[str, str]]] = {}
    for label in LABELS:
        with open_view(layout, label, starting_pointer(layout, 1, label), 0) as store:
            for skey, codes_there in all_copies(store):
                assert LABELS[key_group(skey[1:], len(LABELS))] == label
                back[skey] = places_of(np.array(codes_there, np.uint32), store.get, label)
    assert {skey: sorted(found) for skey, found in back.items()} == {k: sorted(v) for k, v in wanted.items()}


@pytest.mark.parametrize("global_index", [True, False])
def test_state_keys_and_back(tmp_path: Path, global_index: bool) -> None:
    layout = make_layout(tmp_path, "none", global_index)
    keys = pa.array(["k1", "key with \u0000 NUL", "ünï", "x" * 2000])
    partitions = pa.array(["p0", "a/b", "", "p=1"])
    skeys = state_keys(keys, partitions, layout)
    back, found = record_keys(skeys, layout)
    assert back.equals(keys)
    assert found is None if global_index else found.equals(partitions)
    rest = [s[1:] for s in skeys.to_pylist()]
    assert state_key_groups(skeys, 7).tolist() == [key_group(r, 7) for r in rest]
    assert state_keys(keys, "p0", layout)[0].as_py() == skeys[0].as_py()
