"""Blocks of an HFile: the pieces its data, its indexes and its own properties are written in.

A block (integers big-endian)::

    magic                        8 bytes
    i32 size                     what follows this header, checksums included
    i32 uncompressed size
    i64 offset of the previous block of its kind
    u8  checksum type            0 none, 1 CRC-32, 2 CRC-32C
    i32 bytes per checksum
    i32 size of header and (compressed) data
    data, then 4 bytes of checksum for every piece of header and data
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.metadata.crc32c import crc32c_of_pieces
from tagstream.table.storage.storage import Storage

DATA: Final = b"DATABLK*"
META: Final = b"METABLKc"
ROOT_INDEX: Final = b"IDXROOT2"
INNER_INDEXES: Final = (b"IDXINTE2", b"IDXLEAF2")
FILE_INFO: Final = b"FILEINF2"

_HEADER: Final = struct.Struct(">8siiqBii")
_NO_CHECKSUM, _CRC32, _CRC32C = 0, 1, 2


class Codec(IntEnum):
    """Compressions by their number in the trailer; only GZ and NONE are read, and Hudi writes no others by itself."""

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
    """The bytes of an HFile: a whole file, or the content of a log block inside one."""

    storage: Storage
    rel: str
    start: int
    length: int

    def read(self, offset: int, size: int) -> bytes:
        """So many bytes; CorruptFileError where the range ends before."""
        if offset < 0 or size < 0 or offset + size > self.length:
            raise self.corrupt(offset, f"{size} bytes are announced, which do not lie in its {self.length} bytes")
        data = self.storage.read_range(self.rel, self.start + offset, size)
        if len(data) != size:
            raise self.corrupt(offset, "it became shorter while it was read")
        return data

    @property
    def path(self) -> str:
        """The file, for messages."""
        return self.storage.where(self.rel)

    def corrupt(self, offset: int, what: str) -> CorruptFileError:
        """The error to raise: what is wrong at an offset of the HFile."""
        return CorruptFileError(
            f"{self.path} holds no readable HFile: at byte {self.start + offset}, {what}; restore the file, or drop the "
            "metadata table (hoodie.metadata.enable=false)"
        )


@dataclass(frozen=True)
class Block:
    """One block's kind and uncompressed data; ``end`` is the offset of the next one."""

    magic: bytes
    data: bytes
    offset: int
    end: int


def read_block(source: FileRange, offset: int, codec: Codec) -> Block:
    """The block at an offset, its checksums verified."""
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
            "drop the metadata table (hoodie.metadata.enable=false) or let Hudi build it anew with GZ"
        )
    if len(data) != size or (stream is not None and not stream.eof):
        raise source.corrupt(offset, f"a block's data is not {size} bytes long")
    return data
