"""One key group's part of a batch: look up every key, decide, stage the change of state, count the results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from tagstream.state import codec
from tagstream.state.batch_manifest import DeltaRef, expected_pointer
from tagstream.state.catch_up import catch_up
from tagstream.state.choice import Choice, choose
from tagstream.state.codec import NO_LOCATION, ORDERING_UNKNOWN, TOMBSTONE, Records, minutes_of
from tagstream.state.decide import Decision, Known, Winners, check_batch, decide
from tagstream.state.durable_files import Pointer, read_checked
from tagstream.state.errors import LocalStoreError
from tagstream.state.implied_deletes import find_copies, with_deletes
from tagstream.state.layout import StateLayout, has_bytes
from tagstream.state.local_store import discard, open_at
from tagstream.state.rocks_store import RocksStore
from tagstream.state.snapshot_and_deltas import Change, take_snapshot, write_delta
from tagstream.state.store_entries import Location, StoreMeta, intern, places_of
from tagstream.state.sweep import Swept, before_a_snapshot, outlived, sweep
from tagstream.state.tag_batch import INT64, OBJECTS, OP_DELETE, OP_INSERT, OP_UPDATE, TagBatch, TagResult
from tagstream.table.write.write_context import WriteProfile, assign

STAT_NAMES = (
    "records",
    "inserts",
    "updates",
    "deletes",
    "moves",
    "late",
    "superseded",
    "unknown_deletes",
    "skipped",
    "live_keys",
    "tombstones",
    "bytes",
    "caught_up",
    "twice",
)


def empty_stats() -> dict[str, int]:
    """All counts at zero. `caught_up`: keys that catch-ups changed; `twice`: keys that they found in two locations."""
    return dict.fromkeys(STAT_NAMES, 0)


def count(records: int, decision: Decision, meta: StoreMeta, store_bytes: int) -> dict[str, int]:
    """Counts of a batch. `inserts` does not count moves. `superseded`: records that lost to a newer one of their key in
    the batch. `skipped`: records without data of a row; the caller counts them.

    `live_keys`, `tombstones` and `bytes` (of the local store) describe the whole key group after the batch.
    """
    n = {
        name: int(np.count_nonzero(getattr(decision, name))) for name in ("late", "insert", "update", "move", "delete")
    }
    return {
        "records": records,
        "inserts": n["insert"],
        "updates": n["update"],
        "deletes": n["delete"],
        "moves": n["move"],
        "late": n["late"],
        "superseded": records - len(decision.late),
        "unknown_deletes": int(np.count_nonzero(decision.buried)) - n["delete"],
        "skipped": 0,
        "live_keys": meta.live,
        "tombstones": meta.tombstones,
        "bytes": store_bytes,
    }


def tag_key_group(
    group_label: int, pointer: bytes | None, batch: TagBatch, profile: WriteProfile, layout: StateLayout
) -> TagResult:
    """Tag the records of one key group.

    `pointer`: Spark's state of the group, None when it has none. The local store is closed when this returns. StateError
    when a durable file is missing or damaged, or when the pointer is not the expected one.
    """
    at = expected_pointer(pointer, group_label, profile, layout)
    if profile.mode == "replay":
        return _replay(group_label, pointer, at, batch, profile, layout)
    if len(batch) == 0 and not batch.images and batch.truncates is None:
        return _nothing(batch, layout, pointer)
    check_batch(batch)
    try:
        return _process(group_label, pointer, at, batch, profile, layout)
    except LocalStoreError:
        # The local store is only a cache. One that fails while it is read is built again, once.
        discard(layout, group_label)
        return _process(group_label, pointer, at, batch, profile, layout)


def _process(
    label: int, pointer: bytes | None, at: Pointer, batch: TagBatch, profile: WriteProfile, layout: StateLayout
) -> TagResult:
    before = at.chain
    store, meta = open_at(layout, label, at)
    with store:
        caught = catch_up(store, layout, label, at, meta, profile.catch_up, profile.batch_id)
        new, meta = caught.at, caught.meta
        batch, unseen = with_deletes(batch, store, layout)
        chosen = choose(batch, lambda wanted: _look_up(store, wanted, profile, layout))
        batch, names, winners, known = chosen.batch, chosen.names, chosen.winners, chosen.known
        located = _locate(store, label, chosen, profile, meta)
        copies = find_copies(store, label, meta, names, located.decision, located.codes, located.new)
        located = replace(located, entries=[*located.entries, *copies.entries], meta=copies.counted(located.meta))
        rewrite = _rewrite(names.tolist(), winners, known, located, profile, layout)
        swept = Swept()
        if before_a_snapshot(len(new.deltas), len(new.deltas) - len(at.deltas), layout):
            swept = sweep(store, meta, set(rewrite.keys), located.codes, new.catch_up, profile, layout)
        change = rewrite.change(swept, located, meta.copies)
        result = tag_result(names, winners, located.decision, located.old, located.new, located.places)
        result = chosen.complete(result, located.old, located.places, lambda codes: places_of(codes, store.get, label))
        result = copies.deleted_too(result)
        size = sum(f["size"] for f in store.live_files())
        counts = count(len(batch), located.decision, meta if change is None else change.meta, size)
        counts["records"] -= unseen
        counts["unknown_deletes"] -= unseen
        counts |= {"caught_up": caught.changed, "twice": caught.twice}
        if profile.file_prefix:
            d = located.decision
            result = replace(result, added=names[np.flatnonzero(d.insert | d.move | (d.buried & ~d.delete))])
        if profile.file_prefix and layout.ordering != "none":
            buried = np.flatnonzero(located.decision.buried & winners.has_ordering)
            result = replace(result, buried=(names[buried], winners.ordering[buried]) if len(buried) else None)
        if change is not None:
            snapshot, deltas = new.snapshot, new.deltas
            if len(deltas) >= layout.snapshot_every:
                store.finish_compaction()
                snapshot = take_snapshot(store, layout, label, profile.batch_id, new.chain, new.snapshot)
                deltas = ()
            delta = write_delta(layout, label, profile.batch_id, change, new.chain)
            new = Pointer(new.index_load, new.catch_up, snapshot, (*deltas, delta))
    if new == at:
        return replace(result, pointer=pointer, stats=counts)
    return replace(result, pointer=new.to_bytes(), delta=DeltaRef(before, new).to_json(), stats=counts)


def _look_up(store: RocksStore, wanted: list[bytes], profile: WriteProfile, layout: StateLayout) -> Known:
    found, records = codec.decode_some(store.get(wanted), layout.ordering)
    if not layout.forgets:
        return Known(found, found, records)
    return Known(found, found & ~outlived(records, profile.batch_time_ms, layout), records)


@dataclass(frozen=True)
class _Located:
    """Per distinct key: the location of its record before and after, as indexes into `places`; -1 for none.

    `codes`: the location codes of `places` in the dictionary; `entries`: those new to it.
    """

    decision: Decision
    old: INT64
    new: INT64
    places: list[Location]
    codes: npt.NDArray[np.uint32]
    entries: list[tuple[bytes, bytes]]
    meta: StoreMeta


def _locate(store: RocksStore, label: int, chosen: Choice, profile: WriteProfile, meta: StoreMeta) -> _Located:
    """Decide for each key, and assign a file group to each new record."""
    batch, winners, known = chosen.batch, chosen.winners, chosen.known
    live = known.live
    old_codes, old_index = np.unique(known.records.loc[live], return_inverse=True)
    old_places = places_of(old_codes, store.get, label)
    old = np.full(len(live), -1, np.int64)
    old[live] = old_index
    found_codes, partitions = pd.factorize(chosen.partitions(old, old_places))
    partition: npt.NDArray[np.int32] = found_codes.astype(np.int32)  # -1: none, a delete
    of_name = {name: i for i, name in enumerate(partitions)}
    old_partition = np.array([of_name.get(p, -2) for p, _ in old_places], np.int32)  # one step a file group
    same = np.zeros(len(live), np.bool_)
    same[live] = old_partition[old_index] == partition[live] if len(old_places) else False
    decision = decide(batch, winners, known, same)
    fresh = np.flatnonzero(decision.insert | decision.move)
    slots, new_places = assign(partition[fresh], list(partitions), profile.group_index(label), profile)
    new_codes, entries, next_code = intern(new_places, store.get, meta.next_code)
    new = np.where(decision.update, old, -1)
    new[fresh] = len(old_places) + slots
    return _Located(
        decision=decision,
        old=old,
        new=new,
        places=[*old_places, *new_places],
        codes=np.concatenate([old_codes, np.array(new_codes, np.uint32)]).astype(np.uint32),
        entries=entries,
        meta=replace(meta, next_code=next_code),
    )


@dataclass(frozen=True)
class _Rewrite:
    """Keys whose state the batch changes, and their records. `live`, `tombstones`: by how much the numbers of keys grow."""

    keys: list[bytes]
    values: Iterable[bytes]
    raw: bytes
    live: int
    tombstones: int

    def change(self, swept: Swept, located: _Located, store_copies: int) -> Change | None:
        """The change of the store with the swept keys; None when nothing changes. `store_copies`: the store's count now."""
        meta = located.meta
        if not self.keys and not swept and meta.copies == store_copies:
            return None
        live, tombstones = meta.live + self.live - swept.live, meta.tombstones + self.tombstones - swept.tombstones
        meta = replace(meta, live=live, tombstones=tombstones)
        entries = [*located.entries, *swept.entries]
        return Change(self.keys, self.values, self.raw, swept.keys, entries, meta, swept.unused)


def _rewrite(
    wanted: list[bytes],
    winners: Winners,
    known: Known,
    located: _Located,
    profile: WriteProfile,
    layout: StateLayout,
) -> _Rewrite:
    """The new records of the keys whose state the batch changes."""
    d = located.decision
    n = len(wanted)
    loc = np.full(n, NO_LOCATION, np.uint32)
    has_place = located.new >= 0
    loc[has_place] = located.codes[located.new[has_place]]
    flags = (np.where(d.buried, TOMBSTONE, 0) | np.where(winners.has_ordering, 0, ORDERING_UNKNOWN)).astype(np.uint8)
    was = known.records
    changed = ~d.late & (~known.found | (loc != was.loc) | (flags != was.flags) | (winners.ordering != was.ordering))
    if layout.ttl_ms:
        changed = ~d.late
    pick = np.flatnonzero(changed)
    instant = np.where(d.update, was.instant, codec.instant_number(profile.instant))
    records = Records(
        loc[pick],
        instant[pick],
        np.full(len(pick), minutes_of(profile.batch_time_ms), np.uint32),
        flags[pick],
        winners.ordering[pick],
    )
    values, raw = codec.encode(records, layout.ordering)
    keys = wanted if len(pick) == n else [wanted[i] for i in pick.tolist()]
    # A key that has outlived its time and is written again is still counted from before.
    stored, was_dead = known.stored[pick], (was.flags[pick] & TOMBSTONE) != 0
    return _Rewrite(
        keys,
        values,
        raw,
        live=int(np.count_nonzero(d.kept[pick])) - int(np.count_nonzero(stored & ~was_dead)),
        tombstones=int(np.count_nonzero(d.buried[pick])) - int(np.count_nonzero(stored & was_dead)),
    )


def tag_result(
    names: OBJECTS, winners: Winners, decision: Decision, old: INT64, new: INT64, places: list[Location]
) -> TagResult:
    """Rows to write: first the upserts in key order, then the deletes at old locations.

    `names`: the distinct keys. `old`, `new`: the location of each key's record before and after, as indexes into
    `places`; -1 for none. The result has no pointer and no delta yet.
    """
    upsert, delete = np.flatnonzero(decision.kept), np.flatnonzero(decision.move | decision.delete)
    key = np.concatenate([upsert, delete])
    place = np.concatenate([new[upsert], old[delete]])
    partitions, files = np.empty(len(places), object), np.empty(len(places), object)
    partitions[:] = [p for p, _ in places]
    files[:] = [f for _, f in places]
    op = np.full(len(key), OP_DELETE, np.int8)
    op[: len(upsert)] = np.where(decision.update[upsert], OP_UPDATE, OP_INSERT)
    take = np.full(len(key), -1, np.int64)
    take[: len(upsert)] = winners.row[upsert]
    return TagResult(
        take=take,
        skey=names[key],
        partition=partitions[place],
        file_id=files[place],
        op=op,
        ordering=winners.ordering[key],
        has_ordering=winners.has_ordering[key],
        pointer=None,
        delta=None,
    )


def _replay(
    label: int, pointer: bytes | None, at: Pointer, batch: TagBatch, profile: WriteProfile, layout: StateLayout
) -> TagResult:
    """Adopt the pointer with which the commit on the timeline was made. The store is not needed.

    After an index load that is newer than the commit, the profile has no pointer to adopt: the old one is invalid anyway.
    """
    text = profile.manifest.get(label)
    if text is None:
        return _nothing(batch, layout, pointer)
    new = DeltaRef.from_json(text).adopt(at, label, profile.batch_id)
    for delta in new.deltas:
        if delta not in at.deltas:
            path = f"{layout.deltas_dir(label)}/{delta.file}"
            read_checked(layout.durable, path, delta.size, delta.crc, label, f"delta of batch {delta.batch}")
    return replace(_nothing(batch, layout, new.to_bytes()), delta=text)


def _nothing(batch: TagBatch, layout: StateLayout, pointer: bytes | None) -> TagResult:
    none = np.zeros(0, object)
    ordering: npt.NDArray[Any] = none if has_bytes(layout.ordering) else np.zeros(0, np.int64)
    counts = empty_stats() | {"records": len(batch)}
    return TagResult(
        np.zeros(0, np.int64),
        none,
        none,
        none,
        np.zeros(0, np.int8),
        ordering,
        np.zeros(0, np.bool_),
        pointer,
        None,
        counts,
    )
