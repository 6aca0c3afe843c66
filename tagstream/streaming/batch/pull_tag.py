"""Tag a batch with a pull-type index: from the records of one key group and their found locations to located rows.

The decisions are those of the stateful step (``state.decide``), but the locations come from the table instead of a
store. The table has no tombstones: an event that is older than a delete brings the row back, once compaction has
removed the delete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.state.codec import ORDERING_UNKNOWN, Records
from tagstream.state.decide import Decision, Keys, Known, Winners, check_batch, choose_winners, decide, distinct_keys
from tagstream.state.implied_deletes import Copies
from tagstream.state.layout import OrderingKind, has_bytes
from tagstream.state.store_entries import StoreMeta
from tagstream.state.tag_batch import FLAG_DELETE, INT64, OBJECTS, TagBatch
from tagstream.state.tag_group import count, empty_stats, tag_result
from tagstream.streaming.batch.completed import without_lacking
from tagstream.streaming.batch.located import bad_records, located_schema
from tagstream.streaming.batch.tag import located, sorted_out, tag_batch
from tagstream.streaming.source.decode.key_decoder import record_keys, state_keys
from tagstream.table.write.write_context import WriteProfile, assign

MOVED = "moved"  # note of a delete whose key has moved to another partition

# (record keys, partition paths) -> (file ids, whether the group exists), for indexes that compute the location
Locate = Callable[[pa.Array, pa.Array], tuple[pa.Array, npt.NDArray[np.bool_]]]
# (partition path, file id, record keys) -> (the keys that have a row in it, their encoded ordering values)
Resolve = Callable[[str, str, pa.Array], tuple[pa.Array, pa.Array]]


def found_schema(ordering: OrderingKind) -> pa.Schema:
    """Columns of the locations that an index finds. ``ordering``: the kind of the records' encoded ordering values."""
    names = ("record_key", "partition_path", "file_id", "instant")
    return pa.schema(
        [*((name, pa.string()) for name in names), ("ord", pa.binary() if has_bytes(ordering) else pa.int64())]
    )


@dataclass(frozen=True)
class PullSpec:
    """One batch's constants.

    ``locate``: set for an index that computes locations; nothing is known of the rows in them. ``resolve``: looks up
    rows in a file slice. It is used for keys that would move or be deleted, where the index has no ordering values.
    """

    profile: WriteProfile
    ordering: OrderingKind
    global_index: bool
    update_partition_path: bool
    locate: Locate | None = None
    resolve: Resolve | None = None


@dataclass(frozen=True)
class _Places:
    """The location of each distinct key.

    ``code``: number of the location in ``places``; -1 for a key without a row. ``others``: (key, location) of further
    rows of a key, which another writer has added to the table. ``twice``: the number of such rows.
    """

    code: INT64
    places: list[tuple[str, str]]
    known: Known
    twice: int = 0
    others: tuple[tuple[int, tuple[str, str]], ...] = ()


def tag_pulled(label: int, rows: pa.Table, found: pa.Table | None, spec: PullSpec) -> tuple[pa.Table, dict[str, int]]:
    """Tag the keyed records of one key group. Returns its located records and its counts.

    ``rows``: keyed records of any kind. ``found``: the locations that the index found, columns of
    :func:`found_schema`; None where none are looked up.
    """
    good, bad, skipped = sorted_out(rows)
    good, lacking = without_lacking(good)
    bad = pa.concat_tables([bad, lacking])
    schema = located_schema(spec.ordering, rows.schema.field("row").type)
    batch = tag_batch(good, spec.ordering)
    if not len(batch):
        return bad_records(label, bad, schema), empty_stats() | {"skipped": skipped}
    check_batch(batch)
    keys = distinct_keys(batch)
    names: OBJECTS = batch.skeys[keys.rows[keys.starts]]
    if spec.locate is not None:
        out, counts = _tag_computed(names, batch, keys, good, spec)
    else:
        found = found_schema(spec.ordering).empty_table() if found is None else found
        out, counts = _tag_found(label, names, batch, keys, found, good, spec)
    return pa.concat_tables([out, bad_records(label, bad, schema)]), counts | {"skipped": skipped}


def _tag_found(
    label: int, names: OBJECTS, batch: TagBatch, keys: Keys, found: pa.Table, good: pa.Table, spec: PullSpec
) -> tuple[pa.Table, dict[str, int]]:
    at = _places(names, found, spec)
    winners = choose_winners(batch, keys, at.known)
    partition, of_name = _partitions(batch, winners)
    old_partition = np.array([of_name.get(p, -2) for p, _ in at.places], np.int64)
    same = np.zeros(len(names), np.bool_)
    live = at.code >= 0
    same[live] = old_partition[at.code[live]] == partition[live] if spec.update_partition_path else True
    if spec.resolve is not None:
        # A late event must not move or delete a row in the index. The writer would detect it, but after the index change.
        gone = (batch.flags[winners.row] & FLAG_DELETE) != 0
        leaving = live & (gone | (~same & (partition >= 0)))
        if leaving.any():
            at = _resolved(at, leaving, names, spec)
            winners, live = choose_winners(batch, keys, at.known), at.code >= 0
            same &= live
    decision = decide(batch, winners, at.known, same)
    fresh = np.flatnonzero(decision.insert | decision.move)
    slots, new_places = assign(
        partition[fresh].astype(np.int32), list(of_name), spec.profile.group_index(label), spec.profile
    )
    new = np.where(decision.update, at.code, -1)
    new[fresh] = len(at.places) + slots
    counts = _counts(len(batch), decision) | {"twice": at.twice}
    return _rows(good, names, winners, decision, at.code, new, [*at.places, *new_places], spec, at.others), counts


def _tag_computed(
    names: OBJECTS, batch: TagBatch, keys: Keys, good: pa.Table, spec: PullSpec
) -> tuple[pa.Table, dict[str, int]]:
    """Tag with computed locations. Whether a row exists is found out when the file is merged or read."""
    assert spec.locate is not None
    n = len(names)
    nothing = nothing_known(n, spec.ordering)
    winners = choose_winners(batch, keys, nothing)
    partitions = pa.array(batch.partitions[winners.row], pa.string())
    file_ids, exists = spec.locate(record_keys(pa.array(names, pa.binary())), partitions)
    live = replace(nothing, stored=exists, found=exists)
    decision = decide(batch, winners, live, np.ones(n, np.bool_))
    pairs = pa.table({"p": partitions, "f": file_ids})
    groups = pairs.group_by(["p", "f"], use_threads=False).aggregate([])
    places = list(zip(groups.column("p").to_pylist(), groups.column("f").to_pylist(), strict=True))
    code = pc.index_in(file_ids, value_set=pa.array([f for _, f in places], pa.string()))
    at = code.to_numpy(zero_copy_only=False).astype(np.int64)
    counts = _counts(len(batch), decision)
    return _rows(good, names, winners, decision, at, at, places, spec), counts


def nothing_known(keys: int, ordering: OrderingKind) -> Known:
    """What is known of so many keys where nothing is looked up."""
    nothing, zeros = np.zeros(keys, np.bool_), np.zeros(keys, np.int64)
    values: npt.NDArray[Any] = np.full(keys, b"", object) if has_bytes(ordering) else zeros
    unknown = Records(
        zeros.astype(np.uint32), zeros, zeros.astype(np.uint32), np.full(keys, ORDERING_UNKNOWN, np.uint8), values
    )
    return Known(nothing, nothing, unknown)


def _state_keys(found: pa.Table, spec: PullSpec) -> pa.Array:
    keys, partitions = (found.column(name).combine_chunks() for name in ("record_key", "partition_path"))
    return state_keys(keys, partitions, global_index=spec.global_index)


def _places(names: OBJECTS, found: pa.Table, spec: PullSpec) -> _Places:
    """Match the found locations to the keys.

    Of several locations of a key, that of the newest slice counts, then the one with the greatest ordering value, as in
    the state index (``state.bulk_load``).
    """
    n = len(names)
    which = pc.index_in(_state_keys(found, spec), value_set=pa.array(names, pa.binary()))
    order = pa.table({c: found.column(name) for c, name in (("t", "instant"), ("o", "ord"), ("f", "file_id"))})
    order = order.append_column("k", which).append_column("v", found.column("ord").is_valid())
    order = order.append_column("row", pa.array(np.arange(found.num_rows)))
    order = order.filter(pc.is_valid(order.column("k")))
    order = order.sort_by([(c, "ascending") for c in "ktvof"])
    index, rows = order.column("k").to_numpy(), order.column("row").to_numpy()
    last = np.append(index[1:] != index[:-1], True) if len(index) else np.zeros(0, np.bool_)
    twice = len(index) - int(last.sum())
    index_all, rows_all = index, rows
    index, rows = index[last], rows[last]
    chosen = found.take(pa.array(rows))
    groups = chosen.select(["partition_path", "file_id"]).group_by(["partition_path", "file_id"], use_threads=False)
    places = [(r["partition_path"], r["file_id"]) for r in groups.aggregate([]).to_pylist()]
    of_place = {place: i for i, place in enumerate(places)}
    code = np.full(n, -1, np.int64)
    parts, files = chosen.column("partition_path"), chosen.column("file_id")
    p, f = pc.dictionary_encode(parts).combine_chunks(), pc.dictionary_encode(files).combine_chunks()
    both = p.indices.to_numpy().astype(np.int64) * max(1, len(f.dictionary)) + f.indices.to_numpy()
    distinct, first, inverse = np.unique(both, return_index=True, return_inverse=True)
    codes = [of_place[parts[i].as_py(), files[i].as_py()] for i in first.tolist()]  # a step a file group
    if len(distinct):
        code[index] = np.array(codes, np.int64)[inverse]
    ordering, known = _orderings(n, index, chosen.column("ord").combine_chunks(), spec.ordering)
    return _Places(
        code, places, _known(code, ordering, known), twice, _others(index_all, rows_all, ~last, found, code, places)
    )


def _orderings(
    n: int, index: INT64, found: pa.Array, kind: OrderingKind
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    ordering: npt.NDArray[Any] = np.full(n, b"", object) if has_bytes(kind) else np.zeros(n, np.int64)
    known = np.zeros(n, np.bool_)
    if kind != "none":
        known[index] = found.is_valid().to_numpy(zero_copy_only=False)
        ordering[index] = pc.fill_null(found, b"" if has_bytes(kind) else 0).to_numpy(zero_copy_only=False)
    return ordering, known


def _known(code: INT64, ordering: npt.NDArray[Any], known: npt.NDArray[np.bool_]) -> Known:
    n, live = len(code), code >= 0
    zeros = np.zeros(n, np.int64)
    flags = np.where(known, 0, ORDERING_UNKNOWN).astype(np.uint8)
    return Known(live, live, Records(zeros.astype(np.uint32), zeros, zeros.astype(np.uint32), flags, ordering))


def _resolved(at: _Places, leaving: npt.NDArray[np.bool_], names: OBJECTS, spec: PullSpec) -> _Places:
    """Look up keys that would leave their location: add their ordering values, and remove locations without a row."""
    assert spec.resolve is not None
    code = at.code.copy()
    ordering, has = at.known.records.ordering.copy(), at.known.has_ordering.copy()
    rows = np.flatnonzero(leaving & ~has)
    for place in np.unique(code[rows]).tolist():  # a step a file group that keys leave
        mine = rows[code[rows] == place]
        keys = record_keys(pa.array(names[mine], pa.binary()))
        partition_path, file_id = at.places[place]
        found, values = spec.resolve(partition_path, file_id, keys)
        where = pc.index_in(keys, value_set=found)
        there = where.is_valid().to_numpy(zero_copy_only=False)
        code[mine[~there]] = -1
        taken = values.take(where.drop_null())
        known = taken.is_valid().to_numpy(zero_copy_only=False)
        has[mine[there]] = known
        empty: Any = b"" if has_bytes(spec.ordering) else 0
        ordering[mine[there]] = pc.fill_null(taken, empty).to_numpy(zero_copy_only=False)
    return _Places(code, at.places, _known(code, ordering, has), at.twice, at.others)


def _others(
    index: INT64, rows: INT64, more: npt.NDArray[np.bool_], found: pa.Table, code: INT64, places: list[tuple[str, str]]
) -> tuple[tuple[int, tuple[str, str]], ...]:
    """The locations that do not count. A loop over rows: few keys have such locations, and none in a sound table."""
    told = found.select(["partition_path", "file_id"]).take(pa.array(rows[more])).to_pylist()
    pairs = {(key, (at["partition_path"], at["file_id"])) for key, at in zip(index[more].tolist(), told, strict=True)}
    return tuple(sorted((key, place) for key, place in pairs if place != places[code[key]]))


def _partitions(batch: TagBatch, winners: Winners) -> tuple[INT64, dict[str, int]]:
    """Partition code of every winner (-1 for a delete, which has none), and the codes by name."""
    encoded = pa.array(batch.partitions[winners.row], pa.string()).dictionary_encode()
    codes: INT64 = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes, {name: i for i, name in enumerate(encoded.dictionary.to_pylist())}


def _rows(
    good: pa.Table,
    names: OBJECTS,
    winners: Winners,
    d: Decision,
    old: INT64,
    new: INT64,
    places: list[tuple[str, str]],
    spec: PullSpec,
    others: tuple[tuple[int, tuple[str, str]], ...] = (),
) -> pa.Table:
    """The rows to write. The deletes that belong to a move have a note, for the report. ``others``: see ``_Places``."""
    own = {key: places[new[key]] for key, _ in others if new[key] >= 0 and d.kept[key]}
    more = [(key, place) for key, place in others if (d.kept[key] or d.delete[key]) and own.get(key) != place]
    copies = Copies([names[key] for key, _ in more], [place for _, place in more], [], 0)
    rows = located(copies.deleted_too(tag_result(names, winners, d, old, new, places)), good, spec.ordering)
    moved = np.concatenate(
        [
            np.zeros(np.count_nonzero(d.kept), np.bool_),
            d.move[d.move | d.delete],
            np.array([d.kept[key] for key, _ in more], np.bool_),
        ]
    )
    note = pc.if_else(pa.array(moved), pa.scalar(MOVED), pa.scalar(None, pa.string()))
    return rows.set_column(rows.schema.get_field_index("note"), "note", note)


def _counts(records: int, decision: Decision) -> dict[str, int]:
    return count(records, decision, StoreMeta(), 0)
