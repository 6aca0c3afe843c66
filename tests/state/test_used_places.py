"""Which places of a store are used, and the note of the last look."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from tagstream.state import codec
from tagstream.state.codec import NO_LOCATION, Records
from tagstream.state.errors import IndexDamagedError
from tagstream.state.layout import OrderingKind, StateLayout
from tagstream.state.rocks_store import META_KEY, RocksStore, write_sorted_file
from tagstream.state.store_entries import StoreMeta, copies_entry, intern, locations_of, places_of, records_of
from tagstream.state.sweep import NOTE_KEY, SweepNote, UsedPlaces, last_sweep
from tagstream.table.storage.posix import PosixStorage

PLACES = [("p=1", "f-0"), ("p=1", "f-1"), ("", "f-2"), ("p=ö", "f-3")]


def put(store: RocksStore, folder: Path, entries: list[tuple[bytes, bytes | None]]) -> None:
    write_sorted_file(str(folder / "x.sst"), [], [], sorted(entries, key=lambda e: e[0]))
    store.ingest(str(folder / "x.sst"))


@pytest.fixture
def store(tmp_path: Path) -> RocksStore:
    """Four places, the first codes of which are 254 and 255: the order of codes is that of their bytes."""
    with RocksStore(str(tmp_path / "store")) as made:
        _, entries, next_code = intern(PLACES, lambda keys: [None] * len(keys), 254)
        put(made, tmp_path, [*entries, (META_KEY, StoreMeta(next_code=next_code).to_bytes())])
        yield made


def test_unused_ones_go_whole_and_used_ones_stay(store: RocksStore, tmp_path: Path) -> None:
    used = UsedPlaces(store)
    assert len(used) == 4
    used.use_all([np.array([256, NO_LOCATION, 7, 256], np.uint32), np.zeros(0, np.uint32)])
    used.use(np.array([300, 257], np.uint32))
    number, keys = used.unused()
    assert (number, keys) == (2, sorted(keys))
    assert [k[2:] for k in keys[:2]] == [struct.pack(">I", code) for code in (254, 255)]
    put(store, tmp_path, [(key, None) for key in keys])
    assert places_of(np.array([256, 257], np.uint32), store.get, 0) == PLACES[2:]
    with pytest.raises(IndexDamagedError, match="254"):
        places_of(np.array([254], np.uint32), store.get, 0)
    codes, entries, _ = intern(PLACES, store.get, 258)
    assert (codes, len(entries)) == ([258, 259, 256, 257], 4), "a place that comes back gets a code of its own"
    assert len(UsedPlaces(store)) == 2


def test_other_places_of_keys_are_used(store: RocksStore, tmp_path: Path) -> None:
    put(store, tmp_path, [copies_entry(b"\x01a", (254, 257)), copies_entry(b"\x01b", ())])
    assert UsedPlaces(store).unused()[0] == 2


def test_a_store_without_places(tmp_path: Path) -> None:
    with RocksStore(str(tmp_path / "empty")) as store:
        used = UsedPlaces(store)
        used.use(np.array([0, NO_LOCATION], np.uint32))
        assert (len(used), used.unused(), last_sweep(store)) == (0, (0, []), None)
        assert list(locations_of(store)) == []


@pytest.mark.parametrize("kind", ["none", "int64", "bytes"])
def test_locations_alone_are_those_of_the_records(tmp_path: Path, kind: OrderingKind) -> None:
    n = 40_000  # two pieces
    loc = np.arange(n, dtype=np.uint32) % 17
    loc[5] = NO_LOCATION
    ordering = np.array([b"x" * (i % 5) for i in range(n)], object) if kind == "bytes" else np.zeros(n, np.int64)
    zeros = np.zeros(n, np.uint32)
    values, _ = codec.encode(Records(loc, zeros.astype(np.int64), zeros, zeros.astype(np.uint8), ordering), kind)
    with RocksStore(str(tmp_path / "store")) as store:
        write_sorted_file(str(tmp_path / "x.sst"), [b"\x01%06d" % i for i in range(n)], values, [(META_KEY, b"{}")])
        store.ingest(str(tmp_path / "x.sst"))
        layout = StateLayout(PosixStorage(str(tmp_path)), str(tmp_path), kind)
        alone, whole = np.concatenate([*locations_of(store)]), [r.loc for _, r in records_of(store, layout)]
    assert np.array_equal(alone, loc) and np.array_equal(np.concatenate(whole), loc)


def test_the_note_comes_back_and_one_of_another_version_counts_for_nothing(store: RocksStore, tmp_path: Path) -> None:
    note = SweepNote(batch=7, catch_up=2, kept=3, next_code=258)
    put(store, tmp_path, [note.entry()])
    assert last_sweep(store) == note
    put(store, tmp_path, [(NOTE_KEY, b'{"format":2,"more":1}')])
    assert last_sweep(store) is None
