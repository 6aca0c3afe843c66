"""A file of a test as the readers take one: a storage and a name in it."""

from __future__ import annotations

import os
from pathlib import Path

from tagstream.table.storage.posix import PosixStorage


def stored(path: Path | str) -> tuple[PosixStorage, str]:
    """The storage of the file's folder, and the file's name."""
    folder, name = os.path.split(os.path.abspath(path))
    return PosixStorage(folder), name
