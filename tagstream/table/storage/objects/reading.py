"""An object for Arrow's readers: the end of it at once, where Parquet's footer is, the rest by the ranges that are read."""

from __future__ import annotations

import io
from collections.abc import Callable

# The first request: the footer of nearly every Parquet file with its bloom filter, and small objects as a whole.
TAIL = 1 << 20
# The least that is asked for at once: what lies between two columns costs less than another request.
_AHEAD = 256 << 10


class RangeReader(io.RawIOBase):
    """Reads of ``size`` bytes that ``get(offset, length)`` has; ``tail`` are the last of them."""

    def __init__(self, get: Callable[[int, int], bytes], size: int, tail: bytes) -> None:
        self._get = get
        self._size = size
        self._at = 0
        self._blocks = [(size - len(tail), tail)]

    def readable(self) -> bool:
        """It is there to be read."""
        return True

    def seekable(self) -> bool:
        """Any position costs the same."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a position; nothing is asked for."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        """At most ``size`` bytes from here; fewer only at the end."""
        left = max(0, self._size - self._at)
        length = left if size is None or size < 0 else min(size, left)
        data = self._bytes(self._at, length)
        self._at += length
        return data

    def readall(self) -> bytes:
        """All that is left."""
        return self.read()

    def readinto(self, buffer: bytearray | memoryview, /) -> int:  # type: ignore[override]
        """Fill a buffer; returns how much of it was filled."""
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
