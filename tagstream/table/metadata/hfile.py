"""Read HFiles (version 3), the sorted key-value files with a metadata table's records.

The row of an entry's key is the metadata table's key. An index entry has the offset, the size and the first key of a
block, or a shorter key that is after the block before.

The last 4096 bytes of a file are the trailer: ``TRABLK"$``, a protobuf message after its length, zeros, and in
the last four bytes the minor (1 byte) and major version (3 bytes). The messages of the trailer and of the file's
properties are those of HBase's HFile.proto.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.file_group.log_file import LogBlock
from tagstream.table.file_group.log_format import read_varint
from tagstream.table.metadata.hfile_block import (
    DATA,
    FILE_INFO,
    INNER_INDEXES,
    ROOT_INDEX,
    Block,
    Codec,
    FileRange,
    entries_of,
    read_block,
)
from tagstream.table.storage.storage import Storage

TRAILER_SIZE: Final = 4096
TRAILER_MAGIC: Final = b'TRABLK"$'
INFO_MAGIC: Final = b"PBUF"
_MAJOR: Final = 3
_MOST_LEVELS: Final = 8
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True)
class Trailer:
    """The used fields of the trailer. ``load_on_open``: offset of the root index, the meta index and the properties."""

    load_on_open: int
    first_data_block: int
    index_count: int
    index_levels: int
    entries: int
    codec: Codec


def read_trailer(source: FileRange) -> Trailer:
    """Read a trailer of version 3. UnsupportedTableError for other versions, encryption and unknown codecs."""
    offset = source.length - TRAILER_SIZE
    data = source.read(offset, TRAILER_SIZE)
    major = int.from_bytes(data[-3:], "big")
    if not data.startswith(TRAILER_MAGIC):
        raise source.corrupt(max(offset, 0), "no trailer begins")
    if major != _MAJOR:
        raise UnsupportedTableError(f"{source.path} is an HFile of version {major}; version {_MAJOR} can be read")
    try:
        fields = trailer_fields(data)
        codec = Codec(_number(fields, 12, Codec.NONE))
    except ValueError as error:
        raise source.corrupt(offset, f"the trailer is broken ({error})") from None
    if any(fields.get(13, ())):  # an empty key means no encryption; a pre-release of Hudi 1.1 wrote one
        raise UnsupportedTableError(f"{source.path} is an encrypted HFile, which cannot be read")
    trailer = Trailer(
        load_on_open=_number(fields, 2),
        first_data_block=_number(fields, 9),
        index_count=_number(fields, 5),
        index_levels=_number(fields, 8, 1),
        entries=_number(fields, 7),
        codec=codec,
    )
    if trailer.load_on_open > offset or not 0 <= trailer.index_levels <= _MOST_LEVELS:
        raise source.corrupt(
            offset,
            f"the trailer has {trailer.index_levels} index levels, and indexes at {trailer.load_on_open}",
        )
    return trailer


def trailer_fields(data: bytes) -> dict[int, list[int | bytes]]:
    """All fields of the trailer, by the numbers of HFile.proto; ValueError when it is broken."""
    size, at = read_varint(data, len(TRAILER_MAGIC))
    return _message(data[at : at + size])


def read_info(data: bytes) -> dict[str, bytes]:
    """The properties in a file-info block; ValueError when they are broken."""
    if not data.startswith(INFO_MAGIC):
        raise ValueError("no properties begin")
    size, at = read_varint(data, len(INFO_MAGIC))
    info = {}
    for pair in _message(data[at : at + size]).get(1, ()):
        if isinstance(pair, int):
            raise ValueError("a property is a number")
        fields = _message(pair)
        key, value = (fields.get(number, [b""])[0] for number in (1, 2))
        if isinstance(key, int) or isinstance(value, int):
            raise ValueError("a property's key or value is a number")
        info[key.decode("utf-8", "replace")] = value
    return info


def _number(fields: dict[int, list[int | bytes]], number: int, default: int = 0) -> int:
    value = fields.get(number, [default])[-1]
    if not isinstance(value, int):
        raise ValueError(f"field {number} is not a number")
    return value


def _message(data: bytes) -> dict[int, list[int | bytes]]:
    """Values of a protobuf message by field number."""
    fields: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        kind = tag & 7
        value: int | bytes
        if kind == _VARINT:
            value, at = read_varint(data, at)
        elif kind in (_BYTES, _FIXED64, _FIXED32):
            size = {_FIXED64: 8, _FIXED32: 4}.get(kind, 0)
            if kind == _BYTES:
                size, at = read_varint(data, at)
            if at + size > len(data):
                raise ValueError(f"a field of {size} bytes at {at} of {len(data)}")
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"a field of the wire type {kind}")
        fields.setdefault(tag >> 3, []).append(value)
    return fields


_INDEX_HEAD: Final = struct.Struct(">qi")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")


@dataclass(frozen=True)
class _IndexEntry:
    """A block of the next level: its offset, and a lower bound ``row`` of its rows."""

    offset: int
    row: bytes


class HFile:
    """One HFile. It does not stay open; the index is read at the first use."""

    def __init__(self, source: FileRange) -> None:
        self.source = source

    @staticmethod
    def open(storage: Storage, rel: str) -> HFile:
        """The HFile of a file."""
        return HFile(FileRange(storage, rel, 0, storage.size(rel)))

    @staticmethod
    def of_block(block: LogBlock) -> HFile:
        """The HFile in the content of a log block."""
        return HFile(FileRange(block.storage, block.path, block.content_offset, block.content_length))

    @cached_property
    def trailer(self) -> Trailer:
        """The file's trailer."""
        return read_trailer(self.source)

    @property
    def entries(self) -> int:
        """Number of entries."""
        return self.trailer.entries

    @property
    def info(self) -> dict[str, bytes]:
        """The file's properties, for example ``schema`` (Avro JSON of the values)."""
        return self._opened[1]

    def scan(self) -> Iterator[pa.RecordBatch]:
        """All entries in the order of their keys, one batch for each block."""
        offset, count = self.trailer.first_data_block, 0
        while count < self.entries:
            if offset >= self.trailer.load_on_open:
                raise self.source.corrupt(offset, f"the data ends after {count} of {self.entries} entries")
            block = read_block(self.source, offset, self.trailer.codec)
            if block.magic == DATA:
                batch = entries_of(self.source, block, self._has_versions)
                count += batch.num_rows
                yield batch
            offset = block.end
        if count != self.entries:
            raise self.source.corrupt(offset, f"there are more than the {self.entries} entries of the trailer")

    def lookup(self, keys: pa.Array) -> Iterator[pa.RecordBatch]:
        """The entries of the given keys (binary, sorted, no nulls); only blocks that may have one of them are read."""
        wanted: list[bytes] = keys.to_pylist()
        if self.entries == 0:
            return
        last = [-1] * (self.trailer.index_levels + 1)
        for offset, first, behind in self._blocks(self._opened[0], wanted, 0, len(wanted), last):
            block = read_block(self.source, offset, self.trailer.codec)
            if block.magic != DATA:
                raise self.source.corrupt(offset, "the index names a data block where there is none")
            batch = entries_of(self.source, block, self._has_versions)
            found = batch.filter(pc.is_in(batch.column(0), value_set=keys.slice(first, behind - first)))
            if found.num_rows:
                yield found

    def _blocks(
        self,
        entries: Sequence[_IndexEntry],
        keys: list[bytes],
        first: int,
        behind: int,
        last: list[int],
        level: int = 1,
    ) -> Iterator[tuple[int, int, int]]:
        """(offset of a data block, first and end index of the keys that it may have). ``last``: last offset visited, by
        level.

        Offsets must increase on every level, so that a broken index cannot cause an endless loop.
        """
        starts = [first, *(bisect_left(keys, entry.row, first, behind) for entry in entries[1:]), behind]
        for number, entry in enumerate(entries):
            begin, end = starts[number], starts[number + 1]
            if begin >= end:
                continue
            if entry.offset <= last[level]:
                raise self.source.corrupt(entry.offset, "the index names a block before the last one")
            last[level] = entry.offset
            if level >= self.trailer.index_levels:
                yield entry.offset, begin, end
                continue
            block = read_block(self.source, entry.offset, self.trailer.codec)
            if block.magic not in INNER_INDEXES:
                raise self.source.corrupt(entry.offset, "the index names an index block where there is none")
            yield from self._blocks(self._inner_index(block), keys, begin, end, last, level + 1)

    @cached_property
    def _opened(self) -> tuple[list[_IndexEntry], dict[str, bytes]]:
        """(the root index, the properties). In the file the index of meta blocks is between them."""
        offset = self.trailer.load_on_open
        root = read_block(self.source, offset, self.trailer.codec)
        if root.magic != ROOT_INDEX:
            raise self.source.corrupt(offset, "no root index begins")
        index = self._root_index(root)
        block = read_block(self.source, root.end, self.trailer.codec)
        while block.magic != FILE_INFO:
            block = read_block(self.source, block.end, self.trailer.codec)
        try:
            info = read_info(block.data)
        except ValueError as error:
            raise self.source.corrupt(block.offset, f"the file's properties are broken ({error})") from None
        if "hfile.MAX_TAGS_LEN" in info:
            raise UnsupportedTableError(f"{self.source.path} is an HFile with cell tags, which Hudi does not write")
        return index, info

    def _root_index(self, block: Block) -> list[_IndexEntry]:
        entries, at = [], 0
        for _ in range(self.trailer.index_count):
            if at + _INDEX_HEAD.size >= len(block.data):
                raise self.source.corrupt(block.offset, f"the index ends before its {self.trailer.index_count} entries")
            offset, _ = _INDEX_HEAD.unpack_from(block.data, at)
            at += _INDEX_HEAD.size
            length, at = self._hadoop_int(block, at)
            entries.append(_IndexEntry(offset, self._row(block, at, length)))
            at += length
        return entries

    def _inner_index(self, block: Block) -> list[_IndexEntry]:
        """i32 count, count + 1 times the i32 offset of an entry (from the end of these), entries without key lengths."""
        data = block.data
        count = _I32.unpack_from(data)[0] if len(data) >= _I32.size else -1
        start = _I32.size * (count + 2)
        if count < 1 or start > len(data):
            raise self.source.corrupt(block.offset, f"an index block of {len(data)} bytes has {count} entries")
        places = [start + place for (place,) in _I32.iter_unpack(data[_I32.size : start])]
        entries = []
        for at, end in pairwise(places):
            if at < start or at + _INDEX_HEAD.size > end or end > len(data):
                raise self.source.corrupt(block.offset, f"an index entry is from {at} to {end} of {len(data)} bytes")
            key = at + _INDEX_HEAD.size
            entries.append(_IndexEntry(_INDEX_HEAD.unpack_from(data, at)[0], self._row(block, key, end - key)))
        return entries

    def _row(self, block: Block, at: int, length: int) -> bytes:
        """The row in an index key of ``length`` bytes; Hudi's own writer omits the rest of the key."""
        size = _I16.unpack_from(block.data, at)[0] if at + _I16.size <= len(block.data) else -1
        if size < 0 or length < _I16.size + size or at + length > len(block.data):
            raise self.source.corrupt(block.offset, f"at {at} of the block a key of {length} bytes has a row of {size}")
        return block.data[at + _I16.size : at + _I16.size + size]

    def _hadoop_int(self, block: Block, at: int) -> tuple[int, int]:
        """(a length in Hadoop's variable-length form, the offset after it). A negative number is an error."""
        first = block.data[at] if at < len(block.data) else 0xFF
        if first < 0x80:
            return first, at + 1
        size = 0x90 - first  # 0x8F is followed by one byte, 0x8C by four
        if not 1 <= size <= 4 or at + 1 + size > len(block.data):
            raise self.source.corrupt(block.offset, f"at {at} of the block is not a length")
        return int.from_bytes(block.data[at + 1 : at + 1 + size], "big"), at + 1 + size

    @cached_property
    def _has_versions(self) -> bool:
        return self.info.get("KEY_VALUE_VERSION") == b"\0\0\0\1"
