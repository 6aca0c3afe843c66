"""The layout of a stream's index: its folders, its fixed choices, the key group of each key.

The layout is fixed in the checkpoint, and every task gets it. A key's group is the CRC-32 of the key modulo the number
of groups. Each group has a label, an int. The labels spread the groups evenly over Spark's state partitions.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from functools import cache
from typing import Literal

from tagstream.table.storage.storage import Storage

OrderingKind = Literal["none", "int64", "bytes", "tuple"]


def has_bytes(kind: OrderingKind) -> bool:
    """Whether ordering values are stored as bytes."""
    return kind in ("bytes", "tuple")


@dataclass(frozen=True)
class StateLayout:
    """Folders and fixed choices of one stream's index.

    `durable`: the checkpoint's index folder, on any storage. `local_dir`: path of this host's cache folder. The folders
    from `local_root` (by default the parent folder) down to it also belong to this project, and are made for this user
    alone. `ordering`: how ordering values are stored: "int64" order-preserving, "bytes" for strings, "tuple" for several
    fields as bytes (`state.ordering`), "none" for the position only.
    `ttl_ms`: how long a key is kept after its last record; `tombstone_ttl_ms`: how long a deleted key is kept after its
    delete, both in milliseconds; 0: forever. `snapshot_every`: number of deltas in a pointer before a snapshot replaces
    them. `lock_wait_s`: how many seconds to wait for a locked local store before another folder is used.
    """

    durable: Storage
    local_dir: str
    ordering: OrderingKind = "int64"
    global_index: bool = True
    ttl_ms: int = 0
    tombstone_ttl_ms: int = 0
    snapshot_every: int = 20
    lock_wait_s: float = 10.0
    local_root: str = ""

    @property
    def forgets(self) -> bool:
        """Whether keys are removed from the index by their age."""
        return self.ttl_ms > 0 or self.tombstone_ttl_ms > 0

    def deltas_dir(self, label: int) -> str:
        """Folder of a key group's deltas, in `durable`."""
        return f"deltas/{label}"

    def snapshots_dir(self, label: int) -> str:
        """Folder of a key group's snapshot manifests and the SST files they name, in `durable`."""
        return f"snapshots/{label}"

    def index_load_dir(self, index_load: int) -> str:
        """Folder where an index load writes one start file per key group, in `durable`."""
        return f"gen-{index_load}"

    def catch_up_dir(self, index_load: int, catch_up: int) -> str:
        """Folder where a catch-up of an index load writes one file per key group that it changes, in `durable`."""
        return f"{self.index_load_dir(index_load)}/epoch-{catch_up}"

    def group_dir(self, label: int) -> str:
        """Local folder of a key group's store."""
        return os.path.join(self.local_dir, str(label))


_MASK = 0xFFFFFFFF
_SPARK_HASH_SEED = 42


def key_group(record_key: bytes, groups: int) -> int:
    """Index of the key group of a UTF-8 record key: CRC-32 modulo `groups`, in Spark `pmod(crc32(k), groups)`."""
    return zlib.crc32(record_key) % groups


def _rotl(x: int, r: int) -> int:
    return ((x << r) | (x >> (32 - r))) & _MASK


def spark_hash_int(value: int, seed: int = _SPARK_HASH_SEED) -> int:
    """Spark's `hash(int)`: Murmur3 x86_32 of the four bytes, as a signed 32-bit number.

    Source: org.apache.spark.unsafe.hash.Murmur3_x86_32.hashInt. Spark partitions rows by pmod of it.
    """
    k = (value & _MASK) * 0xCC9E2D51 & _MASK
    k = _rotl(k, 15) * 0x1B873593 & _MASK
    h = _rotl((seed & _MASK) ^ k, 13)
    h = (h * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h ^= h >> 16
    h = h * 0x85EBCA6B & _MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >= 1 << 31 else h


def shuffle_partition(label: int, partitions: int) -> int:
    """The shuffle partition to which Spark sends the rows of an int label."""
    return spark_hash_int(label) % partitions


def balanced_labels(groups: int, partitions: int) -> tuple[int, ...]:
    """`groups` int labels, ascending, so spread that every shuffle partition gets the same number (plus or minus one).

    Labels 0..G-1 would be uneven: 16 of them on 16 partitions leave six partitions empty. ValueError for numbers below 1.
    """
    if groups < 1 or partitions < 1:
        raise ValueError(f"key groups ({groups}) and shuffle partitions ({partitions}) must be at least 1")
    want = [groups // partitions + (p < groups % partitions) for p in range(partitions)]
    found: list[int] = []
    label = 0
    while len(found) < groups:
        place = shuffle_partition(label, partitions)
        if want[place]:
            want[place] -= 1
            found.append(label)
        label += 1
    return tuple(found)


@cache
def partition_labels(partitions: int) -> tuple[int, ...]:
    """For each shuffle partition, in order, one int label that Spark's hash sends there."""
    labels = balanced_labels(partitions, partitions)
    return tuple(sorted(labels, key=lambda label: shuffle_partition(label, partitions)))
