"""Partitions with a key that is live more than once: another writer put it there without a look (SQL INSERT, bulk)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.duplicate_keys import key_hashes, repeated
from tagstream.table.services.replacing.groups import keys_of

_Hashes = npt.NDArray[np.uint64]


def doubled_partitions(table: HoodieTable, *, global_keys: bool) -> tuple[str, ...]:
    """Partition paths with a key that is there again: in the partition, or with ``global_keys`` in any.

    Keys are compared by numbers of 64 bits: 8 bytes of memory a row of a partition, with ``global_keys`` a key of the table.
    """
    timeline = table.timeline()
    none: _Hashes = np.zeros(0, np.uint64)
    distinct: dict[str, _Hashes] = {}
    found: set[str] = set()
    for partition in table.view(timeline).partitions():
        hashes = np.concatenate([none, *(key_hashes(keys) for _, keys in keys_of(table, timeline, [partition]))])
        if len(repeated(hashes)):
            found.add(partition)
        if global_keys:
            distinct[partition] = np.unique(hashes)
    again = repeated(np.concatenate([none, *distinct.values()]))
    found.update(partition for partition, hashes in distinct.items() if np.isin(hashes, again).any())
    return tuple(sorted(found))
