"""One file of the source looked at: which whole lines are new in it, or what is wrong with it.

A line is whole when its end of line is there. A last line without one is whole when it is a JSON object: no object is the
beginning of another, so nothing that is written later can belong to it. What is not whole yet waits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from tagstream.streaming.source.files.compressed import is_whole
from tagstream.streaming.source.files.names import MAGIC_BYTES, check_form, codec_of
from tagstream.streaming.source.files.position import FilePosition, SourceFile, position_of, prints
from tagstream.table.storage.storage import Storage

_BLOCK = 1 << 16
_YOUNG_MS = 60_000  # a compressed file that was written within this time may still be
_BLANK = b" \t\r\n"

Kind = Literal["same", "new", "waiting", "touched", "changed"]


@dataclass(frozen=True)
class Look:
    """What became of a file. ``start``..``position.end``: its new whole lines (``new``). ``waiting``: bytes after them.

    ``changed``: it is not the file that was read any more, for the reason ``why``.
    """

    kind: Kind
    start: int = 0
    position: FilePosition | None = None
    codec: str | None = None
    waiting: int = 0
    why: str = ""


def look_at(storage: Storage, file: SourceFile, known: FilePosition | None, now_ms: int) -> Look:
    """Compare a file with what was read of it. SourceError when it is of a form that is not read."""
    if known is not None and (file.size, file.mtime_ms) == (known.size, known.mtime_ms) and known.end == known.size:
        return Look("same")
    codec = codec_of(file.path)
    if known is not None:
        why = _what_changed(storage, file, known, codec)
        if why:
            return Look("changed", codec=codec, why=why)
        if file.size == known.end:
            return Look("touched", position=FilePosition(known.end, file.size, file.mtime_ms, known.head, known.tail))
    elif file.size:
        check_form(storage.where(file.path), codec, storage.read_range(file.path, 0, MAGIC_BYTES))
    start = 0 if known is None else known.end
    if codec is not None:
        return _compressed(storage, file, codec, now_ms)
    end, waiting = end_of_whole_lines(storage, file.path, start, file.size)
    if end == start or _is_blank(storage, file.path, start, end):
        return Look("waiting" if waiting else "same", start, waiting=waiting)
    return Look("new", start, position_of(storage, file, end), waiting=waiting)


def end_of_whole_lines(storage: Storage, path: str, start: int, size: int) -> tuple[int, int]:
    """Where the whole lines between ``start`` and ``size`` end (``start``: there is none), and how many bytes wait."""
    blocks: list[bytes] = []
    at = size
    while at > start:
        at, before = max(start, at - _BLOCK), at
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
    """Whether a line without its end of line is a whole JSON object."""
    if not line.rstrip(_BLANK).endswith(b"}"):
        return False
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _what_changed(storage: Storage, file: SourceFile, known: FilePosition, codec: str | None) -> str:
    if file.size < known.end:
        return f"it has {file.size:,} bytes now, and {known.end:,} were read"
    if prints(storage, file.path, known.end) != (known.head, known.tail):
        return f"the {known.end:,} bytes that were read are others now"
    if codec is not None and file.size > known.end:
        return f"a compressed file has grown from {known.end:,} to {file.size:,} bytes"
    return ""


def _compressed(storage: Storage, file: SourceFile, codec: str, now_ms: int) -> Look:
    """A compressed file is taken as a whole; one that may still be written is decompressed once to see its end."""
    if not file.size:
        return Look("same", codec=codec)
    if now_ms - file.mtime_ms < _YOUNG_MS and not is_whole(storage, file.path, codec, file.size):
        return Look("waiting", codec=codec, waiting=file.size)
    return Look("new", 0, position_of(storage, file, file.size), codec)


def _is_blank(storage: Storage, path: str, start: int, end: int) -> bool:
    """Whether the new lines hold nothing; only short ones are looked at, of long ones the tasks drop the blanks."""
    return end - start <= _BLOCK and not storage.read_range(path, start, end - start).strip(_BLANK)
