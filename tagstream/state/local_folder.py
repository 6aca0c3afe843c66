"""The folder of the local stores: made for this user alone, and used only where that is so.

Whoever can write there can give a key group a wrong index: a store is told to be the right one by a chain that can be
read in the checkpoint. And whoever can read there reads the keys.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from tagstream.state.errors import StateError
from tagstream.state.layout import StateLayout

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
