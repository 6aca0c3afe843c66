"""An object that is streamed into: in parts while it grows, and there only when it is closed."""

from __future__ import annotations

import io
from typing import Any

# What is in memory of one object: a part that fills, and those on their way.
PART = 8 << 20
PARTS_AT_ONCE = 4
_PIECE = 1 << 20


class ObjectWriter(io.RawIOBase):
    """obstore's writer as a file for Arrow and for Python. Closing this does not publish the object, :meth:`finish` does."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._at = 0
        self._pending = bytearray()

    def writable(self) -> bool:
        """It is there to be written."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self._at

    def write(self, data: Any, /) -> int:
        """Take bytes; small pieces are gathered, each call of the client costs more than copying them."""
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
        """The end: the object appears, whole."""
        self._hand_on()
        self._writer.close()

    def _hand_on(self) -> None:
        if self._pending:
            self._writer.write(bytes(self._pending))
            self._pending.clear()
