"""Files and folders on this machine's own disk, where RocksDB works. All other files go through a `Storage`.

Scratch names include the process id, so that files of dead processes can be found and removed.

The folder of the local stores is made for this user alone, and is used only if no other user can write to it. Whoever
can write there can give a key group a wrong index: a store is accepted by a chain that can be read in the checkpoint.
Whoever can read there can read the keys.
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
    """A new name in `folder`, which is made if missing. Files of this kind that dead processes left are removed.

    Names of this kind are ``<kind>.<pid>.<n>``.
    """
    make_folder(folder)
    for name in os.listdir(folder):
        pid = name.removeprefix(f"{kind}.").split(".")[0]
        if name.startswith(f"{kind}.") and pid.isdigit() and not _is_alive(int(pid)):
            remove(os.path.join(folder, name))
    return os.path.join(folder, f"{kind}.{os.getpid()}.{next(_counter)}")


def keep(path: str, folder: str, name: str) -> None:
    """Keep a file under `name` in `folder` until `take_kept` moves it. It replaces the file kept there before."""
    for other in os.listdir(folder):
        if other.startswith(_KEPT):
            remove(os.path.join(folder, other))
    os.replace(path, os.path.join(folder, f"{_KEPT}{name}"))


def take_kept(folder: str, name: str, to: str) -> bool:
    """Move a kept file to the path `to`; False when there is none."""
    try:
        os.replace(os.path.join(folder, f"{_KEPT}{name}"), to)
    except FileNotFoundError:
        return False
    return True


@contextmanager
def scratch_folder(prefix: str) -> Iterator[str]:
    """A new folder among the machine's temporary files, removed at the end of the block."""
    folder = tempfile.mkdtemp(prefix=prefix)
    try:
        yield folder
    finally:
        remove(folder)


def make_folder(path: str) -> None:
    """Make a folder and its missing parents."""
    os.makedirs(path, exist_ok=True)


def remove(path: str) -> None:
    """Remove a file or a folder with all its content. A missing one is not an error."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.exists(path):
        os.unlink(path)


def renew(path: str) -> None:
    """Create or change a file, so that its time is the present time of the file system's clock."""
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
    """(bytes, CRC-32) of a file, read in pieces; ``sink`` gets every piece."""
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
_NAME = re.compile("[0-9a-f]{16}")  # the form of the folder names of a table and of a checkpoint
_UNUSED_S = 30 * 86_400
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def make_private(layout: StateLayout) -> None:
    """Make the folder of the local stores and its parents where they are missing.

    StateError when this folder, or one of this project's folders above it, is a link, belongs to another user, or can be
    written by others.
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
    with suppress(FileExistsError):  # another process may have made it: the caller checks what it is
        path.mkdir(mode=stat.S_IRWXU)
        return True
    return False


def _clear_unused(folder: Path) -> None:
    """Remove the stores of other checkpoints that no task has opened for a month.

    Those checkpoints no longer exist, or run on another host. This is done when a checkpoint's folder is made on this
    host. A store that is needed after all is built again. Only the file system's clock shows when a store was last
    opened, so the time of the new folder is used as the present time.
    """
    oldest = folder.stat().st_mtime - _UNUSED_S
    tables = (
        [p for p in folder.parent.parent.iterdir() if _NAME.fullmatch(p.name)] if _NAME.fullmatch(folder.name) else []
    )
    for checkpoint in (p for table in tables for p in table.iterdir() if _NAME.fullmatch(p.name) and p != folder):
        with suppress(OSError):  # removed by another process, or of another user
            # Opening a store changes its folder.
            if max(p.lstat().st_mtime for p in (checkpoint, *checkpoint.glob("*/store-*"))) < oldest:
                shutil.rmtree(checkpoint, ignore_errors=True)
                checkpoint.parent.rmdir()  # fails, and is kept, when the table has other checkpoints


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
            f"local folder {path} of the index {problem}: another user could put a wrong index there. Remove the folder (it "
            "is only a cache), or set another one with index.local.dir"
        )
    if found.st_mode & _OTHERS:  # made by an earlier version
        path.chmod(stat.S_IRWXU)
