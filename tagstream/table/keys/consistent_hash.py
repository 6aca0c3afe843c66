"""The ring of the consistent hashing engine of Hudi's bucket index (``ConsistentBucketIdentifier`` of 1.2.0).

The values of the hash fields, joined without a separator, are hashed with xxHash32 (seed 0) to 31 bits. A node has the
keys from behind its former node up to its own value. Keys above the last value belong to the first node.

The first nodes of a partition are computed from its path and the number of buckets, so two writers make the same ones.
A resize replaces nodes: a split makes two of one, a merge deletes all but the last of some neighbours. Every new node
has a new file group.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import md5
from itertools import pairwise
from typing import Final
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.keys.hash_fields import HashFields

HASH_MASK: Final = 0x7FFFFFFF
_P1, _P2, _P3, _P4, _P5 = (
    np.uint32(p) for p in (2654435761, 2246822519, 3266489917, 668265263, 374761393)
)  # fmt: skip
_UInt32s = npt.NDArray[np.uint32]
_Int64s = npt.NDArray[np.int64]
_STRIPE = 16


class NodeTag(StrEnum):
    """``NORMAL``: a node of a ring. ``REPLACE`` and ``DELETE``: what a resize does at a value of the ring."""

    NORMAL = "NORMAL"
    REPLACE = "REPLACE"
    DELETE = "DELETE"


@dataclass(frozen=True)
class HashingNode:
    """``value``: greatest hash of its keys, 0 to 2^31-1. ``file_id_prefix``: None for a node that is deleted."""

    value: int
    file_id_prefix: str | None
    tag: NodeTag = NodeTag.NORMAL

    @property
    def file_id(self) -> str:
        """The id of its one file group."""
        return f"{self.file_id_prefix}-0"


@dataclass(frozen=True)
class HashRing:
    """The nodes of a partition with distinct values, in the order of these; at least one."""

    nodes: tuple[HashingNode, ...]

    @staticmethod
    def of(nodes: Iterable[HashingNode], children: Iterable[HashingNode] = ()) -> HashRing:
        """The ring of some nodes after a resize; ValueError for children that it cannot have, or without any node."""
        by_value = {node.value: node for node in nodes}
        for child in children:
            if child.tag is NodeTag.REPLACE:
                by_value[child.value] = HashingNode(child.value, child.file_id_prefix)
            elif child.tag is NodeTag.DELETE and child.value in by_value:
                del by_value[child.value]
            else:
                raise ValueError(f"a resize cannot have the node {child.value} with tag {child.tag}")
        if not by_value:
            raise ValueError("a ring has at least one node")
        return HashRing(tuple(by_value[value] for value in sorted(by_value)))

    @staticmethod
    def first(partition: str, buckets: int) -> HashRing:
        """The first nodes of a partition, all of about the same range.

        Their file ids are UUIDs of MD5 over the bounds of the range (8 bytes each, big-endian) and the partition path.
        """
        step, start = (HASH_MASK + buckets - 1) // buckets, 0
        nodes = []
        for number in range(1, buckets + 1):
            end = min(step * number, HASH_MASK)
            name = start.to_bytes(8, "big") + end.to_bytes(8, "big") + partition.encode()
            digest = bytearray(md5(name, usedforsecurity=False).digest())
            digest[6], digest[8] = digest[6] & 0x0F | 0x30, digest[8] & 0x3F | 0x80
            nodes.append(HashingNode(end, str(UUID(bytes=bytes(digest)))))
            start = end
        return HashRing.of(nodes)

    @cached_property
    def _values(self) -> npt.NDArray[np.int64]:
        return np.array([node.value for node in self.nodes], np.int64)

    @cached_property
    def by_file_id(self) -> dict[str, int]:
        """The number of each node by the id of its file group."""
        return {node.file_id: number for number, node in enumerate(self.nodes)}

    def positions(self, hashes: npt.NDArray[np.int32]) -> _Int64s:
        """The number of the node of every hash: the first with a value that is not less, else the first node."""
        found: _Int64s = np.searchsorted(self._values, hashes, side="left") % len(self.nodes)
        return found

    def former(self, number: int) -> int:
        """The number of the node before a node, around the ring."""
        return (number - 1) % len(self.nodes)

    def split(self, number: int, prefixes: Sequence[str]) -> tuple[HashingNode, HashingNode] | None:
        """The two nodes that replace a node, each with half of its range; None where the range cannot be halved.

        ``prefixes``: two new prefixes of file ids.
        """
        node, former = self.nodes[number], self.nodes[self.former(number)]
        around = 0 if former.value < node.value else HASH_MASK + 1
        middle = ((former.value + node.value + around) >> 1) & HASH_MASK
        if middle in (former.value, node.value):
            return None
        return (
            HashingNode(middle, prefixes[0], NodeTag.REPLACE),
            HashingNode(node.value, prefixes[1], NodeTag.REPLACE),
        )

    def merge(self, numbers: Sequence[int], prefix: str) -> tuple[HashingNode, ...]:
        """The changes that merge neighbours, given in the order of the ring: all but the last one are deleted.

        ``prefix``: a new prefix of file ids. ValueError for fewer than two nodes, or nodes that are not neighbours.
        """
        pairs = pairwise(numbers)
        if len(numbers) < 2 or len(set(numbers)) < len(numbers) or any(self.former(b) != a for a, b in pairs):
            raise ValueError(f"nodes {list(numbers)} are not neighbours in a ring of {len(self.nodes)}")
        gone = (HashingNode(self.nodes[number].value, None, NodeTag.DELETE) for number in numbers[:-1])
        return (*gone, HashingNode(self.nodes[numbers[-1]].value, prefix, NodeTag.REPLACE))


def hashes_of(keys: pa.Array, fields: HashFields) -> npt.NDArray[np.int32]:
    """The 31-bit hash of every record key (strings without nulls). A null value counts as Java's text ``null``."""
    out = np.zeros(len(keys), np.uint32)
    for rows, columns in fields.values(keys):
        if not columns:
            texts = pa.repeat(pa.scalar("", pa.string()), len(rows))
        elif len(columns) == 1:
            texts = pc.fill_null(columns[0], "null")
        else:
            texts = pc.binary_join_element_wise(*(pc.fill_null(each, "null") for each in columns), "")
        out[rows] = xxhash32(texts)
    return (out & np.uint32(HASH_MASK)).view(np.int32)


def xxhash32(texts: pa.Array) -> _UInt32s:
    """xxHash32 with seed 0 of the UTF-8 bytes of every string (no nulls), for all strings at once.

    A step for every 16 bytes of the longest string, over the strings that are that long.
    """
    texts = texts.cast(pa.string())
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    body = texts.buffers()[2]
    data = np.frombuffer(body, np.uint8) if body is not None else np.zeros(0, np.uint8)
    # Four bytes from every byte on, as one little-endian number. Three more bytes make the last ones readable.
    data = np.concatenate([data, np.zeros(3, np.uint8)])
    words = np.ndarray((max(0, len(data) - 3),), "<u4", data, strides=(1,))
    at, sizes = offsets[:-1].copy(), np.diff(offsets)
    with np.errstate(over="ignore"):
        out = _stripes(words, at, sizes) + sizes.astype(np.uint32)
        rest = sizes - (sizes // _STRIPE) * _STRIPE
        at += (sizes // _STRIPE) * _STRIPE
        for _ in range(3):
            out, at, rest = _words(out, words, at, rest)
        for _ in range(3):
            out, at, rest = _bytes(out, data, at, rest)
        out = (out ^ (out >> np.uint32(15))) * _P2
        out = (out ^ (out >> np.uint32(13))) * _P3
        mixed: _UInt32s = out ^ (out >> np.uint32(16))
    return mixed


def _stripes(words: _UInt32s, at: _Int64s, sizes: _Int64s) -> _UInt32s:
    """The state after all whole stripes of 16 bytes."""
    out = np.full(len(at), _P5, np.uint32)
    long = np.flatnonzero(sizes >= _STRIPE)
    if not len(long):
        return out
    lanes = np.empty((4, len(long)), np.uint32)
    lanes[0], lanes[1], lanes[2], lanes[3] = _P1 + _P2, _P2, 0, np.uint32(0) - _P1
    counts, begins = sizes[long] // _STRIPE, at[long]
    for stripe in range(int(counts.max())):
        mine = np.flatnonzero(counts > stripe)
        for lane in range(4):
            word = words[begins[mine] + stripe * _STRIPE + lane * 4]
            lanes[lane, mine] = _rotated(lanes[lane, mine] + word * _P2, 13) * _P1
    turns = (1, 7, 12, 18)
    mixed = [_rotated(lanes[lane], turn) for lane, turn in enumerate(turns)]
    out[long] = mixed[0] + mixed[1] + mixed[2] + mixed[3]
    return out


def _words(out: _UInt32s, words: _UInt32s, at: _Int64s, rest: _Int64s) -> tuple[_UInt32s, _Int64s, _Int64s]:
    mine = np.flatnonzero(rest >= 4)
    out[mine] = _rotated(out[mine] + words[at[mine]] * _P3, 17) * _P4
    at[mine] += 4
    rest[mine] -= 4
    return out, at, rest


def _bytes(out: _UInt32s, data: npt.NDArray[np.uint8], at: _Int64s, rest: _Int64s) -> tuple[_UInt32s, _Int64s, _Int64s]:
    mine = np.flatnonzero(rest >= 1)
    out[mine] = _rotated(out[mine] + data[at[mine]].astype(np.uint32) * _P5, 11) * _P1
    at[mine] += 1
    rest[mine] -= 1
    return out, at, rest


def _rotated(values: _UInt32s, bits: int) -> _UInt32s:
    out: _UInt32s = (values << np.uint32(bits)) | (values >> np.uint32(32 - bits))
    return out
