"""Who has a local store open: this process, by a list of its own, or another one, by the lock that RocksDB has on its file.

The list is needed because such a lock is the whole process's: the process would get it a second time, and give it up for
good by closing the file.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tagstream.state.errors import LockedStoreError

LOCK_FILE = "LOCK"

_here: Counter[str] = Counter()
_guard = threading.Lock()


def opens(path: str) -> None:
    """This process is about to open the store at a path; waits for one of its threads that has it `alone`."""
    with _guard:
        _here[os.path.abspath(path)] += 1


def closed(path: str) -> None:
    """This process has closed the store, or failed to open it."""
    with _guard:
        _here[os.path.abspath(path)] -= 1
        if not _here[os.path.abspath(path)]:
            del _here[os.path.abspath(path)]


@contextmanager
def alone(path: str) -> Iterator[bool]:
    """Keep everybody from opening the store while in here; False when somebody has it open.

    Who tries meanwhile waits, or finds it locked. A store without a lock file counts as one that somebody makes.
    """
    with _guard:
        if _here[os.path.abspath(path)]:
            yield False
            return
        try:
            lock = os.open(os.path.join(path, LOCK_FILE), os.O_RDWR)
        except FileNotFoundError:
            yield False
            return
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True
        finally:
            os.close(lock)


@contextmanager
def making(path: str) -> Iterator[None]:
    """Make the folder of a store and keep everybody from opening it until its files are there.

    LockedStoreError when another process does the same.
    """
    opens(path)
    try:
        os.makedirs(path, exist_ok=True)
        lock = os.open(os.path.join(path, LOCK_FILE), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        except BlockingIOError as e:
            raise LockedStoreError(f"local store {path} is made by another process") from e
        finally:
            os.close(lock)
    finally:
        closed(path)
