"""Files and folders on this machine's own disk, where RocksDB works: everything else goes through a storage.

Scratch names carry the process that works with them, so that those of dead processes can be told and removed.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_counter = itertools.count()
_PIECE = 1 << 20
_KEPT = "kept."


def scratch_path(folder: str, kind: str) -> str:
    """A new name in a folder, which is made; what processes that are dead left of this kind goes.

    Names of this kind are ``<kind>.<pid>.<n>``.
    """
    make_folder(folder)
    for name in os.listdir(folder):
        pid = name.removeprefix(f"{kind}.").split(".")[0]
        if name.startswith(f"{kind}.") and pid.isdigit() and not _is_alive(int(pid)):
            remove(os.path.join(folder, name))
    return os.path.join(folder, f"{kind}.{os.getpid()}.{next(_counter)}")


def keep(path: str, folder: str, name: str) -> None:
    """Keep a file of this folder's file system under a name until it is taken, in place of the one that was kept before."""
    for other in os.listdir(folder):
        if other.startswith(_KEPT):
            remove(os.path.join(folder, other))
    os.replace(path, os.path.join(folder, f"{_KEPT}{name}"))


def take_kept(folder: str, name: str, to: str) -> bool:
    """Give a file that was kept another path; False when there is none."""
    try:
        os.replace(os.path.join(folder, f"{_KEPT}{name}"), to)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def scratch_folder(prefix: str) -> Iterator[str]:
    """A new folder among the machine's temporary files, gone again afterwards."""
    folder = tempfile.mkdtemp(prefix=prefix)
    try:
        yield folder
    finally:
        remove(folder)


def make_folder(path: str) -> None:
    """Make a folder and its parents where they are missing."""
    os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
    """Remove a file or a folder with all below it; a missing one is fine."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.exists(path):
        os.unlink(path)


def renew(path: str) -> None:
    """Make a file, or change it: its time is then the present of the file system's clock."""
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n")


def exists(path: str) -> bool:
    """Whether there is a file or a folder of this name."""
    return os.path.exists(path)


def names(folder: str) -> list[str]:
    """The names in a folder, sorted."""
    return sorted(os.listdir(folder))


def size(path: str) -> int:
    """Bytes of a file."""
    return os.path.getsize(path)


def crc_of(path: str, sink: Callable[[bytes], object] | None = None) -> tuple[int, int]:
    """(bytes, crc32) of a file, read in pieces; ``sink`` gets every piece too."""
    count = crc = 0
    with open(path, "rb") as f:
        while piece := f.read(_PIECE):
            count += len(piece)
            crc = zlib.crc32(piece, crc)
            if sink is not None:
                sink(piece)
    return count, crc


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
