"""Files and folders on this machine's own disk, where RocksDB works: everything else uses a storage.

Scratch names carry the process that works with them, so that those of dead processes can be found and removed.

The folder of the local stores is made for this user alone, and used only where that is so. Whoever can write
there can give a key group a wrong index: a store is accepted by a chain that can be read in the checkpoint. And
whoever can read there reads the keys.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tagstream.state.errors import StateError
from tagstream.state.layout import StateLayout

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


_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_NAME = re.compile("[0-9a-f]{16}")  # as the job names the folders of a table and of a checkpoint
_UNUSED_S = 30 * 86_400
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def make_private(layout: StateLayout) -> None:
    """Make the folder of the local stores where it is missing, with what of its parents is missing too.

    StateError when it, or one of this project's folders above it, is a link, another user's, or can be written by others.
    """
    folder = Path(layout.local_dir)
    root = Path(layout.local_root) if layout.local_root else folder.parent
    for path in reversed([root, *root.parents]):
        if not path.exists():
            _make(path)
    path = root
    made = False
    for name in folder.relative_to(root).parts:
        path /= name
        made = _make(path)
        _check(path)
    if made:
        _clear_unused(folder)


def _make(path: Path) -> bool:
    with suppress(FileExistsError):  # made by another process, too: what it is, is looked at
        path.mkdir(mode=stat.S_IRWXU)
        return True
    return False


def _clear_unused(folder: Path) -> None:
    """Remove the stores of other checkpoints that no task has opened for a month: their checkpoints are gone or elsewhere.

    Done when a checkpoint's folder is made on this host. A store that is needed after all is built again.
    The file system's clock is the only one that tells when a store was opened last, so the new folder's age is the present.
    """
    oldest = folder.stat().st_mtime - _UNUSED_S
    tables = (
        [p for p in folder.parent.parent.iterdir() if _NAME.fullmatch(p.name)] if _NAME.fullmatch(folder.name) else []
    )
    for checkpoint in (p for table in tables for p in table.iterdir() if _NAME.fullmatch(p.name) and p != folder):
        with suppress(OSError):  # removed by another process, or not this user's
            # A store's folder changes with each opening.
            if max(p.lstat().st_mtime for p in (checkpoint, *checkpoint.glob("*/store-*"))) < oldest:
                shutil.rmtree(checkpoint, ignore_errors=True)
                checkpoint.parent.rmdir()  # where it was the table's last one


def _check(path: Path) -> None:
    found, user = path.lstat(), os.geteuid()
    problem = ""
    if not stat.S_ISDIR(found.st_mode):
        problem = "is a link" if stat.S_ISLNK(found.st_mode) else "is not a folder"
    elif found.st_uid != user:
        problem = f"belongs to user {found.st_uid}, this process is user {user}"
    elif found.st_mode & _OTHERS_WRITE:
        problem = f"can be written by others (mode {stat.S_IMODE(found.st_mode):o})"
    if problem:
        raise StateError(
            f"local folder {path} of the index {problem}: somebody else could put a wrong index there. Remove it (it is "
            "only a cache), or name another folder with index.local.dir"
        )
    if found.st_mode & _OTHERS:  # made by an earlier version
        path.chmod(stat.S_IRWXU)
