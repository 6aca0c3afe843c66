"""How far a file was read, and what tells afterwards that it is still the same file with more at its end."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from tagstream.table.storage.storage import Storage

PRINT_BYTES = 1024  # at the beginning and before the end of what was read


@dataclass(frozen=True)
class FilePosition:
    """``end``: bytes that were read, all of them whole lines. ``size`` and ``mtime_ms``: the file's, at that look.

    ``head`` and ``tail``: checksums of the first and the last ``PRINT_BYTES`` of what was read. A file that has other
    bytes there was written over, whatever its size is now.
    """

    end: int
    size: int
    mtime_ms: int
    head: int
    tail: int


@dataclass(frozen=True)
class SourceFile:
    """A file as a listing has it; ``path`` is relative to the source folder."""

    path: str
    size: int
    mtime_ms: int


def prints(storage: Storage, path: str, end: int) -> tuple[int, int]:
    """The two checksums of a file's first ``end`` bytes."""
    head = storage.read_range(path, 0, min(PRINT_BYTES, end))
    if end <= PRINT_BYTES:
        return zlib.crc32(head), zlib.crc32(head)
    return zlib.crc32(head), zlib.crc32(storage.read_range(path, end - PRINT_BYTES, PRINT_BYTES))


def position_of(storage: Storage, file: SourceFile, end: int) -> FilePosition:
    """The position of a file that is read up to ``end``."""
    head, tail = prints(storage, file.path, end)
    return FilePosition(end, file.size, file.mtime_ms, head, tail)
