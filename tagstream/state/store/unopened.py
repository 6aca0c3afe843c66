"""Local stores of key groups that moved to another host: removed when no task of this one has opened them for a day.

Once an hour of the host, whatever the number of its processes, the task that opens a store then looks at all of the
checkpoint's, in a thread of its own. A file says when that was done last. All times are those of the file system. It is a
day of the host's work that counts, the one before the last look: a stream that runs once a day, or rested, finds all its
stores.

A store goes by a rename under its own lock. Whoever opens it at that moment finds it locked, or gone, and builds it again.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress

from tagstream.state.store import scratch
from tagstream.state.store.holders import alone

_EVERY_S = 3_600
_UNOPENED_S = 86_400
_LOOKED = "looked"
_GONE = ".gone"


def look_around(local_dir: str, opened: str) -> threading.Thread | None:
    """Remove what nobody opens any more, if an hour has passed; the thread that does it, else None.

    `opened`: the path of the store that was opened just now. Its folder changes with each opening, so it tells the present.
    """
    mark = os.path.join(local_dir, _LOOKED)
    try:
        now, last = os.stat(opened).st_mtime, os.stat(mark).st_mtime
    except FileNotFoundError:  # the first look of all: how far back the host's work goes is not known
        now, last = 0.0, None
    if last is not None and abs(now - last) < _EVERY_S:
        return None
    try:
        scratch.renew(mark)
    except OSError:  # a full disk: else each opening would look
        return None
    if last is None:
        return None
    thread = threading.Thread(
        target=remove_unopened, args=(local_dir, min(now, last) - _UNOPENED_S), name="unopened-stores", daemon=True
    )
    thread.start()
    return thread


def remove_unopened(local_dir: str, before: float) -> list[str]:
    """Remove the stores of key groups of which nothing has changed since `before` (seconds of the file system's clock) and
    which nobody has open; returns their paths. What killed processes left beside them goes, too.
    """
    gone = []
    with suppress(OSError):  # only a cache: whatever it is, the next look comes in an hour
        for label in os.listdir(local_dir):
            if label.isdigit():
                with suppress(OSError):  # another process is at it, too
                    gone += _remove_group(os.path.join(local_dir, label), before)
    return gone


def _remove_group(folder: str, before: float) -> list[str]:
    _remove(folder, [name for name in scratch.names(folder) if name.endswith(_GONE)])  # of a process that was killed
    names = scratch.names(folder)
    if any(_changed(folder, name) >= before for name in names):
        return []
    gone: list[str] = []
    for name in (n for n in names if n.startswith("store-") and n.removeprefix("store-").isdigit()):
        path = os.path.join(folder, name)
        with alone(path) as free:
            # Looked at again: it may have been opened and closed meanwhile.
            if not free or _changed(folder, name) >= before:
                return gone
            os.rename(path, path + _GONE)
        gone.append(path)
    # The folder stays: whoever makes a store in it now finds it.
    left = scratch.names(folder)
    _remove(folder, [name for name in left if name.endswith(_GONE) or _changed(folder, name) < before])
    return gone


def _remove(folder: str, names: list[str]) -> None:
    for name in names:
        scratch.remove(os.path.join(folder, name))


def _changed(folder: str, name: str) -> float:
    return os.lstat(os.path.join(folder, name)).st_mtime
