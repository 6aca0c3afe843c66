"""Durable files of the index: written whole or not at all, never changed, checked when read."""

from __future__ import annotations

import itertools
import os
import zlib
from collections.abc import Callable

from tagstream.state.errors import IndexDamagedError

_TEMP_PREFIX = ".tmp-"
_counter = itertools.count()


def temp_path(folder: str, batch_id: int) -> str:
    """A name no other live attempt uses; it carries the batch so that garbage collection can tell its age."""
    return os.path.join(folder, f"{_TEMP_PREFIX}{batch_id:012d}-{os.uname().nodename}-{os.getpid()}-{next(_counter)}")


def batch_of(name: str) -> int | None:
    """The batch id in a durable or temporary file's name; None for a name of another kind."""
    head = name.removeprefix(_TEMP_PREFIX).split("-", 1)[0]
    return int(head) if head.isdigit() else None


def sync_file(path: str, enabled: bool) -> None:
    """fsync a file or a folder."""
    if enabled:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def publish(temp: str, target: str, fsync: bool) -> bool:
    """Give a finished temporary file its final name; False, with both files as they are, when the name is taken."""
    sync_file(temp, fsync)
    try:
        os.link(temp, target)
    except FileExistsError:
        return False
    os.unlink(temp)
    sync_file(os.path.dirname(target), fsync)
    return True


def write_new(target: str, data: bytes, batch_id: int, fsync: bool) -> bool:
    """Write a new durable file; False when it was there already."""
    folder = os.path.dirname(target)
    os.makedirs(folder, exist_ok=True)
    temp = temp_path(folder, batch_id)
    with open(temp, "xb") as f:
        f.write(data)
    if publish(temp, target, fsync):
        return True
    os.unlink(temp)
    return False


def read_checked(path: str, size: int, crc: int, label: int, what: str) -> bytes:
    """Bytes of a durable file; IndexDamagedError when it is missing or not what its reference says."""
    try:
        with open(path, "rb") as f:
            data = f.read()
    except FileNotFoundError as e:
        raise IndexDamagedError(_text(path, label, what, "is missing")) from e
    if len(data) != size:
        raise IndexDamagedError(_text(path, label, what, f"has {len(data)} bytes instead of {size}"))
    found = zlib.crc32(data)
    if found != crc:
        raise IndexDamagedError(_text(path, label, what, f"has checksum {found:08x} instead of {crc:08x}"))
    return data


def crc_of(path: str, sink: Callable[[bytes], object] | None = None) -> tuple[int, int]:
    """(bytes, crc32) of a file, read in pieces; `sink` gets every piece too."""
    size = crc = 0
    with open(path, "rb") as f:
        while piece := f.read(1 << 20):
            size += len(piece)
            crc = zlib.crc32(piece, crc)
            if sink is not None:
                sink(piece)
    return size, crc


def _text(path: str, label: int, what: str, problem: str) -> str:
    return (
        f"{what} of key group {label} {problem}: {path}; put the file back from a copy of the checkpoint, or let the "
        "index be loaded from the table again under a new generation"
    )
