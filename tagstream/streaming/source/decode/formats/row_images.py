"""Change records of whole rows, as Maxwell and Canal send them: the row after the change, and which of its columns changed.

A changed key is one record there; here it becomes a delete of the old key and an upsert of the new one, in this order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import mask_of, nulls_of
from tagstream.streaming.source.decode.events import Events, Mask
from tagstream.table.chunks import flat
from tagstream.table.keys.keys import KeyGenerator

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Images:
    """Row images in the order of the source. ``record``: of each the number of its message in the batch. ``old``: the key
    columns as they were, null where they did not change.
    """

    record: Ints
    rows: pa.Table
    deleted: Mask
    skipped: Mask
    reason: pa.Array
    old: pa.Table


def events_of(batch: pa.RecordBatch, images: Images, generator: KeyGenerator) -> Events:
    """The images as events; of several of one key in a message only the last counts."""
    n = len(images.record)
    good = ~images.deleted & ~images.skipped & nulls_of(images.reason)
    changed = np.zeros(n, np.bool_)
    old_rows = images.rows
    for name in generator.record_key_fields:
        was, now = flat(images.old.column(name)), flat(images.rows.column(name))
        changed |= good & mask_of(pc.and_(was.is_valid(), pc.fill_null(pc.not_equal(was, now), True)))
        i = old_rows.schema.get_field_index(name)
        old_rows = old_rows.set_column(i, old_rows.schema.field(i), pc.coalesce(was, now))
    # the delete of an old key stands before its upsert
    order = np.argsort(np.concatenate([np.flatnonzero(changed) * 2, np.arange(n) * 2 + 1]), kind="stable")
    take = np.concatenate([np.flatnonzero(changed) + n, np.arange(n)])[order]
    of_image = np.where(take >= n, take - n, take)
    rows = pa.concat_tables([images.rows, old_rows]).take(pa.array(take))
    deleted = images.deleted[of_image] | (take >= n)
    skipped, reason = images.skipped[of_image], images.reason.take(pa.array(of_image))
    record = images.record[of_image]
    last = _last_of_key(generator.record_keys(rows), record, skipped | ~nulls_of(reason))
    if not last.all():
        keep = pa.array(last)
        rows, reason = rows.filter(keep), reason.filter(keep)
        deleted, skipped, record = deleted[last], skipped[last], record[last]
    events = pa.RecordBatch.from_arrays([c.take(pa.array(record)) for c in batch.columns], names=batch.schema.names)
    return Events(events, rows, reason, deleted, deleted, skipped)


def _last_of_key(keys: pa.Array, record: Ints, aside: Mask) -> Mask:
    """Images that no later one of the same message and key follows; and all that are of no key."""
    n = len(record)
    if n == len(np.unique(record)):
        return np.ones(n, np.bool_)
    codes = pc.fill_null(pc.dictionary_encode(keys).indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    both = record * (n + 1) + codes
    last = np.zeros(n, np.bool_)
    _, first_from_end = np.unique(both[::-1], return_index=True)
    last[n - 1 - first_from_end] = True
    last |= aside | (codes < 0)
    return last
