"""CRC-32 of many keys at once, which decides their key groups.

Short keys are processed by columns: the first byte of all keys, then the second one. This costs 3 ns per byte. A call of
zlib per key costs 130 ns and makes a Python object of the key. Long keys take a call each.
"""

from __future__ import annotations

import zlib
from itertools import repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_BLOCK = 16_384  # keys whose bytes and sums fit the processor's cache
_MOST_BYTES = 96
_ONES = np.uint32(0xFFFFFFFF)
_EIGHT = np.uint32(8)
_LOW = np.uint32(0xFF)


def _crc_table() -> npt.NDArray[np.uint32]:
    sums = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        sums = np.where(sums & 1, (sums >> np.uint32(1)) ^ np.uint32(0xEDB88320), sums >> np.uint32(1))
    return sums.astype(np.uint32)


_CRC_TABLE = _crc_table()


def crc_of_keys(keys: pa.Array, start: int = 0, skip: int = 0) -> npt.NDArray[np.uint32]:
    """`zlib.crc32(key[skip:], start)` of every key of a string or binary array without nulls."""
    if not (pa.types.is_string(keys.type) or pa.types.is_binary(keys.type)):
        raise TypeError(f"keys are {keys.type}, not strings or binary")
    n = len(keys)
    sums = np.full(n, np.uint32(start) ^ _ONES, np.uint32)
    if n == 0:
        return sums
    _, offset_buffer, data_buffer = keys.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[keys.offset : keys.offset + n + 1]
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    begins, lengths = offsets[:-1] + np.int32(skip), np.maximum(np.diff(offsets) - skip, 0)
    shortest, longest = int(lengths.min()), int(lengths.max())
    if longest > _MOST_BYTES:
        each = keys.cast(pa.binary()).to_pylist()
        found = map(zlib.crc32, [key[skip:] for key in each] if skip else each, repeat(start))
        return np.fromiter(found, np.uint32, n)
    for low in range(0, n, _BLOCK):
        part = sums[low : low + _BLOCK]
        begin, length = begins[low : low + len(part)], lengths[low : low + len(part)]
        for at in range(longest):
            if at < shortest:
                part[:] = _CRC_TABLE[(part ^ data[begin + at]) & _LOW] ^ (part >> _EIGHT)
            else:
                more = np.flatnonzero(length > at)
                old = part[more]
                part[more] = _CRC_TABLE[(old ^ data[begin[more] + at]) & _LOW] ^ (old >> _EIGHT)
    return sums ^ _ONES


def state_key_groups(skeys: pa.Array, groups: int) -> npt.NDArray[np.int32]:
    """The key group of each state key: that of everything after its first byte; 0 for null.

    ``skeys``: binary. See ``state.layout.key_group``.
    """
    whole = skeys.fill_null(b"") if skeys.null_count else skeys
    return (crc_of_keys(whole, skip=1) % np.uint32(groups)).astype(np.int32)
