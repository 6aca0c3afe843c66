"""Code that the storages share: full names, registers as numbered files, readers and writers of objects.

A numbered register is a set of files ``<name>.<n>``. Its value is the content of the file with the greatest number, and
that number is its version. It is for stores without compare-and-swap on which only one writer can create a name.
A reader gets the end of an object first, where Parquet's footer is, and the rest by ranges. A writer uploads an
object in parts while it is written. The object appears when the writer is finished.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from tagstream.table.errors import InvalidPartitionPathError, StaleVersionError
from tagstream.table.storage.storage import Register, Storage


def joined(root: str, rel: str) -> str:
    """Full name of ``rel`` below ``root``; an empty ``rel`` is the root. InvalidPartitionPathError when it is outside."""
    if rel == "":
        return root
    if rel.startswith("/") or "\0" in rel or any(part in ("", ".", "..") for part in rel.split("/")):
        raise InvalidPartitionPathError(f"path {rel!r} is not below {root}")
    return f"{root}/{rel}" if root != "/" else f"/{rel}"


def read_numbered(storage: Storage, rel: str) -> Register | None:
    """The newest value of a register; None when it was never written."""
    while True:
        newest = max(_numbers(storage, rel), default=None)
        if newest is None:
            return None
        try:
            return Register(storage.read(f"{rel}.{newest}"), str(newest))
        except FileNotFoundError:
            continue  # another process wrote a newer one and deleted this one after the listing


def swap_numbered(storage: Storage, rel: str, data: bytes, expected: str | None) -> str:
    """Create the next number exclusively and return it. Of two concurrent writers one gets StaleVersionError."""
    stale = StaleVersionError(f"{storage.where(rel)} is no longer at version {expected}: another process wrote it")
    before = _numbers(storage, rel)
    if str(max(before, default=None)) != str(expected):
        raise stale
    number = max(before, default=0) + 1
    try:
        storage.write_new(f"{rel}.{number}", data)
    except FileExistsError:
        raise stale from None
    # While this process was paused, others may have written and deleted this number and newer ones. A listing may lack
    # files that are created while it runs, so the new file is checked after it was written.
    if max(_numbers(storage, rel), default=None) != number:
        storage.delete(f"{rel}.{number}")
        raise stale
    storage.delete_many(f"{rel}.{n}" for n in before)
    return str(number)


def _numbers(storage: Storage, rel: str) -> list[int]:
    folder, _, name = rel.rpartition("/")
    found = (entry.name[len(name) + 1 :] for entry in storage.list(folder, (f"{name}.",)))
    return [int(number) for number in found if number.isdigit()]


# Size of the first request: the footer of nearly every Parquet file with its bloom filter, or a whole small object.
TAIL = 1 << 20
# The least bytes of a request: reading the gap between two columns costs less than another request.
_AHEAD = 256 << 10


class RangeReader(io.RawIOBase):
    """A file of ``size`` bytes that is read by ``get(offset, length)``. ``tail``: its last bytes, which are in memory."""

    def __init__(self, get: Callable[[int, int], bytes], size: int, tail: bytes) -> None:
        self._get = get
        self._size = size
        self._at = 0
        self._blocks = [(size - len(tail), tail)]

    def readable(self) -> bool:
        """Always True."""
        return True

    def seekable(self) -> bool:
        """Always True: any position costs the same."""
        return True

    def tell(self) -> int:
        """Position of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Change the position, without a request."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        """At most ``size`` bytes from the position; fewer only at the end."""
        left = max(0, self._size - self._at)
        length = left if size is None or size < 0 else min(size, left)
        data = self._bytes(self._at, length)
        self._at += length
        return data

    def readall(self) -> bytes:
        """All bytes from the position to the end."""
        return self.read()

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Fill a buffer from the position; returns the number of bytes."""
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _bytes(self, offset: int, length: int) -> bytes:
        for start, block in self._blocks:
            if start <= offset and offset + length <= start + len(block):
                return block if length == len(block) else block[offset - start : offset - start + length]
        block = self._get(offset, min(max(length, _AHEAD), self._size - offset))
        self._blocks = [self._blocks[0], (offset, block)]
        return block if length == len(block) else block[:length]


# Bytes of a part and parts in flight: the memory of one upload.
PART = 8 << 20
PARTS_AT_ONCE = 4
_PIECE = 1 << 20


class ObjectWriter(io.RawIOBase):
    """obstore's writer as a file for Arrow and Python. :meth:`finish` publishes the object; closing the file does not."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._at = 0
        self._pending = bytearray()

    def writable(self) -> bool:
        """Always True."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._at

    def write(self, data: Any, /) -> int:
        """Write bytes. Small pieces are buffered, because a call of the client costs more than copying them."""
        view = memoryview(data).cast("B")
        if len(view) < _PIECE:
            self._pending += view
        if len(view) >= _PIECE or len(self._pending) >= _PIECE:
            self._hand_on()
            if len(view) >= _PIECE:
                self._writer.write(view)
        self._at += len(view)
        return len(view)

    def finish(self) -> None:
        """Complete the upload: the object appears, whole."""
        self._hand_on()
        self._writer.close()

    def _hand_on(self) -> None:
        if self._pending:
            self._writer.write(bytes(self._pending))
            self._pending.clear()
