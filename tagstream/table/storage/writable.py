"""Whether files could be written below a storage's root, found out without leaving a trace."""

from __future__ import annotations

import os

from tagstream.table.storage.posix import PosixStorage
from tagstream.table.storage.storage import Storage


def why_not_writable(storage: Storage) -> str | None:
    """Why no file can be written there; None when nothing speaks against it, or when the kind of store can't tell before.

    A folder that is not there yet would be made in the nearest one above that is.
    """
    if not isinstance(storage, PosixStorage):
        return None
    place = storage.root
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        return f"{place} is a file, or a link that leads nowhere"
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        return f"user {os.geteuid()} may not read and write in {place}, or its file system is read-only"
    return None
