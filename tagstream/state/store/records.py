"""A whole store gone through, piece by piece: it may be larger than a worker's memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from tagstream.state.layout import StateLayout
from tagstream.state.store import codec
from tagstream.state.store.codec import Records
from tagstream.state.store.rocks_store import RocksStore

_LOCATION = itemgetter(slice(codec.LOCATION_BYTES))
_CHUNK = 32_768  # 11 MB as Python's objects; a larger piece is not faster


def records_of(store: RocksStore, layout: StateLayout) -> Iterator[tuple[list[bytes], Records]]:
    """All keys of a store with their location records, in key order and in bounded pieces."""
    items = iter(store.items())
    while chunk := list(islice(items, _CHUNK)):
        # Two passes: `zip(*chunk)` makes an iterator a record, and takes twice as long.
        yield [key for key, _ in chunk], codec.decode([value for _, value in chunk], layout.ordering)


def locations_of(store: RocksStore) -> Iterator[npt.NDArray[np.uint32]]:
    """The location codes alone of all records, NO_LOCATION for a tombstone: half the time of `records_of`."""
    values = store.values()
    while raw := b"".join(map(_LOCATION, islice(values, _CHUNK))):
        yield np.frombuffer(raw, "<u4")
