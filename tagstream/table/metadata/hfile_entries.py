"""The entries of an HFile's data block: all side by side where it has the usual form, one by one where it has not.

An entry is ``i32 key length, i32 value length, key, value`` and, by a property of the file, a variable-length version
number. A key is ``i16 length, row`` and 10 bytes more: no family, the latest timestamp, the type "put". Hudi 1.1 before its
release left these out; one byte of a version then follows the value, and no property tells of it.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.table.metadata.hfile_block import Block, FileRange

SCHEMA: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])
KEY_END: Final = b"\0" + struct.pack(
    ">qB", 2**63 - 1, 4
)  # what follows the row in the key of every entry that Hudi writes

_LENGTHS: Final = struct.Struct(">ii")
_I16: Final = struct.Struct(">h")
_HEAD: Final = _LENGTHS.size + _I16.size
_LATEST: Final = int.from_bytes(KEY_END[1:9], "little")
_MOST_LENGTHS: Final = 64  # different lengths of keys in a block: with more it is quicker to go through its entries

_Ints = npt.NDArray[np.int64]


def entries_of(source: FileRange, block: Block, has_versions: bool) -> pa.RecordBatch:
    """Keys and values of a data block. CorruptFileError where its lengths lead out of it."""
    found = _side_by_side(block.data, has_versions)
    return _one_by_one(source, block, has_versions) if found is None else found


def _side_by_side(data: bytes, has_versions: bool) -> pa.RecordBatch | None:
    """All entries at once; None where the block is of another form than the usual one.

    Rows end where ``KEY_END`` stands. Where an entry begins is then found by the lengths that keys have in this block. That
    every entry begins where the one before ends is checked for all: so bytes of a value that look like an end do no harm.
    """
    ends = _row_ends(data)
    starts = _starts(data, ends, has_versions)
    if starts is None:
        return None
    values = ends + len(KEY_END)
    behind = values + _i32(data, starts + 4)
    after = behind + has_versions
    if not (np.array_equal(after[:-1], starts[1:]) and after[-1] == len(data) and (behind >= values).all()):
        return None
    if has_versions and ((_bytes(data)[behind] >= 0x80) & (_bytes(data)[behind] < 0x90)).any():
        return None  # a version of several bytes
    # The bytes as one array of pieces: row, end of the key, value, what leads to the next row, and so on.
    places = np.stack([starts + _HEAD, ends, values, behind], axis=1).reshape(-1).astype(np.int32)
    pieces = pa.Array.from_buffers(pa.binary(), len(places) - 1, [None, pa.py_buffer(places), pa.py_buffer(data)])
    rows = np.arange(0, len(places), 4)
    return pa.RecordBatch.from_arrays([pieces.take(pa.array(rows)), pieces.take(pa.array(rows + 2))], schema=SCHEMA)


def _row_ends(data: bytes) -> _Ints:
    """Places of ``KEY_END``."""
    if len(data) < _HEAD + len(KEY_END):
        return np.zeros(0, np.int64)
    words = np.ndarray((len(data) - 7,), np.dtype("<u8"), buffer=data, strides=(1,))
    found = np.flatnonzero(words == _LATEST) - 1
    found = found[(found >= _HEAD) & (found + len(KEY_END) <= len(data))]
    plain = _bytes(data)
    ends: _Ints = found[(plain[found] == KEY_END[0]) & (plain[found + 9] == KEY_END[9])]
    return ends


def _starts(data: bytes, ends: _Ints, has_versions: bool) -> _Ints | None:
    """Where the entries begin whose rows have these ends; None where that does not come out."""
    if not len(ends):
        return None
    starts, at = np.full(len(ends), -1, np.int64), 0
    left = np.arange(len(ends))
    for _ in range(_MOST_LENGTHS):
        # The first one that is left begins where the one before it ends; the others whose keys are as long are known by it.
        if left[0]:
            before = starts[left[0] - 1]
            at = int(ends[left[0] - 1]) + len(KEY_END) + _LENGTHS.unpack_from(data, before)[1] + has_versions
        if not 0 <= at <= ends[left[0]] - _HEAD:
            return None
        length = _LENGTHS.unpack_from(data, at)[0]
        if length < _I16.size + len(KEY_END):
            return None
        begins = ends[left] + len(KEY_END) - length - _LENGTHS.size
        fits = begins >= 0
        fits[fits] = (_i32(data, begins[fits]) == length) & (
            _i32(data, begins[fits] + 6) & 0xFFFF == length - _I16.size - len(KEY_END)
        )
        if not fits[0] or begins[0] != at:
            return None
        starts[left[fits]] = begins[fits]
        left = left[~fits]
        if not len(left):
            return starts
    return None


def _bytes(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def _i32(data: bytes, places: _Ints) -> _Ints:
    """The 32-bit numbers at some places."""
    return np.ndarray((len(data) - 3,), np.dtype(">i4"), buffer=data, strides=(1,))[places].astype(np.int64)


def _one_by_one(source: FileRange, block: Block, has_versions: bool) -> pa.RecordBatch:
    # A loop over entries, as each says where the next one begins: for blocks with families, other timestamps or large
    # versions, which HBase may write and Hudi does not, and for broken ones, to say where they are.
    data, end = block.data, len(block.data)
    keys, values, at = [], [], 0
    while at < end:
        if at + _HEAD > end:
            raise source.corrupt(block.offset, f"{end - at} bytes at {at} of the block are no entry")
        key_length, value_length = _LENGTHS.unpack_from(data, at)
        key = at + _LENGTHS.size
        value = key + key_length
        (row,) = _I16.unpack_from(data, key)
        is_bare = key_length == _I16.size + row
        is_short = not is_bare and key_length < _I16.size + row + len(KEY_END)
        if row < 0 or value_length < 0 or is_short or value + value_length > end:
            raise source.corrupt(
                block.offset, f"at {at} of the block is no entry: lengths {key_length}, {row} and {value_length}"
            )
        keys.append(data[key + _I16.size : key + _I16.size + row])
        at = value + value_length
        values.append(data[value:at])
        if has_versions or is_bare:
            first = data[at] if at < end else 0
            at += 1 if first < 0x80 or first >= 0x90 else (0x90 if first >= 0x88 else 0x88) - first + 1
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=SCHEMA)
