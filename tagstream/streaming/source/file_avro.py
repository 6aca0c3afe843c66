"""Avro data files of the source: blocks for the tasks, and their records as Arrow columns.

A file is a header with the writer's schema, the codec and a random sync marker of 16 bytes, then blocks: the number of
records, the number of bytes, the bytes, and the marker (Avro's specification, "Object Container Files"). So the whole
blocks of a file end at its last marker, and more blocks may be appended. A file is cut for the tasks at markers.

The position of a record is the byte of its block and its number in the block. So no task must count the records before
its blocks.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.avro_blocks import MAGIC, SYNC_BYTES, AvroBlock, avro_decoder
from tagstream.streaming.source.decode.file_rows import AVRO_SCHEMA
from tagstream.streaming.source.decode.typed_rows import ROW
from tagstream.streaming.source.source_file import DamagedFileError, FilePart, SourceFile
from tagstream.table.storage.storage import Storage

BITS_IN_BLOCK = 22  # of a position: the number of a record in its block
_HEAD, _LONGEST_HEAD = 1 << 16, 16 << 20
_BLOCK = 1 << 16
_READ = 8 << 20  # bytes that are read at once
_DECODED = 4 << 20  # bytes of blocks, perhaps compressed, that are decoded at once


@dataclass(frozen=True)
class AvroHeader:
    """The header of a file. ``schema``: the writer's, as JSON. ``end``: where the blocks begin."""

    schema: str
    codec: str
    sync: bytes
    end: int


@dataclass(frozen=True)
class AvroFiles:
    """The form of Avro data files (``source_file.FileForm``)."""

    name = "Avro"
    magic = MAGIC
    grows = True
    compressed = False

    def whole_part(
        self,
        storage: Storage,
        file: SourceFile,
        start: int,
        now_ms: int,  # noqa: ARG002 - for forms whose end is not marked
    ) -> tuple[int, int]:
        """The whole blocks: they end at the last marker. A header without blocks has no records."""
        try:
            header = read_header(storage, file.path, file.size)
        except DamagedFileError as e:
            raise SourceError(
                f"source file {storage.where(file.path)} is damaged: {e}; replace it, or remove it from the source folder"
            ) from e
        if header is None:
            return start, file.size - start
        first = max(start, header.end)
        end = _last_marker(storage, file.path, header.sync, first, file.size)
        return (start if end <= first else end), file.size - end

    def cuts(self, storage: Storage, path: str, start: int, end: int, step: int) -> list[int]:
        """The ends of blocks, at least ``step`` bytes apart."""
        header = _header_of(storage, path, end)
        found: list[int] = []
        at = start
        while end - at > step * 3 // 2:
            at = _next_marker(storage, path, header.sync, max(at + step, header.end) - SYNC_BYTES, end)
            if at >= end:
                break
            found.append(at)
        return found

    def records(
        self,
        storage: Storage,
        part: FilePart,
        columns: Mapping[str, pa.DataType],  # noqa: ARG002 - a field may be a column by an alias of its own
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The records of the blocks of the part, see ``FileForm.records``."""
        path = part.path
        header = _header_of(storage, path, part.end)
        decoder = avro_decoder(header.schema, header.codec, storage.where(path))
        metadata = {AVRO_SCHEMA: header.schema.encode()}
        for group in _groups(_blocks(storage, path, header, max(part.start, header.end), part.end)):
            for blocks, row in decoder.decode(group):
                counts = np.array([block.count for block in blocks], np.int64)
                begins = np.array([block.start for block in blocks], np.int64)
                places = np.repeat(begins << BITS_IN_BLOCK, counts)
                places += np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
                schema = pa.schema([pa.field(ROW, row.type)], metadata=metadata)
                yield pa.RecordBatch.from_arrays([row], schema=schema), pa.array(places)


def read_header(storage: Storage, path: str, size: int) -> AvroHeader | None:
    """The header of a file of ``size`` bytes; None when it is not whole yet. DamagedFileError when it is not Avro's."""
    length = _HEAD
    while True:
        head = storage.read_range(path, 0, min(length, size))
        try:
            return _parsed(head)
        except IndexError:
            if len(head) >= size or len(head) < length:
                return None
        if length >= _LONGEST_HEAD:
            raise DamagedFileError(f"its header is longer than {_LONGEST_HEAD:,} bytes")
        length *= 4


def _header_of(storage: Storage, path: str, size: int) -> AvroHeader:
    header = read_header(storage, path, size)
    if header is None:
        raise DamagedFileError("its header is truncated")
    return header


def _parsed(data: bytes) -> AvroHeader:
    """The header in the first bytes of a file. IndexError when they are too few."""
    if not MAGIC.startswith(data[: len(MAGIC)]):
        raise DamagedFileError("it does not begin as an Avro data file")
    at = len(MAGIC)
    meta: dict[bytes, bytes] = {}
    while True:
        count, at = _long(data, at)
        if count == 0:
            break
        if count < 0:  # then the number of the bytes of the entries follows
            count, at = -count, _long(data, at)[1]
        for _ in range(count):
            name, at = _bytes(data, at)
            meta[name], at = _bytes(data, at)
    if at + SYNC_BYTES > len(data):
        raise IndexError
    try:
        schema = meta[b"avro.schema"].decode()
        if not isinstance(parsed := json.loads(schema), dict) or parsed.get("type") != "record":
            raise DamagedFileError("its schema is not a record")
    except (KeyError, ValueError) as e:
        raise DamagedFileError(f"its header has no readable schema ({e})") from e
    return AvroHeader(
        schema, meta.get(b"avro.codec", b"null").decode("latin-1"), data[at : at + SYNC_BYTES], at + SYNC_BYTES
    )


def _long(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag number and the byte after it. IndexError at the end of the data."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        if shift > 63:
            raise DamagedFileError(f"byte {at:,} of a header does not end a number of at most 64 bits")


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(data, at)
    if size < 0:
        raise DamagedFileError("a text of its header has a negative length")
    if at + size > len(data):
        raise IndexError
    return data[at : at + size], at + size


def _last_marker(storage: Storage, path: str, sync: bytes, first: int, size: int) -> int:
    """Where the last marker of a file ends; ``first`` where there is none after it."""
    end = size
    while end > first:
        begin = max(first, end - _BLOCK)
        data = storage.read_range(path, begin, min(end + SYNC_BYTES - 1, size) - begin)
        found = data.rfind(sync)
        if found >= 0:
            return begin + found + SYNC_BYTES
        end = begin
    return first


def _next_marker(storage: Storage, path: str, sync: bytes, at: int, end: int) -> int:
    """Where the first marker that begins at ``at`` or later ends; ``end`` where there is none."""
    while at < end:
        data = storage.read_range(path, at, min(_BLOCK + SYNC_BYTES - 1, end - at))
        found = data.find(sync)
        if found >= 0:
            return at + found + SYNC_BYTES
        if len(data) < SYNC_BYTES:
            return end
        at += len(data) - SYNC_BYTES + 1
    return end


def _blocks(storage: Storage, path: str, header: AvroHeader, start: int, end: int) -> Iterator[AvroBlock]:
    """The blocks of a part of a file that begins and ends between blocks. A loop over blocks, not over records."""
    data, begin, at = b"", start, 0
    while begin + at < end:
        try:
            count, size_at = _long(data, at)
            size, body = _long(data, size_at)
            stop = body + size + SYNC_BYTES
            if count < 0 or size < 0 or begin + stop > end:
                raise DamagedFileError(f"the block at byte {begin + at:,} has no possible size")
            if stop > len(data):
                raise IndexError
        except IndexError:
            data, begin, at = data[at:], begin + at, 0
            known = begin + len(data)
            more = storage.read_range(path, known, min(_READ, end - known)) if known < end else b""
            if not more:
                raise DamagedFileError(f"the block at byte {begin:,} is truncated") from None
            data += more
            continue
        if data[stop - SYNC_BYTES : stop] != header.sync:
            raise DamagedFileError(f"the block at byte {begin + at:,} does not end with the marker of the file")
        if count >> BITS_IN_BLOCK:
            raise DamagedFileError(f"the block at byte {begin + at:,} has {count:,} records, more than can be read")
        yield AvroBlock(begin + at, count, data[at:stop], body - at)
        at = stop


def _groups(blocks: Iterator[AvroBlock]) -> Iterator[list[AvroBlock]]:
    """Blocks that are decoded at once. Those before a damaged one come before its error."""
    group: list[AvroBlock] = []
    size = 0
    try:
        for block in blocks:
            group.append(block)
            size += len(block.raw)
            if size >= _DECODED:
                yield group
                group, size = [], 0
    except DamagedFileError:
        if group:
            yield group
        raise
    if group:
        yield group
