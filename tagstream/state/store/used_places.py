"""Which places of a key group's dictionary still have records, found in one reading of the store.

The store notes when it was last looked through, in an entry that earlier versions pass over:

    NUL "swept" -> {"format":1,"batch":batch,"epoch":epoch,"kept":places left then,"next_code":first free code then}
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from tagstream.state.store.copies import all_copies
from tagstream.state.store.dictionary import all_codes, own_keys
from tagstream.state.store.rocks_store import RocksStore

NOTE_KEY = b"\x00swept"
_FORMAT = 1


@dataclass(frozen=True)
class SweepNote:
    """The last look for unused places: in which batch and epoch, how many places it left, the first free code then."""

    batch: int
    epoch: int
    kept: int
    next_code: int

    def entry(self) -> tuple[bytes, bytes]:
        """The store's entry."""
        doc = {"format": _FORMAT, **asdict(self)}
        return NOTE_KEY, json.dumps(doc, separators=(",", ":"), sort_keys=True).encode()


def last_sweep(store: RocksStore) -> SweepNote | None:
    """The note in a store; None where there is none, or one of another version: the look is then due."""
    data = store.get([NOTE_KEY])[0]
    if data is None:
        return None
    doc = json.loads(data)
    return SweepNote(**doc) if doc.pop("format", None) == _FORMAT else None


class UsedPlaces:
    """The places in a store's dictionary, each used or not: none is at first, but for other places of keys."""

    def __init__(self, store: RocksStore) -> None:
        self._codes, self._places = all_codes(store)
        self._used = np.zeros(len(self._codes), np.bool_)
        for _, codes in all_copies(store):  # of keys that no sound table has
            self.use(np.array(codes, np.uint32))

    def __len__(self) -> int:
        return len(self._codes)

    def use(self, codes: npt.NDArray[np.uint32]) -> None:
        """Location codes that records have; NO_LOCATION and codes of places that are not in the store count for nothing."""
        if len(self._codes):
            at = np.minimum(np.searchsorted(self._codes, codes), len(self._codes) - 1)
            self._used[at[self._codes[at] == codes]] = True

    def use_all(self, pieces: Iterable[npt.NDArray[np.uint32]]) -> None:
        """`use`, of many pieces."""
        for codes in pieces:
            self.use(codes)

    def unused(self) -> tuple[int, list[bytes]]:
        """(places that nobody uses, the store's entries of them: keys, ascending)."""
        gone = np.flatnonzero(~self._used)
        return len(gone), own_keys(self._codes[gone], [self._places[i] for i in gone.tolist()])
