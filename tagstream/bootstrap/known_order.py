"""What only an index knows, and a load from the table takes from the index that was used before.

- The orders of deleted keys. A table has them in its logs alone, and only until these are compacted. Without them an event
  that is older than the delete brings the row back.
- The orders of rows, where the table has no ordering field: a change stream orders events by their position in the source's
  log (Debezium). Without them a TRUNCATE that is read late deletes rows that are newer than it.

So each key group asks the group of the same label of the former index, as that was when the table held what it holds now
(`state.durable.heads.heads_as_of`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tagstream.state.durable.bulk_load import KeyRun
from tagstream.state.durable.heads import IndexHeads
from tagstream.state.durable.view import open_view
from tagstream.state.layout import StateLayout, has_bytes
from tagstream.state.store import codec
from tagstream.state.store.codec import ORDERING_UNKNOWN, TOMBSTONE
from tagstream.state.store.key_order import sort_keys
from tagstream.state.store.records import records_of
from tagstream.state.store.rocks_store import RocksStore
from tagstream.state.store.scratch import scratch_folder


def with_known_order(runs: Iterator[KeyRun], former: IndexHeads, label: int) -> Iterator[KeyRun]:
    """The rows of a key group in their key ranges, with the ordering values that the former index knows, and its deleted
    keys (the newest TRUNCATE among them). All have place 0, which must be there. IndexDamagedError when a file of the
    former index is missing or damaged."""
    with scratch_folder("tagstream-former-") as scratch:
        layout = replace(former.layout, local_dir=scratch, local_root="", lock_wait_s=0.0)
        with open_view(layout, label, former.pointers[label], former.epoch) as store:
            yield from _merged((_filled(run, layout, store) for run in runs), _deleted(layout, store))


def _deleted(layout: StateLayout, store: RocksStore) -> Iterator[KeyRun]:
    """The deleted keys whose order is known, in key order and in bounded pieces."""
    for keys, records in records_of(store, layout):
        at = np.flatnonzero((records.flags & (TOMBSTONE | ORDERING_UNKNOWN)) == TOMBSTONE)
        if len(at):
            skeys = np.empty(len(at), object)
            skeys[:] = [keys[i] for i in at.tolist()]
            yield KeyRun(skeys, np.zeros(len(at), np.int32), records.ordering[at], records.flags[at])


def _merged(runs: Iterator[KeyRun], deleted: Iterator[KeyRun]) -> Iterator[KeyRun]:
    """Rows and deletes in common key ranges, none greater than a run and a piece. A key that is in both is there twice:
    `bulk_load` takes a row before a delete, and the later one of two deletes."""
    piece = next(deleted, None)
    for run in runs:
        if piece is None:
            yield run
            continue
        rest = _some(run, sort_keys(run.skeys)[0])
        while piece is not None and len(rest.skeys):
            cut = bisect_right(rest.skeys, piece.skeys[-1])
            end = len(piece.skeys) if cut < len(rest.skeys) else bisect_right(piece.skeys, rest.skeys[-1])
            yield _joined(_some(rest, slice(0, cut)), _some(piece, slice(0, end)))
            rest = _some(rest, slice(cut, None))
            piece = _some(piece, slice(end, None)) if end < len(piece.skeys) else next(deleted, None)
        if len(rest.skeys):
            yield rest
    while piece is not None:
        yield piece
        piece = next(deleted, None)


def _some(run: KeyRun, which: Any) -> KeyRun:
    return KeyRun(run.skeys[which], run.place[which], run.ordering[which], run.flags[which])


def _joined(rows: KeyRun, deletes: KeyRun) -> KeyRun:
    pairs = zip(_columns(rows), _columns(deletes), strict=True)
    return KeyRun(*(np.concatenate(pair) for pair in pairs))


def _columns(run: KeyRun) -> tuple[Any, ...]:
    return run.skeys, run.place, run.ordering, run.flags


def _filled(run: KeyRun, layout: StateLayout, store: RocksStore) -> KeyRun:
    """A run with the orders of rows that the table does not tell."""
    unknown = np.flatnonzero((run.flags & ORDERING_UNKNOWN) != 0)
    if not len(unknown):
        return run
    kind = layout.ordering
    found, records = codec.decode_some(store.get(run.skeys[unknown].tolist()), kind)
    # Of a row that the former index knows as deleted, and that is back, it knows the delete's order alone.
    known = found & ((records.flags & (ORDERING_UNKNOWN | TOMBSTONE)) == 0)
    ordering = run.ordering.astype(object if has_bytes(kind) else np.int64)
    flags = run.flags.copy()
    at = unknown[known]
    ordering[at] = records.ordering[known]
    flags[at] &= np.uint8(~ORDERING_UNKNOWN & 0xFF)
    return KeyRun(run.skeys, run.place, ordering, flags)
