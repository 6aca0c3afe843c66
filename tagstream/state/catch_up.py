"""Apply catch-ups to a key group: what the commits of other writers did to its keys.

A catch-up lists the keys that the touched file groups have now. These keys get that location and ordering value,
whatever the index had. A row without an ordering value in the table keeps the one in the index: the order of a
Debezium stream is a position in its source's log, and no column of the table has it. Keys that the index has in a
touched group, and that the group no longer has, become tombstones. A tombstone keeps the ordering value of its key,
so that a late event does not bring the key back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tagstream.state import codec
from tagstream.state.codec import NO_LOCATION, ORDERING_UNKNOWN, TOMBSTONE, Records, sort_keys
from tagstream.state.durable_files import Pointer
from tagstream.state.index_loads import CatchUpMarker, CatchUpRows, read_catch_up_marker, read_side
from tagstream.state.layout import StateLayout, has_bytes
from tagstream.state.rocks_store import RocksStore
from tagstream.state.snapshot_and_deltas import Change, apply_deltas, write_delta
from tagstream.state.store_entries import StoreMeta, all_copies, codes_of, copies_entry, intern, places_of, records_of
from tagstream.state.tag_batch import OBJECTS
from tagstream.table.storage.storage import create

BOOLS = npt.NDArray[np.bool_]
_EXAMPLES = 1_000


@dataclass(frozen=True)
class CaughtUp:
    """A key group after its catch-ups. `changed`: keys whose record changed; `twice`: keys live in two locations."""

    at: Pointer
    meta: StoreMeta
    changed: int = 0
    twice: int = 0


def catch_up(
    store: RocksStore, layout: StateLayout, label: int, at: Pointer, meta: StoreMeta, last: int, batch_id: int
) -> CaughtUp:
    """Apply the catch-ups after the one of `at`, up to number `last`.

    `batch_id`: the batch that runs now. Each catch-up is made durable as a delta of this batch, and then ingested into
    the store. The store is then ahead of what Spark has committed. When the batch fails, the next attempt has a pointer
    without these deltas, and builds the store again.
    """
    changed = twice = 0
    for number in range(at.catch_up + 1, last + 1):
        marker = read_catch_up_marker(layout, at.index_load, number)
        change, found = catch_up_change(store, layout, label, meta, marker)
        twice += found
        at = replace(at, catch_up=number)
        if change is not None:
            changed += len(change.keys)
            delta = write_delta(layout, label, batch_id, change, at.chain)
            apply_deltas(store, layout, label, [delta])
            at = replace(at, deltas=(*at.deltas, delta))
            meta = replace(change.meta, chain=delta.chain)
    return CaughtUp(at, meta, changed, twice)


def catch_up_change(
    store: RocksStore,
    layout: StateLayout,
    label: int,
    meta: StoreMeta,
    marker: CatchUpMarker,
    *,
    list_doubled: bool = True,
) -> tuple[Change | None, int]:
    """The change that a catch-up makes to a store, None when it makes none; and how many keys it finds in two locations.

    `meta`: of the store. With `list_doubled` these keys are listed in a durable file in the folder of the catch-up.
    """
    rows = read_side(layout, marker, label) or _no_rows(layout)
    places = [(t.partition, t.file_id) for t in marker.touched]
    touched = np.array([c for c in codes_of(places, store.get) if c is not None], np.uint32)
    keys: list[bytes] = rows.skeys.tolist()
    found, was = codec.decode_some(store.get(keys), layout.ordering)
    live = (rows.flags & TOMBSTONE) == 0
    was_live = found & ((was.flags & TOMBSTONE) == 0)
    in_touched = was_live & np.isin(was.loc, touched)

    loc = np.full(len(keys), NO_LOCATION, np.uint32)
    in_other_file_group = {place for found in rows.others.values() for place in found}
    used = np.array(sorted({*rows.place[live].tolist(), *in_other_file_group}), np.int64)
    codes, entries, next_code = intern([places[i] for i in used.tolist()], store.get, meta.next_code)
    codes_by_place = dict(zip(used.tolist(), codes, strict=True))
    loc[live] = np.array(codes, np.uint32)[np.searchsorted(used, rows.place[live])]
    # Commits that only deleted keys without a row touch no file group.
    instants = np.array([codec.instant_number(t.instant) for t in marker.touched] or [0], np.int64)
    instant = instants[rows.place] if len(rows.place) else np.zeros(0, np.int64)
    flags, ordering = _newest_known(rows, live, found, was)
    altered = (flags != was.flags) | (ordering != was.ordering)
    changes = altered | (loc != was.loc)
    # A clustering only moves a row and does not write it. Its time to live counts from its last record.
    minutes = np.where(live & was_live & ~altered, was.minutes, np.uint32(marker.minutes)).astype(np.uint32)
    # A delete in a log says nothing about a key that has moved to a file group that these commits did not touch.
    pick = np.flatnonzero(np.where(live, ~found | changes, (~was_live | in_touched) & (~found | changes)))
    doubled = np.flatnonzero(live & was_live & ~in_touched & (loc != was.loc))
    if list_doubled and len(doubled):
        _list_doubled(store, layout, label, marker, rows, was, doubled)

    gone_keys, gone = _gone(store, layout, touched, set(keys)) if marker.removals and len(touched) else ([], None)
    names = [keys[i] for i in pick.tolist()]
    records = Records(loc[pick], instant[pick], minutes[pick], flags[pick], ordering[pick])
    if gone is not None:
        names += gone_keys
        gone_at = np.full(len(gone_keys), marker.minutes, np.uint32)
        records = _joined(records, replace(gone, minutes=gone_at))
    copies = _copies(store, meta, rows, codes_by_place, doubled, was, loc, {*touched.tolist()})
    if copies:
        entries = [*entries, *(copies_entry(skey, after) for skey, (_, after) in copies.items())]
        grown = sum(bool(after) - bool(before) for before, after in copies.values())
        meta = replace(meta, copies=meta.copies + grown)
    if not names and not copies:
        return None, len(doubled)
    before_live = int(np.count_nonzero(was_live[pick])) + len(gone_keys)
    before_dead = int(np.count_nonzero(found[pick] & ~was_live[pick]))
    now_live = int(np.count_nonzero(live[pick]))
    after = replace(
        meta,
        next_code=next_code,
        live=meta.live + now_live - before_live,
        tombstones=meta.tombstones + (len(names) - now_live) - before_dead,
    )
    order, _ = sort_keys(_objects(names))
    records = Records(*(getattr(records, f)[order] for f in ("loc", "instant", "minutes", "flags", "ordering")))
    values, raw = codec.encode(records, layout.ordering)
    return Change([names[i] for i in order.tolist()], values, raw, (), entries, after), len(doubled)


def _copies(
    store: RocksStore,
    meta: StoreMeta,
    rows: CatchUpRows,
    codes: Mapping[int, int],
    doubled: npt.NDArray[np.int64],
    was: Records,
    loc: npt.NDArray[np.uint32],
    touched: set[int],
) -> dict[bytes, tuple[set[int], set[int]]]:
    """(other locations before, other locations after) of each key that changes them.

    `codes`: index of a location in the catch-up -> location code. The loops go over keys that no sound table has.
    """
    known = {skey: {*found} for skey, found in all_copies(store)} if meta.copies else {}
    after = {skey: found - touched for skey, found in known.items()}
    for i in doubled.tolist():
        after.setdefault(rows.skeys[i], set()).add(int(was.loc[i]))
    for skey, places in rows.others.items():
        after.setdefault(skey, set()).update(codes[place] for place in places)
    at = {skey: i for i, skey in enumerate(rows.skeys.tolist()) if skey in after} if after else {}
    for skey, i in at.items():
        after[skey].discard(int(loc[i]))
    pairs = {skey: (known.get(skey, set()), found) for skey, found in after.items()}
    return {skey: pair for skey, pair in pairs.items() if pair[0] != pair[1]}


def _newest_known(
    rows: CatchUpRows, live: BOOLS, found: BOOLS, was: Records
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[Any]]:
    """Flags and ordering values. A live row has those of the table, or those of the index when the table has no ordering
    value. A delete has the greatest known ordering value of its key.
    """
    known = (rows.flags & ORDERING_UNKNOWN) == 0
    was_known = found & ((was.flags & ORDERING_UNKNOWN) == 0)
    kept = was_known & (~known | (~live & (was.ordering > rows.ordering).astype(np.bool_)))
    ordering = np.where(kept, was.ordering, rows.ordering)
    flags = np.where(kept, rows.flags & np.uint8(~ORDERING_UNKNOWN & 0xFF), rows.flags).astype(np.uint8)
    return flags, ordering


def _gone(
    store: RocksStore, layout: StateLayout, touched: npt.NDArray[np.uint32], present: set[bytes]
) -> tuple[list[bytes], Records | None]:
    """Live keys of touched file groups that the side rows do not have, as tombstones. Reads the whole store."""
    names: list[bytes] = []
    parts: list[Records] = []
    for keys, records in records_of(store, layout):
        there = np.flatnonzero(((records.flags & TOMBSTONE) == 0) & np.isin(records.loc, touched)).tolist()
        pick = [i for i in there if keys[i] not in present]  # a row loop: over keys of touched file groups only
        if pick:
            names += [keys[i] for i in pick]
            n = len(pick)
            nowhere = np.full(n, NO_LOCATION, np.uint32)
            flags = records.flags[pick] | np.uint8(TOMBSTONE)
            zero = np.zeros(n, np.uint32)
            parts.append(Records(nowhere, records.instant[pick], zero, flags, records.ordering[pick]))
    if not parts:
        return [], None
    whole = parts[0]
    for part in parts[1:]:
        whole = _joined(whole, part)
    return names, whole


def _joined(a: Records, b: Records) -> Records:
    return Records(
        *(np.concatenate([getattr(a, f), getattr(b, f)]) for f in ("loc", "instant", "minutes", "flags", "ordering"))
    )


def _no_rows(layout: StateLayout) -> CatchUpRows:
    ordering: npt.NDArray[Any] = np.zeros(0, object if has_bytes(layout.ordering) else np.int64)
    return CatchUpRows(np.zeros(0, object), np.zeros(0, np.int32), ordering, np.zeros(0, np.uint8))


def _objects(names: list[bytes]) -> OBJECTS:
    out = np.empty(len(names), object)
    out[:] = names
    return out


def _list_doubled(
    store: RocksStore,
    layout: StateLayout,
    label: int,
    marker: CatchUpMarker,
    rows: CatchUpRows,
    was: Records,
    doubled: npt.NDArray[np.int64],
) -> None:
    """Write a file of the keys that another writer made live a second time, with both locations. The newer one is kept."""
    some = doubled[:_EXAMPLES]
    codes, index = np.unique(was.loc[some], return_inverse=True)
    old = places_of(codes, store.get, label)
    lines = []
    for i, o in zip(some.tolist(), index.tolist(), strict=True):  # only over keys that no sound table has
        kept = marker.touched[int(rows.place[i])]
        lines.append(
            json.dumps({
                "key": rows.skeys[i][1:].decode(errors="replace"),
                "kept": [kept.partition, kept.file_id, kept.instant],
                "others": [list(old[o])],
            })
        )  # fmt: skip
    folder = layout.catch_up_dir(marker.index_load, marker.catch_up)
    create(layout.durable, f"{folder}/{label}.twice.jsonl", ("\n".join(lines) + "\n").encode())
