"""MurmurHash2 (32 bit) of many keys at once, as Hadoop's bloom filters use it.

Two peculiarities of the Java code must be kept: the 1-3 bytes behind the last whole word are sign-extended, and they
are taken from the end of the key (its last byte is the lowest).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_M = np.uint32(0x5BD1E995)
_UInt32s = npt.NDArray[np.uint32]
_Int64s = npt.NDArray[np.int64]


class KeyHasher:
    """Keys prepared for hashing under many seeds: what does not depend on the seed is done once."""

    def __init__(self, keys: pa.Array) -> None:
        """``keys``: string or binary array without nulls; hashed as UTF-8."""
        data, starts, lengths = _utf8(keys)
        # Longest keys first: the keys that still have a word w are then a prefix, whatever the mix of lengths.
        self.order: _Int64s = np.argsort(-lengths, kind="stable")
        starts, lengths = starts[self.order], lengths[self.order]
        self._lengths: _UInt32s = lengths.astype(np.uint32)
        self._words = list(_mixed_words(data, starts, lengths))
        self._tail, self._tail_factor = _tails(data, starts, lengths)

    def hash(self, seeds: _UInt32s) -> _UInt32s:
        """Hash of every key in ``order``, each under its own seed."""
        h = seeds ^ self._lengths
        for words in self._words:
            head = h[: len(words)]
            head *= _M
            head ^= words
        h ^= self._tail
        h *= self._tail_factor
        h ^= h >> np.uint32(13)
        h *= _M
        h ^= h >> np.uint32(15)
        return h


def murmur2(keys: pa.Array, seed: int) -> npt.NDArray[np.int32]:
    """Signed hashes of the keys, in their own order, under one seed."""
    hasher = KeyHasher(keys)
    hashes = np.empty(len(keys), np.int32)
    seeds = np.full(len(keys), seed & 0xFFFFFFFF, np.uint32)
    hashes[hasher.order] = hasher.hash(seeds).view(np.int32)
    return hashes


def _utf8(keys: pa.Array) -> tuple[npt.NDArray[np.uint8], _Int64s, _Int64s]:
    """(bytes with padding at the end, start and length of every key)."""
    if keys.null_count:
        raise ValueError("a null key cannot be hashed")
    keys = keys.cast(pa.large_binary())
    offsets = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + len(keys) + 1]
    if len(offsets) == 0:
        offsets = np.zeros(1, np.int64)
    buffer = keys.buffers()[2]
    body = np.frombuffer(buffer, np.uint8)[offsets[0] : offsets[-1]] if buffer else np.empty(0, np.uint8)
    data = np.concatenate([body, np.zeros(4, np.uint8)])
    return data, offsets[:-1] - offsets[0], np.diff(offsets)


def _mixed_words(data: npt.NDArray[np.uint8], starts: _Int64s, lengths: _Int64s) -> Iterator[_UInt32s]:
    """Word w of every key that has one, mixed, for w = 0, 1, ... (lengths must descend)."""
    at_any_byte = np.ndarray((len(data) - 3,), np.dtype("<u4"), buffer=data, strides=(1,))
    counts = lengths >> 2
    for word in range(int(counts[0]) if len(counts) else 0):
        active = int(np.searchsorted(-counts, -word, side="left"))
        k: _UInt32s = at_any_byte[starts[:active] + 4 * word].astype(np.uint32)
        k *= _M
        k ^= k >> np.uint32(24)
        k *= _M
        yield k


def _tails(data: npt.NDArray[np.uint8], starts: _Int64s, lengths: _Int64s) -> tuple[_UInt32s, _UInt32s]:
    """(xor value, multiplier) of the bytes behind the last whole word; 0 and 1 where there are none."""
    left = lengths & 3
    signed = data.view(np.int8)
    ends = starts + lengths
    tail = np.zeros(len(lengths), np.int32)
    for back in (1, 2, 3):
        rows = left >= back
        tail[rows] ^= signed[ends[rows] - back].astype(np.int32) << np.int32(8 * (back - 1))
    return tail.view(np.uint32), np.where(left > 0, _M, np.uint32(1)).astype(np.uint32)
