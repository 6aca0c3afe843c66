"""Rows of a key that another writer has put into the table again: what the stream does to the key reaches them, too.

A new row of the key takes the place of all of them, and a delete deletes all, whatever their ordering values are: the index
decides by that of the row it knows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from tagstream.state.store.copies import copies_entry, copies_of
from tagstream.state.store.dictionary import Place, places_of
from tagstream.state.store.rocks_store import RocksStore
from tagstream.state.store.store_meta import StoreMeta
from tagstream.state.tag.decide import Decision
from tagstream.state.tag_batch import INT64, OBJECTS, OP_DELETE, TagResult


@dataclass(frozen=True)
class Copies:
    """`skeys` and `places`: rows to delete; `entries`: of the keys that have no other place any more, `keys` of them."""

    skeys: list[bytes]
    places: list[Place]
    entries: list[tuple[bytes, bytes]]
    keys: int

    def counted(self, meta: StoreMeta) -> StoreMeta:
        """The counters after the batch."""
        return replace(meta, copies=meta.copies - self.keys) if self.keys else meta

    def deleted_too(self, result: TagResult) -> TagResult:
        """The result with a delete, which needs no ordering value, for each of the rows."""
        n = len(self.places)
        if not n:
            return result
        nothing = np.zeros(n, result.ordering.dtype) if result.ordering.dtype != object else _objects([b""] * n)
        return replace(
            result,
            take=np.concatenate([result.take, np.full(n, -1, np.int64)]),
            skey=np.concatenate([result.skey, _objects(self.skeys)]),
            partition=np.concatenate([result.partition, _objects([partition for partition, _ in self.places])]),
            file_id=np.concatenate([result.file_id, _objects([file_id for _, file_id in self.places])]),
            op=np.concatenate([result.op, np.full(n, OP_DELETE, np.int8)]),
            ordering=np.concatenate([result.ordering, nothing]),
            has_ordering=np.concatenate([result.has_ordering, np.zeros(n, np.bool_)]),
        )


def find_copies(
    store: RocksStore,
    label: int,
    meta: StoreMeta,
    names: OBJECTS,
    decision: Decision,
    codes: npt.NDArray[np.uint32],
    new: INT64,
) -> Copies:
    """Other places of the keys that the batch writes or deletes, but for those that it writes them to.

    `codes`: of the places that `new` counts; -1 in that: the key has none any more.
    """
    if not meta.copies:
        return Copies([], [], [], 0)
    touched = np.flatnonzero(decision.kept | decision.buried)
    others = copies_of([names[i] for i in touched.tolist()], store.get)
    skeys, wanted, entries = list[bytes](), list[int](), list[tuple[bytes, bytes]]()
    # A row loop: over keys that no sound table has.
    for i, found in zip(touched.tolist(), others, strict=True):
        if not found:
            continue
        entries.append(copies_entry(names[i], ()))
        own = int(codes[new[i]]) if new[i] >= 0 else None
        skeys += [names[i] for code in found if code != own]
        wanted += [code for code in found if code != own]
    if not entries:
        return Copies([], [], [], 0)
    distinct, at = np.unique(np.array(wanted, np.uint32), return_inverse=True)
    places = places_of(distinct, store.get, label)
    return Copies(skeys, [places[i] for i in at.tolist()], entries, len(entries))


def _objects(values: list[bytes] | list[str]) -> OBJECTS:
    out = np.empty(len(values), object)
    out[:] = values
    return out
