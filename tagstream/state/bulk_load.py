"""Load the whole index of a key group at once: sorted runs of keys become the first snapshot of an index load.

The records go into one sorted file, and the store's own entries into another. A scratch store ingests both files. Its
snapshot is then made durable like any other. The memory is that of one run, whatever the number of runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.state import codec
from tagstream.state.codec import NO_LOCATION, ORDERING_UNKNOWN, TOMBSTONE, Records, sort_keys
from tagstream.state.index_loads import GroupStart, write_start
from tagstream.state.layout import StateLayout
from tagstream.state.rocks_store import META_KEY, RocksStore, SortedFile, write_sorted_file
from tagstream.state.scratch import make_folder, make_private, remove, scratch_path
from tagstream.state.snapshot_and_deltas import take_snapshot
from tagstream.state.store_entries import Location, StoreMeta, copies_entry, intern
from tagstream.state.tag_batch import GLOBAL_KEY, INT64, OBJECTS

_CHAIN_BYTES = 16


@dataclass(frozen=True)
class KeyRun:
    """Rows of one key group in any order. Every key of a run is greater than all keys of the run before.

    `skeys`: state keys, objects of bytes. `place`: index into `LoadPlaces.places`. `ordering`: int64, or objects of
    bytes, zero or empty where unknown. `flags`: TOMBSTONE and ORDERING_UNKNOWN of the location record.
    """

    skeys: OBJECTS
    place: npt.NDArray[np.int32]
    ordering: npt.NDArray[Any]
    flags: npt.NDArray[np.uint8]


@dataclass(frozen=True)
class LoadPlaces:
    """The locations of rows: (partition path, file id), and the base instant of the file slice of each."""

    places: Sequence[Location]
    instants: INT64


@dataclass(frozen=True)
class DuplicateKey:
    """A key that is live in several locations: its state key, and indexes of the locations by rank. The last one is kept."""

    skey: bytes
    places: tuple[int, ...]

    @property
    def record_key(self) -> str:
        """The record key in the state key."""
        key = self.skey[1:] if self.skey[:1] == GLOBAL_KEY else self.skey.split(b"\x00", 1)[1]
        return key.decode()


@dataclass
class _Totals:
    live: int = 0
    tombstones: int = 0
    twice: list[DuplicateKey] = field(default_factory=list)


def bulk_load(
    layout: StateLayout,
    label: int,
    index_load: int,
    batch_id: int,
    minutes: int,
    places: LoadPlaces,
    runs: Iterable[KeyRun],
    on_twice: Callable[[list[DuplicateKey]], None] = lambda _: None,
) -> GroupStart:
    """Load a key group and write its start file. With this file the group is loaded.

    `index_load`: number of the index load. `batch_id`: the first batch that will run on it; durable files have it in
    their names. `minutes`: time of the load in minutes since 1970, from which the time to live counts. `runs`: the rows
    of the group. `on_twice`: called with the keys found live several times, before the start file is written.
    """
    make_private(layout)
    scratch = scratch_path(layout.local_dir, f"{label}.load")
    make_folder(scratch)
    try:
        totals, digest = _Totals(), blake2b(f"generation {index_load}".encode(), digest_size=_CHAIN_BYTES)
        codes = _Codes(places)
        records = SortedFile(os.path.join(scratch, "records.sst"))
        for run in runs:
            _load_run(run, places, codes, minutes, layout, records, totals, digest)
        copies = _copies(totals.twice, codes)
        _, entries, next_code = intern([places.places[i] for i in codes.used], _knows_nothing, 0)
        entries += copies
        for key, value in sorted(entries):
            digest.update(b"%d %d " % (len(key), len(value)) + key + value)
        chain = digest.hexdigest()
        meta = StoreMeta(chain, next_code, totals.live, totals.tombstones, len(copies))
        own = sorted([*entries, (META_KEY, meta.to_bytes())])
        own_path = os.path.join(scratch, "own.sst")
        write_sorted_file(own_path, [k for k, _ in own], [v for _, v in own])
        with RocksStore(os.path.join(scratch, "store")) as store:
            store.ingest(own_path)
            if records.finish():
                store.ingest(records.path)
            size = sum(f["size"] for f in store.live_files())
            snapshot = take_snapshot(store, layout, label, batch_id, chain, None)
    finally:
        remove(scratch)
    start = GroupStart(label, index_load, snapshot, totals.live, totals.tombstones, len(totals.twice), size)
    on_twice(totals.twice)
    return write_start(layout, start)


def _copies(twice: Iterable[DuplicateKey], codes: _Codes) -> list[tuple[bytes, bytes]]:
    """Entries of the keys that are in other file groups too. A row loop, over keys that no sound table has."""
    found = []
    for key in twice:
        others = sorted({*key.places[:-1]} - {key.places[-1]})
        if others:
            found.append(copies_entry(key.skey, codes.of(np.array(others, np.int32)).tolist()))
    return found


class _Codes:
    """Location codes in the order of first use, so that locations without live keys get no code."""

    def __init__(self, places: LoadPlaces) -> None:
        self._of_place = np.full(len(places.places), NO_LOCATION, np.uint32)
        self.used: list[int] = []

    def of(self, place: npt.NDArray[np.int32]) -> npt.NDArray[np.uint32]:
        new = np.unique(place)
        new = new[self._of_place[new] == NO_LOCATION]
        self._of_place[new] = np.arange(len(self.used), len(self.used) + len(new), dtype=np.uint32)
        self.used += new.tolist()
        codes: npt.NDArray[np.uint32] = self._of_place[place]
        return codes


def _knows_nothing(keys: list[bytes]) -> list[bytes | None]:
    return [None] * len(keys)


def _load_run(
    run: KeyRun,
    places: LoadPlaces,
    codes: _Codes,
    minutes: int,
    layout: StateLayout,
    records: SortedFile,
    totals: _Totals,
    digest: Any,
) -> None:
    if len(run.skeys) == 0:
        return
    order, first = sort_keys(run.skeys)
    chosen = order if first.all() else _choose(run, order, first, places, totals)
    keys: list[bytes] = run.skeys[chosen].tolist()
    place, flags = run.place[chosen], run.flags[chosen]
    dead = (flags & TOMBSTONE) != 0
    loc = np.full(len(keys), NO_LOCATION, np.uint32)
    loc[~dead] = codes.of(place[~dead])
    table = Records(loc, places.instants[place], np.full(len(keys), minutes, np.uint32), flags, run.ordering[chosen])
    values, raw = codec.encode(table, layout.ordering)
    digest.update(np.fromiter(map(len, keys), "<u4", len(keys)).tobytes())
    digest.update(b"".join(keys))
    digest.update(raw)
    records.put(keys, values)
    buried = int(np.count_nonzero(dead))
    totals.tombstones += buried
    totals.live += len(keys) - buried


def resolve_run(run: KeyRun, places: LoadPlaces) -> tuple[INT64, list[DuplicateKey]]:
    """The row that is kept for each key, in key order, and the keys that are live in several locations."""
    order, first = sort_keys(run.skeys)
    if first.all():
        return order, []
    totals = _Totals()
    return _choose(run, order, first, places, totals), totals.twice


def _choose(run: KeyRun, order: INT64, first: npt.NDArray[np.bool_], places: LoadPlaces, totals: _Totals) -> INT64:
    """The row that is kept for each key, in key order. Keys with several live rows are added to the totals.

    A live row wins over tombstones, because a move leaves a delete at the old location. Among live rows the newest file
    slice wins, then the greater ordering value. Among tombstones the greatest ordering value wins.
    """
    group = np.cumsum(first) - 1
    sizes = np.bincount(group)
    crowded = sizes[group] > 1
    rows, within = order[crowded], group[crowded]
    live = (run.flags[rows] & TOMBSTONE) == 0
    known = (run.flags[rows] & ORDERING_UNKNOWN) == 0
    _, rank = np.unique(run.ordering[rows], return_inverse=True)
    rank = np.where(known, rank, -1)
    instant = places.instants[run.place[rows]]
    by = np.lexsort((run.place[rows], np.where(live, rank, instant), np.where(live, instant, rank), live, within))
    rows, within, live = rows[by], within[by], live[by]
    last = np.append(np.flatnonzero(np.diff(within)), len(within) - 1)
    chosen = order[first]
    chosen[within[last]] = rows[last]
    totals.twice += _twice(run, rows[live], within[live])
    return chosen


def _twice(run: KeyRun, rows: INT64, within: npt.NDArray[Any]) -> Iterator[DuplicateKey]:
    starts = np.flatnonzero(np.diff(within, prepend=-1))
    ends = np.append(starts, len(within))[1:]
    several = ends - starts > 1
    # A row loop, over keys that are live twice in the table. No sound table has such keys.
    for start, end in zip(starts[several].tolist(), ends[several].tolist(), strict=True):
        yield DuplicateKey(run.skeys[rows[start]], tuple(run.place[rows[start:end]].tolist()))
