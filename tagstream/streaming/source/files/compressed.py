"""Compressed files as streams of their content."""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from collections.abc import Iterator
from typing import Protocol

import pyarrow as pa

from tagstream.table.storage.storage import Storage

_BLOCK = 1 << 20
# What the libraries raise for a stream that is cut or damaged.
DAMAGED = (EOFError, OSError, zlib.error, pa.ArrowException)


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _FirstBytes(io.RawIOBase):
    """The first ``size`` bytes of a file, whatever it has become since."""

    def __init__(self, source: pa.NativeFile, size: int) -> None:
        self._source = source
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        data = self._source.read(min(len(buffer), self._left))
        buffer[: len(data)] = data
        self._left -= len(data)
        return len(data)

    def close(self) -> None:
        self._source.close()
        super().close()


class _Zlib:
    """Reads a zlib stream; EOFError when it is cut."""

    def __init__(self, source: _Readable) -> None:
        self._source = source
        self._stream = zlib.decompressobj()

    def read(self, size: int = -1, /) -> bytes:
        while not self._stream.eof:
            if self._stream.unconsumed_tail:
                data = self._stream.unconsumed_tail
            else:
                data = self._source.read(_BLOCK)
                if not data:
                    raise EOFError("the stream is cut")
            out = self._stream.decompress(data, size)
            if out:
                return out
        return b""


def content(storage: Storage, path: str, codec: str, size: int) -> Iterator[bytes]:
    """Blocks of what the first ``size`` bytes of a file hold; one of ``DAMAGED`` when the stream is not whole."""
    with io.BufferedReader(_FirstBytes(storage.open_input(path), size), _BLOCK) as raw:
        stream: _Readable
        if codec == "gzip":
            stream = gzip.GzipFile(fileobj=raw)
        elif codec == "bz2":
            stream = bz2.BZ2File(raw)
        elif codec == "zlib":
            stream = _Zlib(raw)
        else:
            stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), codec)
        while block := stream.read(_BLOCK):
            yield block


def is_whole(storage: Storage, path: str, codec: str, size: int) -> bool:
    """Whether the compressed stream has its end. It is decompressed for that: 0.2 to 0.5 s per 100 MB."""
    try:
        for _ in content(storage, path, codec, size):
            pass
    except DAMAGED:
        return False
    return True
