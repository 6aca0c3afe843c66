"""The order of rows that only an index knows: a load from the table takes it from the index that was used before.

Where the table has no ordering field, a change stream orders events by their position in the source's log (Debezium). An
index that is loaded from the table would forget the order of all rows, and a TRUNCATE that is read late would delete rows
that are newer than it. So each key group asks the group of the same label of the former index, as that was when the table
held what it holds now (`state.durable.heads.heads_as_of`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tagstream.state.durable.bulk_load import KeyRun
from tagstream.state.durable.heads import IndexHeads
from tagstream.state.durable.view import open_view
from tagstream.state.layout import StateLayout, has_bytes
from tagstream.state.store import codec
from tagstream.state.store.codec import ORDERING_UNKNOWN, TOMBSTONE
from tagstream.state.store.rocks_store import RocksStore
from tagstream.state.store.scratch import scratch_folder
from tagstream.state.tag.emptied import emptied_key, emptied_record


def with_known_order(runs: Iterator[KeyRun], former: IndexHeads, label: int) -> Iterator[KeyRun]:
    """The rows of a key group in their key ranges, with the ordering values that the former index knows; first the newest
    TRUNCATE that it knows of. IndexDamagedError when a file of the former index is missing or damaged."""
    with scratch_folder("tagstream-former-") as scratch:
        layout = replace(former.layout, local_dir=scratch, local_root="", lock_wait_s=0.0)
        with open_view(layout, label, former.pointers[label], former.epoch) as store:
            yield from _emptied(layout, store)
            for run in runs:
                yield _filled(run, layout, store)


def _emptied(layout: StateLayout, store: RocksStore) -> Iterator[KeyRun]:
    """The entry of no record, which is before all others in key order."""
    record = emptied_record(store, layout)
    if record is not None:
        skeys = np.array([emptied_key(layout)], object)
        yield KeyRun(skeys, np.zeros(1, np.int32), record.ordering, np.array([TOMBSTONE], np.uint8))


def _filled(run: KeyRun, layout: StateLayout, store: RocksStore) -> KeyRun:
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
