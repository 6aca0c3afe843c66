"""The folder of the local stores: made for this user alone, and used only where that is so.

Whoever can write there can give a key group a wrong index: a store is told to be the right one by a chain that can be
read in the checkpoint. And whoever can read there reads the keys.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from tagstream.state.errors import StateError
from tagstream.state.layout import StateLayout

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
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
    for name in folder.relative_to(root).parts:
        path /= name
        _make(path)
        _check(path)


def _make(path: Path) -> None:
    with suppress(FileExistsError):  # made by another process, too: what it is, is looked at
        path.mkdir(mode=stat.S_IRWXU)


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
