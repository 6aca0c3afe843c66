"""Scratch files on the local disk, named by the process that works with them; those of dead processes are removed."""

from __future__ import annotations

import itertools
import os
import shutil

_counter = itertools.count()


def scratch_path(folder: str, kind: str) -> str:
    """A new name in a local folder, which is made; what processes that are dead left of this kind goes.

    Names of this kind are ``<kind>.<pid>.<n>``.
    """
    os.makedirs(folder, exist_ok=True)
    for name in os.listdir(folder):
        pid = name.removeprefix(f"{kind}.").split(".")[0]
        if name.startswith(f"{kind}.") and pid.isdigit() and not _is_alive(int(pid)):
            remove(os.path.join(folder, name))
    return os.path.join(folder, f"{kind}.{os.getpid()}.{next(_counter)}")


def remove(path: str) -> None:
    """Remove a scratch file or folder; a missing one is fine."""
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.exists(path):
        os.unlink(path)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
