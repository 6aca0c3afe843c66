"""The layout of a stream's index: its folders, its fixed choices, the key group of each key.

The layout is fixed in the checkpoint and sent to every task. A key's group is the CRC-32 of the key modulo the
number of groups. Each group has a label, an int; the labels spread the groups evenly over Spark's state
partitions.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from tagstream.table.storage.storage import Storage

OrderingKind = Literal["none", "int64", "bytes", "tuple"]


def has_bytes(kind: OrderingKind) -> bool:
    """Whether ordering values are kept as bytes."""
    return kind in ("bytes", "tuple")


@dataclass(frozen=True)
class StateLayout:
    """Folders and fixed choices of one stream's index.

    `durable` is the checkpoint's index folder, whatever store that is on; `local_dir` this host's cache folder, a path. What
    lies between `local_root` (the folder above by default) and it is this project's, too, and made for this user alone.
    `ordering`: how ordering values are kept ("int64" order-preserving, "bytes" for strings, "tuple" for several fields:
    bytes, `state.ordering`; "none" = position only).
    `ttl_ms`: how long a key is kept without a record, `tombstone_ttl_ms`: a deleted one after its delete; 0: forever.
    `snapshot_every`: deltas in a pointer before a snapshot replaces them.
    `lock_wait_s`: how long a locked local store is waited for before a fresh folder is used instead.
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
        """Whether keys leave the index by their age."""
        return self.ttl_ms > 0 or self.tombstone_ttl_ms > 0

    def deltas_dir(self, label: int) -> str:
        """Folder of a key group's deltas, in `durable`."""
        return f"deltas/{label}"

    def snapshots_dir(self, label: int) -> str:
        """Folder of a key group's snapshot manifests and the SST files they name, in `durable`."""
        return f"snapshots/{label}"

    def generation_dir(self, generation: int) -> str:
        """Folder where a bootstrap leaves one start file per key group, in `durable`."""
        return f"gen-{generation}"

    def epoch_dir(self, generation: int, epoch: int) -> str:
        """Folder where a catch-up of a generation leaves one file per key group it changes, in `durable`."""
        return f"{self.generation_dir(generation)}/epoch-{epoch}"

    def group_dir(self, label: int) -> str:
        """Local folder of a key group's store."""
        return os.path.join(self.local_dir, str(label))


_MASK = 0xFFFFFFFF
_SPARK_HASH_SEED = 42


def key_group(record_key: bytes, groups: int) -> int:
    """Index of the key group of a UTF-8 record key: CRC-32 modulo the number of groups, as `pmod(crc32(k), G)`."""
    return zlib.crc32(record_key) % groups


def key_groups(record_keys: Sequence[bytes], groups: int) -> npt.NDArray[np.int32]:
    """`key_group` of many keys."""
    sums = np.fromiter(map(zlib.crc32, record_keys), np.uint32, len(record_keys))
    return (sums % np.uint32(groups)).astype(np.int32)


def state_key_groups(skeys: Sequence[bytes | None], groups: int) -> npt.NDArray[np.int32]:
    """`key_group` of the keys that state keys stand for, which is what follows their first byte; 0 for None.

    The sum is taken of the whole state key, which needs no copy of it, and the first byte's part in it taken out: a
    CRC is linear, so that part depends on the byte and on the length only.
    """
    whole = [b"" if key is None else key for key in skeys]
    sums = np.fromiter(map(zlib.crc32, whole), np.uint32, len(whole))
    lengths = np.fromiter(map(len, whole), np.int64, len(whole))
    heads = np.frombuffer(b"".join([key[:1] or b"\0" for key in whole]), np.uint8)
    both = lengths * 256 + heads
    kinds, kind = np.unique(both, return_inverse=True)
    part = np.zeros(len(kinds), np.uint32)
    for i, value in enumerate(kinds.tolist()):
        length, head = divmod(value, 256)
        if length:
            rest = bytes(length - 1)
            part[i] = zlib.crc32(bytes([head]) + rest) ^ zlib.crc32(rest)
    return ((sums ^ part[kind]) % np.uint32(groups)).astype(np.int32)


def _rotl(x: int, r: int) -> int:
    return ((x << r) | (x >> (32 - r))) & _MASK


def spark_hash_int(value: int, seed: int = _SPARK_HASH_SEED) -> int:
    """Spark's `hash(int)`: Murmur3 x86_32 of the four bytes, as a signed 32-bit number.

    Source: org.apache.spark.unsafe.hash.Murmur3_x86_32.hashInt; Spark partitions rows by pmod of it.
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
    """Which of Spark's shuffle partitions gets the rows of an int label."""
    return spark_hash_int(label) % partitions


def balanced_labels(groups: int, partitions: int) -> tuple[int, ...]:
    """`groups` int labels, ascending, of which every shuffle partition gets the same number (give or take one).

    Labels 0..G-1 would be uneven: 16 of them on 16 partitions leave six partitions empty.
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
def standing_labels(partitions: int) -> tuple[int, ...]:
    """Of each shuffle partition, in their order, one int label that Spark's hash puts there."""
    labels = balanced_labels(partitions, partitions)
    return tuple(sorted(labels, key=lambda label: shuffle_partition(label, partitions)))
