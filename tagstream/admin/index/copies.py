"""Other places of keys (``state/store/copies.py``), carried from one index into another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from tagstream.admin.index.entries import key_groups_of
from tagstream.state.store.copies import all_copies, copies_entry
from tagstream.state.store.dictionary import Place, intern, places_of
from tagstream.state.store.rocks_store import RocksStore


@dataclass
class CarriedCopies:
    """The keys of an old index that are in several places of the table, with the places that it does not keep."""

    found: dict[bytes, list[Place]] = field(default_factory=dict)

    def add(self, store: RocksStore, label: int) -> None:
        """Take those of a key group."""
        for skey, codes in all_copies(store):
            self.found[skey] = places_of(np.array(codes, np.uint32), store.get, label)

    def of_group(self, group: int, groups: int) -> dict[bytes, list[Place]]:
        """Those of one of the new key groups."""
        if not self.found:
            return {}
        there = key_groups_of(pa.array(list(self.found), pa.binary()), groups).tolist()
        return {skey: places for at, (skey, places) in zip(there, self.found.items(), strict=True) if at == group}


def dictionary(used: Iterable[Place], copies: Mapping[bytes, list[Place]]) -> tuple[list[tuple[bytes, bytes]], int]:
    """(entries of a new store, next free code): ``used`` are its records' places in the order of their codes."""
    own = list(used)
    more = sorted({place for places in copies.values() for place in places} - {*own})
    codes, entries, next_code = intern([*own, *more], lambda names: [None] * len(names), 0)
    by_place = dict(zip([*own, *more], codes, strict=True))
    entries += [copies_entry(skey, (by_place[place] for place in places)) for skey, places in copies.items()]
    return entries, next_code
