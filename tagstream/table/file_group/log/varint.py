"""Avro's bytes of zigzag numbers, length-prefixed values and decimals; those of whole arrays at once, written and read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_LONGEST = 10  # bytes of a 64 bit number in groups of 7
_Ints = npt.NDArray[np.int64]


def zigzag(value: int) -> bytes:
    """One number."""
    return varint((value << 1) ^ (value >> 63))


def varint(value: int) -> bytes:
    """A number from 0 on in groups of 7 bits, as Avro has zigzag numbers and protobuf plain ones."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number of :func:`varint` at a place, and where it ends. ValueError: it is cut, or has more than 64 bits."""
    value = 0
    for shift in range(0, 7 * _LONGEST, 7):
        if at >= len(data):
            raise ValueError("it ends within a number")
        byte = data[at]
        value, at = value | (byte & 0x7F) << shift, at + 1
        if byte < 0x80:
            return value, at
    raise ValueError("a number is longer than 64 bits")


def read_zigzag(data: bytes, at: int) -> tuple[int, int]:
    """The number of :func:`zigzag` at a place, and where it ends; ValueError as of :func:`read_varint`."""
    value, end = read_varint(data, at)
    return (value >> 1) ^ -(value & 1), end


def zigzags(values: npt.NDArray[np.int64]) -> pa.Array:
    """Binary array with one number per element."""
    rest = ((values << 1) ^ (values >> 63)).view(np.uint64)
    groups = (rest[:, None] >> (np.arange(_LONGEST, dtype=np.uint64) * np.uint64(7))).astype(np.uint64)
    lengths = np.maximum(1, (groups != 0).sum(axis=1))
    column = np.arange(_LONGEST)
    data = (groups & np.uint64(0x7F)).astype(np.uint8)
    data |= np.where(column < lengths[:, None] - 1, 0x80, 0).astype(np.uint8)
    return binary_array(data[column < lengths[:, None]], lengths)


def read_zigzags(data: npt.NDArray[np.uint8], at: _Ints) -> tuple[_Ints, _Ints]:
    """The numbers that begin at some places, and where they end; one that is cut has its end behind the data's.

    ValueError for one of more than 64 bits.
    """
    value, ends = np.zeros(len(at), np.uint64), at.copy()
    open_ = np.ones(len(at), np.bool_)
    for group in range(_LONGEST):
        byte = data[np.minimum(at + group, len(data) - 1)]
        value |= np.where(open_, byte & 0x7F, 0).astype(np.uint64) << np.uint64(7 * group)
        ends += open_
        open_ = open_ & (byte >= 0x80)
        if not open_.any():
            return (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64), ends
    raise ValueError("a number is longer than 64 bits")


def prefixed(values: pa.Array) -> pa.Array:
    """Strings or bytes (no nulls) behind their lengths."""
    values = values.cast(pa.binary())
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    return pc.binary_join_element_wise(zigzags(lengths), values, b"")


def binary_array(data: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]) -> pa.Array:
    """Binary array whose elements lie in ``data`` one behind the other."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def slices(data: npt.NDArray[np.uint8], starts: _Ints, lengths: _Ints) -> pa.Array:
    """Binary array whose elements begin at some places of ``data`` and have these lengths, none below 0."""
    before = np.cumsum(lengths) - lengths
    return binary_array(data[np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))], lengths)


def joined(values: pa.Array) -> bytes:
    """All elements of a binary array (no nulls) in one."""
    if len(values) == 0:
        return b""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    data = values.buffers()[2]
    return bytes(memoryview(data)[int(offsets[0]) : int(offsets[-1])]) if data is not None else b""


def unscaled_bytes(value: int) -> bytes:
    """A decimal of the type bytes: the fewest of its unscaled number, in two's complement, as Java gives them."""
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)
