"""Walk a log file block by block, as Hudi's reader does; only headers are read on the way."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.log.block import LogBlock
from tagstream.table.file_group.log.format import I32, I64, MAGIC, SMALLEST_SIZE, VERSION, BlockType, decode_header
from tagstream.table.storage.storage import Storage

_HEAD_CHUNK = 64 * 1024
_SCAN_CHUNK = 1024 * 1024


def scan_log_file(storage: Storage, rel: str) -> Iterator[LogBlock]:
    """Blocks of a log file in file order.

    A block that is damaged is yielded as one CORRUPT block that ends before the next magic (or at the end of the
    file); scanning goes on behind it. Damaged means: its size leads past the end of the file, the size repeated at
    its end differs, or no magic follows. Raises CorruptFileError when the file does not begin with a block.
    """
    with storage.open_input(rel) as file:
        for block, _ in _walk(file, storage, rel):
            yield block


def split_log_file(storage: Storage, rel: str) -> Iterator[tuple[LogBlock, bytes]]:
    """The blocks of a small log file, read whole at once: each with all of its bytes, its magic among them.

    What damaged means, and the errors, are those of :func:`scan_log_file`.
    """
    data = storage.read(rel)
    for block, behind in _walk(pa.BufferReader(data), storage, rel):
        yield block, data[block.offset : behind]


def _walk(file: pa.NativeFile, storage: Storage, rel: str) -> Iterator[tuple[LogBlock, int]]:
    """Each block and where it ends."""
    end = file.size()
    offset = 0
    # fewer bytes than a magic are the end of the file, also for Hudi's reader
    while offset + len(MAGIC) <= end:
        if _read(file, offset, len(MAGIC)) != MAGIC:
            raise CorruptFileError(
                f"{storage.where(rel)} is no log file: no block begins at byte {offset}; restore the file"
            )
        start = offset + len(MAGIC)
        size = _intact_size(file, start, end)
        if size is None:
            offset = _next_magic(file, start, end)
            yield LogBlock(storage, rel, BlockType.CORRUPT, start - len(MAGIC), start, offset - start), offset
            continue
        offset = start + I64.size + size
        yield _read_block(file, storage, rel, start - len(MAGIC), size), offset


def _intact_size(file: pa.NativeFile, start: int, end: int) -> int | None:
    """Size of the block whose size field is at ``start``; None when it is damaged."""
    if start + I64.size > end:
        return None
    (size,) = I64.unpack(_read(file, start, I64.size))
    behind = start + I64.size + size
    if size < SMALLEST_SIZE or behind > end:
        return None
    (total,) = I64.unpack(_read(file, behind - I64.size, I64.size))
    if total != size + len(MAGIC):
        return None
    following = _read(file, behind, len(MAGIC))
    return size if len(following) < len(MAGIC) or following == MAGIC else None


def _read_block(file: pa.NativeFile, storage: Storage, rel: str, offset: int, size: int) -> LogBlock:
    start = offset + len(MAGIC) + I64.size
    where = f"the block at byte {offset} of {storage.where(rel)}"
    try:
        data = _read(file, start, min(size, _HEAD_CHUNK))
        try:
            header, used = decode_header(data, 2 * I32.size)
        except (ValueError, struct.error):
            if len(data) == size:
                raise
            # a schema (or the positions of many records) can be longer than the first read
            data = _read(file, start, size)
            header, used = decode_header(data, 2 * I32.size)
        if used + I64.size > len(data):
            data = _read(file, start, used + I64.size)
        (version,), (kind,) = I32.unpack_from(data, 0), I32.unpack_from(data, I32.size)
        (length,) = I64.unpack_from(data, used)
    except (ValueError, struct.error) as error:
        raise CorruptFileError(f"{where} has a broken header ({error}); restore the file") from error
    if version != VERSION or kind not in list(BlockType):
        raise UnsupportedTableError(f"{where} has version {version} and type {kind}, which this reader does not know")
    content = start + used + I64.size
    if length < 0 or content + length > start + size:
        raise CorruptFileError(f"{where} has a content of {length} bytes, more than the block; restore the file")
    return LogBlock(storage, rel, BlockType(kind), offset, content, length, header)


def _next_magic(file: pa.NativeFile, start: int, end: int) -> int:
    """Offset of the first magic at or behind ``start``, else the end of the file."""
    offset = start
    while offset < end:
        # chunks overlap, so that a magic across two of them is found
        found = _read(file, offset, _SCAN_CHUNK + len(MAGIC) - 1).find(MAGIC)
        if found >= 0:
            return offset + found
        offset += _SCAN_CHUNK
    return end


def _read(file: pa.NativeFile, offset: int, length: int) -> bytes:
    data: bytes = file.read_at(length, offset)
    return data
