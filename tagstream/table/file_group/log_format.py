"""Bytes of a log file: consecutive blocks, written to a new file, and Avro's numbers and values inside them.

A block (all integers big-endian)::

    "#HUDI#"            6 bytes
    i64 size            bytes after this field up to and including the last i64
    i32 version = 1
    i32 block type
    header              i32 count, count x (i32 key, i32 length, utf8)
    i64 content length
    content
    footer              i32 count = 0
    i64 total           size + 6

Zigzag numbers, length-prefixed values and decimals are read and written one by one or as whole arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.storage.storage import Storage

MAGIC = b"#HUDI#"
VERSION = 1
I32 = struct.Struct(">i")
I64 = struct.Struct(">q")
# all bytes after the size field of a block without header entries and content: version to header, lengths, footer,
# total
SMALLEST_SIZE = I32.size * 3 + I64.size + I32.size + I64.size


class BlockType(IntEnum):
    """Kinds of blocks, by their number in the file. CORRUPT is never written: a reader gives it to damaged blocks."""

    COMMAND = 0
    DELETE = 1
    CORRUPT = 2
    AVRO_DATA = 3
    HFILE_DATA = 4
    PARQUET_DATA = 5
    CDC_DATA = 6


class HeaderKey(IntEnum):
    """Keys of a block's header, by their number in the file."""

    INSTANT_TIME = 0
    TARGET_INSTANT_TIME = 1
    SCHEMA = 2
    COMMAND_BLOCK_TYPE = 3
    COMPACTED_BLOCK_TIMES = 4
    RECORD_POSITIONS = 5
    BLOCK_IDENTIFIER = 6
    IS_PARTIAL = 7
    BASE_FILE_INSTANT_TIME_OF_RECORD_POSITIONS = 8


ROLLBACK_COMMAND = "0"  # the only command: ignore the blocks of TARGET_INSTANT_TIME


def encode_block(kind: BlockType, header: dict[HeaderKey, str], content: bytes | memoryview) -> bytes:
    """One whole block. The header's entries keep the given order (in Java it is that of a hash map, and so arbitrary)."""
    entries = [I32.pack(len(header))]
    for key, value in header.items():
        text = value.encode("utf-8")
        entries += [I32.pack(key), I32.pack(len(text)), text]
    head = b"".join(entries)
    size = SMALLEST_SIZE - I32.size + len(head) + len(content)
    return b"".join(
        [
            MAGIC,
            I64.pack(size),
            I32.pack(VERSION),
            I32.pack(kind),
            head,
            I64.pack(len(content)),
            content,
            I32.pack(0),
            I64.pack(size + len(MAGIC)),
        ]
    )


def decode_header(data: bytes, offset: int) -> tuple[dict[str, str], int]:
    """(header by key name, offset after it). Unknown keys are kept under their number.

    Raises ValueError or struct.error for bytes that are not a header.
    """
    (count,) = I32.unpack_from(data, offset)
    offset += I32.size
    header: dict[str, str] = {}
    for _ in range(count):
        (key,), (length,) = I32.unpack_from(data, offset), I32.unpack_from(data, offset + I32.size)
        offset += 2 * I32.size
        if length < 0 or offset + length > len(data):
            raise ValueError(f"header entry {key} has a length of {length}")
        name = HeaderKey(key).name if key in list(HeaderKey) else str(key)
        header[name] = data[offset : offset + length].decode("utf-8")
        offset += length
    return header, offset


_LONGEST = 10  # bytes of a 64-bit number in groups of 7 bits
_Ints = npt.NDArray[np.int64]


def zigzag(value: int) -> bytes:
    """One number as an Avro int or long."""
    return varint((value << 1) ^ (value >> 63))


def varint(value: int) -> bytes:
    """A number from 0 on in groups of 7 bits: Avro uses it for zigzag numbers, protobuf for plain ones."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """(number, end) of the :func:`varint` at an offset. ValueError when it is truncated or has more than 64 bits."""
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
    """(number, end) of the :func:`zigzag` at an offset; ValueError as of :func:`read_varint`."""
    value, end = read_varint(data, at)
    return (value >> 1) ^ -(value & 1), end


def zigzags(values: npt.NDArray[np.int64]) -> pa.Array:
    """Binary array with the :func:`zigzag` of each number."""
    rest = ((values << 1) ^ (values >> 63)).view(np.uint64)
    most = max(1, -(-int(rest.max(initial=0)).bit_length() // 7))
    groups = rest[:, None] >> (np.arange(most, dtype=np.uint64) * np.uint64(7))
    lengths = np.maximum(1, (groups != 0).sum(axis=1))
    column = np.arange(most)
    data = (groups & np.uint64(0x7F)).astype(np.uint8)
    data |= np.where(column < lengths[:, None] - 1, 0x80, 0).astype(np.uint8)
    return binary_array(data[column < lengths[:, None]], lengths)


def read_zigzags(data: npt.NDArray[np.uint8], at: _Ints) -> tuple[_Ints, _Ints]:
    """(numbers that begin at some offsets, their ends). A truncated number has its end after the end of the data.

    ValueError for a number of more than 64 bits.
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
    """Strings or bytes (no nulls) with their lengths before them, as Avro has them."""
    values = values.cast(pa.binary())
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
    return pc.binary_join_element_wise(zigzags(lengths), values, b"")


def framed(values: pa.Array) -> pa.Array:
    """Bytes (no nulls) with their length before them as a 32-bit number, as the records of an Avro block have it."""
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(">i4")
    before = binary_array(lengths.view(np.uint8), np.full(len(values), I32.size, np.int64))
    return pc.binary_join_element_wise(before, values, b"")


def binary_array(data: npt.NDArray[np.uint8], lengths: npt.NDArray[np.int64]) -> pa.Array:
    """Binary array whose elements are consecutive in ``data``."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(lengths), buffers)


def slices(data: npt.NDArray[np.uint8], starts: _Ints, lengths: _Ints) -> pa.Array:
    """Binary array of the slices of ``data`` with these starts and lengths (not negative)."""
    before = np.cumsum(lengths) - lengths
    return binary_array(data[np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))], lengths)


def joined(values: pa.Array) -> bytes:
    """All elements of a binary array (no nulls), concatenated."""
    if len(values) == 0:
        return b""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    data = values.buffers()[2]
    return bytes(memoryview(data)[int(offsets[0]) : int(offsets[-1])]) if data is not None else b""


def unscaled_bytes(value: int) -> bytes:
    """A decimal of type bytes: the shortest two's complement of its unscaled number, as in Java."""
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)


def write_log_file(storage: Storage, rel: str, blocks: Iterable[bytes]) -> int:
    """Write the blocks to a file whose name nobody else uses; returns its size in bytes.

    Blocks are taken one by one, so a generator keeps one in memory. Other writers' log files are never appended to.
    """
    size = 0
    with storage.open_output(rel) as out:
        for block in blocks:
            size += out.write(block)
    return size


def rollback_block(instant: str, target: str) -> bytes:
    """Command block of the rollback ``instant``: readers ignore all earlier blocks of the instant ``target``."""
    header = {
        HeaderKey.COMMAND_BLOCK_TYPE: ROLLBACK_COMMAND,
        HeaderKey.INSTANT_TIME: instant,
        HeaderKey.TARGET_INSTANT_TIME: target,
    }
    return encode_block(BlockType.COMMAND, header, b"")
