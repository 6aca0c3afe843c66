"""Blocks of an HFile: their header, their checksums, and the entries of a data block.

A block (integers big-endian)::

    magic                        8 bytes
    i32 size                     bytes after this header, including checksums
    i32 uncompressed size
    i64 offset of the previous block of its kind
    u8  checksum type            0 none, 1 CRC-32, 2 CRC-32C
    i32 bytes per checksum
    i32 size of header and (compressed) data
    data, then 4 bytes of checksum for every piece of header and data

An entry is ``i32 key length, i32 value length, key, value``, and a version number of variable length if a property
of the file says so. A key is ``i16 length, row`` and 10 more bytes: no family, the latest timestamp, the type
"put". A pre-release of Hudi 1.1 omitted these 10 bytes; then one byte of a version follows the value, without the
property. Entries of the usual form are decoded all at once, others one by one.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from isal import isal_zlib

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.storage.storage import Storage

_UInt32s = npt.NDArray[np.uint32]


def crc32c_of_pieces(data: bytes, piece: int) -> _UInt32s:
    """CRC-32C of every ``piece`` bytes of the data; the last piece may be shorter. No data: the checksum of nothing."""
    if piece < 1:
        raise ValueError(f"a piece has at least one byte, not {piece}")
    pieces = (data[start : start + piece] for start in range(0, max(1, len(data)), piece))
    return np.fromiter(map(google_crc32c.value, pieces), np.uint32)


DATA: Final = b"DATABLK*"
META: Final = b"METABLKc"
ROOT_INDEX: Final = b"IDXROOT2"
INNER_INDEXES: Final = (b"IDXINTE2", b"IDXLEAF2")
FILE_INFO: Final = b"FILEINF2"

_HEADER: Final = struct.Struct(">8siiqBii")
_NO_CHECKSUM, _CRC32, _CRC32C = 0, 1, 2


class Codec(IntEnum):
    """Compression codecs by their number in the trailer.

    Only GZ and NONE are supported; Hudi writes no others by default.
    """

    LZO = 0
    GZ = 1
    NONE = 2
    SNAPPY = 3
    LZ4 = 4
    BZIP2 = 5
    ZSTD = 6
    LZMA = 7
    BROTLI = 8


@dataclass(frozen=True)
class FileRange:
    """The bytes of an HFile: a whole file, or the content of a log block in a file."""

    storage: Storage
    rel: str
    start: int
    length: int

    def read(self, offset: int, size: int) -> bytes:
        """Read ``size`` bytes at an offset; CorruptFileError when the range ends before."""
        if offset < 0 or size < 0 or offset + size > self.length:
            raise self.corrupt(offset, f"{size} bytes are needed, which exceed its {self.length} bytes")
        data = self.storage.read_range(self.rel, self.start + offset, size)
        if len(data) != size:
            raise self.corrupt(offset, "it became shorter while it was read")
        return data

    @property
    def path(self) -> str:
        """The path of the file, for messages."""
        return self.storage.where(self.rel)

    def corrupt(self, offset: int, what: str) -> CorruptFileError:
        """The error for a fault ``what`` at an offset of the HFile."""
        return CorruptFileError(
            f"{self.path} has no readable HFile: at byte {self.start + offset}, {what}; restore the file, or drop the "
            "metadata table (hoodie.metadata.enable=false)"
        )


@dataclass(frozen=True)
class Block:
    """The kind and uncompressed data of a block; ``end`` is the offset of the next one."""

    magic: bytes
    data: bytes
    offset: int
    end: int


def read_block(source: FileRange, offset: int, codec: Codec) -> Block:
    """Read the block at an offset and verify its checksums."""
    magic, size, uncompressed, _, checksum, piece, with_header = _HEADER.unpack(source.read(offset, _HEADER.size))
    whole = source.read(offset, _HEADER.size + size) if size >= 0 else b""
    if size < 0 or uncompressed < 0 or not _HEADER.size <= with_header <= len(whole):
        raise source.corrupt(offset, f"a block header has the sizes {size}, {uncompressed} and {with_header}")
    _verify(source, offset, whole[:with_header], checksum, piece, whole[with_header:])
    data = _uncompressed(source, offset, whole[_HEADER.size : with_header], uncompressed, codec)
    return Block(magic, data, offset, offset + len(whole))


def _verify(source: FileRange, offset: int, covered: bytes, kind: int, piece: int, stored: bytes) -> None:
    if kind == _NO_CHECKSUM:
        return
    if kind not in (_CRC32, _CRC32C) or piece < 1:
        raise source.corrupt(offset, f"a block has checksums of kind {kind} for every {piece} bytes")
    if len(stored) != 4 * -(-len(covered) // piece):
        raise source.corrupt(offset, f"a block of {len(covered)} bytes has {len(stored)} bytes of checksums")
    found: npt.NDArray[np.uint32]
    if kind == _CRC32C:
        found = crc32c_of_pieces(covered, piece)
    else:
        pieces = (covered[start : start + piece] for start in range(0, len(covered), piece))
        found = np.fromiter(map(zlib.crc32, pieces), np.uint32)
    if found.astype(">u4").tobytes() != stored:
        raise source.corrupt(offset, "a block's checksum is not that of its bytes")


def _uncompressed(source: FileRange, offset: int, data: bytes, size: int, codec: Codec) -> bytes:
    stream = isal_zlib.decompressobj(wbits=31) if codec is Codec.GZ else None
    if stream is not None:
        try:
            data = stream.decompress(data, size + 1)
        except isal_zlib.error as error:  # type: ignore[misc]  # its stub says Exception, not type[Exception]
            raise source.corrupt(offset, f"a block's data cannot be uncompressed ({error})") from None
    elif codec is not Codec.NONE:
        raise UnsupportedTableError(
            f"{source.path} is compressed with {codec.name}; HFiles of the codecs GZ and NONE can be read; "
            "drop the metadata table (hoodie.metadata.enable=false) or let Hudi build it again with GZ"
        )
    if len(data) != size or (stream is not None and not stream.eof):
        raise source.corrupt(offset, f"a block's data is not {size} bytes long")
    return data


SCHEMA: Final = pa.schema([("key", pa.binary()), ("value", pa.binary())])
KEY_END: Final = b"\0" + struct.pack(
    ">qB", 2**63 - 1, 4
)  # the rest of the key after the row, in every entry that Hudi writes

_LENGTHS: Final = struct.Struct(">ii")
_I16: Final = struct.Struct(">h")
_HEAD: Final = _LENGTHS.size + _I16.size
_LATEST: Final = int.from_bytes(KEY_END[1:9], "little")
_MOST_LENGTHS: Final = 64  # different key lengths in a block: with more, decoding the entries one by one is faster

_Ints = npt.NDArray[np.int64]


def entries_of(source: FileRange, block: Block, has_versions: bool) -> pa.RecordBatch:
    """Keys and values of a data block. CorruptFileError when a length exceeds the block."""
    found = _side_by_side(block.data, has_versions)
    return _one_by_one(source, block, has_versions) if found is None else found


def _side_by_side(data: bytes, has_versions: bool) -> pa.RecordBatch | None:
    """All entries at once; None when the block does not have the usual form.

    Rows end where ``KEY_END`` is. The begin of an entry follows from the key lengths in this block. All entries are
    checked to begin where the one before ends, so bytes of a value that equal ``KEY_END`` do no harm.
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
    # One array of pieces over the bytes: row, end of the key, value, the bytes up to the next row, and so on.
    places = np.stack([starts + _HEAD, ends, values, behind], axis=1).reshape(-1).astype(np.int32)
    pieces = pa.Array.from_buffers(pa.binary(), len(places) - 1, [None, pa.py_buffer(places), pa.py_buffer(data)])
    rows = np.arange(0, len(places), 4)
    return pa.RecordBatch.from_arrays([pieces.take(pa.array(rows)), pieces.take(pa.array(rows + 2))], schema=SCHEMA)


def _row_ends(data: bytes) -> _Ints:
    """Offsets of ``KEY_END``."""
    if len(data) < _HEAD + len(KEY_END):
        return np.zeros(0, np.int64)
    words = np.ndarray((len(data) - 7,), np.dtype("<u8"), buffer=data, strides=(1,))
    found = np.flatnonzero(words == _LATEST) - 1
    found = found[(found >= _HEAD) & (found + len(KEY_END) <= len(data))]
    plain = _bytes(data)
    ends: _Ints = found[(plain[found] == KEY_END[0]) & (plain[found + 9] == KEY_END[9])]
    return ends


def _starts(data: bytes, ends: _Ints, has_versions: bool) -> _Ints | None:
    """Offsets of the entries whose rows have these ends; None when they cannot be found."""
    if not len(ends):
        return None
    starts, at = np.full(len(ends), -1, np.int64), 0
    left = np.arange(len(ends))
    for _ in range(_MOST_LENGTHS):
        # The first remaining entry begins where the one before it ends. Its key length gives all others with that
        # length.
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
    """The 32-bit numbers at some offsets."""
    return np.ndarray((len(data) - 3,), np.dtype(">i4"), buffer=data, strides=(1,))[places].astype(np.int64)


def _one_by_one(source: FileRange, block: Block, has_versions: bool) -> pa.RecordBatch:
    # A loop over entries, because each gives the offset of the next one: for blocks with families, other timestamps or
    # large versions, which HBase may write and Hudi does not, and to find the fault in broken blocks.
    data, end = block.data, len(block.data)
    keys, values, at = [], [], 0
    while at < end:
        if at + _HEAD > end:
            raise source.corrupt(block.offset, f"{end - at} bytes at {at} of the block are not an entry")
        key_length, value_length = _LENGTHS.unpack_from(data, at)
        key = at + _LENGTHS.size
        value = key + key_length
        (row,) = _I16.unpack_from(data, key)
        is_bare = key_length == _I16.size + row
        is_short = not is_bare and key_length < _I16.size + row + len(KEY_END)
        if row < 0 or value_length < 0 or is_short or value + value_length > end:
            raise source.corrupt(
                block.offset, f"at {at} of the block is not an entry: lengths {key_length}, {row} and {value_length}"
            )
        keys.append(data[key + _I16.size : key + _I16.size + row])
        at = value + value_length
        values.append(data[value:at])
        if has_versions or is_bare:
            first = data[at] if at < end else 0
            at += 1 if first < 0x80 or first >= 0x90 else (0x90 if first >= 0x88 else 0x88) - first + 1
    return pa.RecordBatch.from_arrays([pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=SCHEMA)
