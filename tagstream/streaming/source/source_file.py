"""One file of the source folder: its compression, how far it was read, and which of its whole lines are new.

As in Hadoop's and Spark's sources, some names are skipped: those that begin with ``.`` or ``_`` (unless they contain
``=``), and those that end in ``._COPYING_``. A folder with such a name is skipped with all of its files.

A position says how far a file was read. It has checksums, which later show whether it is still the same file with more
at its end. A line is whole when it ends with a newline. A last line without one is whole when it is a JSON object: no
object is the beginning of another, so later bytes cannot belong to it. A line that is not whole yet is read later.

Files of Parquet, Avro and CSV have a :class:`FileForm`, which says where their whole records end. Without a form a
file has lines of JSON.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import pyarrow as pa

from tagstream.streaming.errors import SourceError
from tagstream.table.storage.storage import Storage

PRINT_BYTES = 1024  # at the beginning and before the end of what was read


@dataclass(frozen=True)
class FilePosition:
    """``end``: how many bytes were read, all of them whole lines. ``size`` and ``mtime_ms``: of the file when its
    position was determined.

    ``head`` and ``tail``: checksums of the first and the last ``PRINT_BYTES`` bytes that were read. A file with other
    bytes there was overwritten, whatever its size is now.
    """

    end: int
    size: int
    mtime_ms: int
    head: int
    tail: int


@dataclass(frozen=True)
class SourceFile:
    """A file of a listing. ``path`` is relative to the source folder."""

    path: str
    size: int
    mtime_ms: int


class DamagedFileError(Exception):
    """The bytes of a file are not of its form. The text says where and why."""


@dataclass(frozen=True)
class FilePart:
    """Bytes ``start``..``end`` of a file. ``codec``: the file is compressed as a whole."""

    path: str
    start: int
    end: int
    codec: str | None = None


class FileForm(Protocol):
    """A form of source files other than lines of JSON.

    ``name``: for messages. ``magic``: the first bytes of each file; empty where any text can be first. ``grows``: a file
    may get more records at its end. ``compressed``: a file may be compressed as a whole, as its name says.
    """

    @property
    def name(self) -> str: ...
    @property
    def magic(self) -> bytes: ...
    @property
    def grows(self) -> bool: ...
    @property
    def compressed(self) -> bool: ...

    def whole_part(self, storage: Storage, file: SourceFile, start: int, now_ms: int) -> tuple[int, int]:
        """Where the whole records after ``start`` end (``start``: there are none), and the number of bytes after them.

        SourceError for a file that cannot be read in this form.
        """
        ...

    def cuts(self, storage: Storage, path: str, start: int, end: int, step: int) -> list[int]:
        """The bytes inside ``start``..``end`` where records begin, each at least ``step`` after the one before."""
        ...

    def records(
        self, storage: Storage, part: FilePart, columns: Mapping[str, pa.DataType]
    ) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """The records of a part of a file, with their positions in the file (int64, rising).

        A batch has ``value`` (the record's text), ``row`` (a struct with at least those of ``columns`` that the file
        has) and ``fault`` (why a record is bad), each only where the form has it. DamagedFileError for bytes that are
        not of the form.
        """
        ...


def prints(storage: Storage, path: str, end: int) -> tuple[int, int]:
    """The two checksums of a file's first ``end`` bytes."""
    head = storage.read_range(path, 0, min(PRINT_BYTES, end))
    if end <= PRINT_BYTES:
        return zlib.crc32(head), zlib.crc32(head)
    return zlib.crc32(head), zlib.crc32(storage.read_range(path, end - PRINT_BYTES, PRINT_BYTES))


def position_of(storage: Storage, file: SourceFile, end: int) -> FilePosition:
    """The position of a file that was read up to ``end``."""
    head, tail = prints(storage, file.path, end)
    return FilePosition(end, file.size, file.mtime_ms, head, tail)


# Ending -> codec to decompress it; None: not supported.
CODECS: dict[str, str | None] = {
    ".gz": "gzip",
    ".bz2": "bz2",
    ".zst": "zstd",
    ".deflate": "zlib",
    ".snappy": None,
    ".lz4": None,
    ".lzo": None,
    ".xz": None,
    ".br": None,
    ".zip": None,
    ".Z": None,
}
# First bytes -> (what such a file is, the codec of it).
MAGIC: tuple[tuple[bytes, str, str], ...] = (
    (b"\x1f\x8b", "gzip", "gzip"),
    (b"BZh", "bzip2", "bz2"),
    (b"\x28\xb5\x2f\xfd", "Zstandard", "zstd"),
    (b"\xfd7zXZ\x00", "xz", ""),
    (b"PK\x03\x04", "a ZIP archive", ""),
    (b"PAR1", "Parquet", ""),
    (b"Obj\x01", "an Avro data file", ""),
    (b"ORC", "ORC", ""),
)
MAGIC_BYTES = max(len(magic) for magic, _, _ in MAGIC)


def is_read(name: str) -> bool:
    """Whether a file or a folder with this name is part of the source."""
    hidden = name.startswith(".") or (name.startswith("_") and "=" not in name)
    return not hidden and not name.endswith("._COPYING_")


def codec_of(path: str) -> str | None:
    """The codec of a file, by its name: None for plain text. SourceError for an unsupported compression."""
    for ending, codec in CODECS.items():
        if path.endswith(ending):
            if codec is None:
                raise SourceError(
                    f"source file {path}: files that end in {ending} are not supported; decompress it (or write .gz, .bz2 "
                    "or .zst), or remove it from the source folder"
                )
            return codec
    return None


def check_form(path: str, codec: str | None, first: bytes, form: FileForm | None = None) -> None:
    """SourceError when the first bytes of a file are of another format than its name, or the form of the source, says."""
    if form is not None and form.magic:
        if first.startswith(form.magic[: len(first)]):
            return
        known = next((what for magic, what, _ in MAGIC if first.startswith(magic)), "another format")
        raise SourceError(
            f"source file {path} is {known} by its first bytes, but the source reads {form.name}: remove it from the source "
            "folder, or use the source class of its format"
        )
    for magic, what, is_codec in MAGIC:
        if first.startswith(magic):
            if is_codec == codec and codec is not None:
                return
            ending = next((end for end, name in CODECS.items() if name and name == is_codec), None)
            cure = (
                f"give it a name that ends in {ending}"
                if ending
                else f"write it as {form.name if form else 'JSON lines'}"
            )
            raise SourceError(
                f"source file {path} is {what} by its first bytes, but its name does not say so: {cure}, or remove it from "
                "the source folder"
            )
    if codec in ("gzip", "bz2", "zstd") and first:
        raise SourceError(
            f"source file {path} is not {codec} by its first bytes, but its name says so: rename it to its real format"
        )


_CONTENT_BLOCK = 1 << 20
# The libraries' errors for a truncated or damaged stream.
DAMAGED = (EOFError, OSError, zlib.error, pa.ArrowException)


class _Readable(Protocol):
    def read(self, size: int = -1, /) -> bytes: ...


class _FirstBytes(io.RawIOBase):
    """The first ``size`` bytes of a file, also if it has grown since."""

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
    """Reads a zlib stream. EOFError when it is truncated."""

    def __init__(self, source: _Readable) -> None:
        self._source = source
        self._stream = zlib.decompressobj()

    def read(self, size: int = -1, /) -> bytes:
        while not self._stream.eof:
            if self._stream.unconsumed_tail:
                data = self._stream.unconsumed_tail
            else:
                data = self._source.read(_CONTENT_BLOCK)
                if not data:
                    raise EOFError("the stream is truncated")
            out = self._stream.decompress(data, size)
            if out:
                return out
        return b""


def content(storage: Storage, path: str, codec: str, size: int) -> Iterator[bytes]:
    """Blocks of the decompressed first ``size`` bytes of a file. One of ``DAMAGED`` when the stream is truncated or
    damaged.
    """
    with io.BufferedReader(_FirstBytes(storage.open_input(path), size), _CONTENT_BLOCK) as raw:
        stream: _Readable
        if codec == "gzip":
            stream = gzip.GzipFile(fileobj=raw)
        elif codec == "bz2":
            stream = bz2.BZ2File(raw)
        elif codec == "zlib":
            stream = _Zlib(raw)
        else:
            stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), codec)
        while block := stream.read(_CONTENT_BLOCK):
            yield block


def is_whole(storage: Storage, path: str, codec: str, size: int) -> bool:
    """Whether the compressed stream is complete. It is decompressed to check that: 0.2 to 0.5 s per 100 MB."""
    try:
        for _ in content(storage, path, codec, size):
            pass
    except DAMAGED:
        return False
    return True


_LINE_BLOCK = 1 << 16
_YOUNG_MS = 60_000  # a compressed file that is younger may still be written
_BLANK = b" \t\r\n"

Kind = Literal["same", "new", "waiting", "touched", "changed"]


@dataclass(frozen=True)
class FileChange:
    """The result of a comparison of a file with its position.

    ``start``..``position.end``: its new whole lines (``new``). ``waiting``: number of bytes after them. ``changed``:
    the file was overwritten, for the reason ``why``.
    """

    kind: Kind
    start: int = 0
    position: FilePosition | None = None
    codec: str | None = None
    waiting: int = 0
    why: str = ""


def look_at(
    storage: Storage, file: SourceFile, known: FilePosition | None, now_ms: int, form: FileForm | None = None
) -> FileChange:
    """Compare a file with its position. ``form``: None for lines of JSON. SourceError for an unsupported format."""
    if known is not None and (file.size, file.mtime_ms) == (known.size, known.mtime_ms) and known.end == known.size:
        return FileChange("same")
    codec = codec_of(file.path) if form is None or form.compressed else None
    if known is not None:
        why = _what_changed(storage, file, known, codec, form)
        if why:
            return FileChange("changed", codec=codec, why=why)
        if file.size == known.end:
            return FileChange(
                "touched", position=FilePosition(known.end, file.size, file.mtime_ms, known.head, known.tail)
            )
    elif file.size:
        check_form(storage.where(file.path), codec, storage.read_range(file.path, 0, MAGIC_BYTES), form)
    start = 0 if known is None else known.end
    if codec is not None:
        return _compressed(storage, file, codec, now_ms)
    if form is not None:
        end, waiting = form.whole_part(storage, file, start, now_ms)
    else:
        end, waiting = end_of_whole_lines(storage, file.path, start, file.size)
    if end == start or _is_blank(storage, file.path, start, end):
        return FileChange("waiting" if waiting else "same", start, waiting=waiting)
    return FileChange("new", start, position_of(storage, file, end), waiting=waiting)


def end_of_whole_lines(storage: Storage, path: str, start: int, size: int) -> tuple[int, int]:
    """Where the whole lines between ``start`` and ``size`` end (``start``: there are none), and the number of bytes
    after them.
    """
    blocks: list[bytes] = []
    at = size
    while at > start:
        at, before = max(start, at - _LINE_BLOCK), at
        block = storage.read_range(path, at, before - at)
        cut = block.rfind(b"\n")
        blocks.append(block[cut + 1 :])
        if cut >= 0:
            at += cut + 1
            break
    tail = b"".join(reversed(blocks))
    if is_object(tail):
        return size, 0
    return at, len(tail) if tail.strip(_BLANK) else 0


def is_object(line: bytes) -> bool:
    """Whether a line without a newline is a whole JSON object."""
    if not line.rstrip(_BLANK).endswith(b"}"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _what_changed(
    storage: Storage, file: SourceFile, known: FilePosition, codec: str | None, form: FileForm | None
) -> str:
    if file.size < known.end:
        return f"it has {file.size:,} bytes now, but {known.end:,} were read"
    if prints(storage, file.path, known.end) != (known.head, known.tail):
        return f"the {known.end:,} bytes that were read have changed"
    if codec is not None and file.size > known.end:
        return f"a compressed file has grown from {known.end:,} to {file.size:,} bytes"
    if form is not None and not form.grows and file.size > known.end:
        return f"a file of {form.name} has grown from {known.end:,} to {file.size:,} bytes"
    return ""


def _compressed(storage: Storage, file: SourceFile, codec: str, now_ms: int) -> FileChange:
    """A compressed file is read as a whole. One that may still be written is decompressed once to check that it is
    complete.
    """
    if not file.size:
        return FileChange("same", codec=codec)
    if now_ms - file.mtime_ms < _YOUNG_MS and not is_whole(storage, file.path, codec, file.size):
        return FileChange("waiting", codec=codec, waiting=file.size)
    return FileChange("new", 0, position_of(storage, file, file.size), codec)


def _is_blank(storage: Storage, path: str, start: int, end: int) -> bool:
    """Whether the new lines are blank. Only short ones are checked here; the tasks drop blank lines of long ones."""
    return end - start <= _LINE_BLOCK and not storage.read_range(path, start, end - start).strip(_BLANK)
