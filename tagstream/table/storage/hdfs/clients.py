"""The clients of a process: one for each cluster, made when first used; a child that was forked makes its own."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from hdfs_native import Client

from tagstream.table.storage.hdfs.errors import may_pass
from tagstream.table.storage.hdfs.place import Options

LOG = logging.getLogger("tagstream")
R = TypeVar("R")
# A NameNode that starts, or DataNodes that died and are not known as dead yet, are waited for.
RETRY_S = 180

_made: dict[tuple[str, Options], Client] = {}
_of_parents: list[dict[tuple[str, Options], Client]] = []
_lock = threading.Lock()


def client(url: str, options: Options) -> Client:
    """The client of a cluster in this process."""
    found = _made.get((url, options))
    if found is None:
        with _lock:
            found = _made.setdefault((url, options), _make(url, options))
    return found


def _make(url: str, options: Options) -> Client:
    config = dict(options)
    named = url != "hdfs://"
    return Client(url if named else None, config or None)


def until_done(action: Callable[[], R], what: str) -> R:
    """Do something again while HDFS says that it can't now. What it does must be fine to be done twice."""
    began, wait, tries = time.monotonic(), 0.1, 1
    while True:
        try:
            return action()
        except (OSError, RuntimeError) as e:
            if not may_pass(e) or time.monotonic() - began > RETRY_S:
                raise
            LOG.warning("%s: try %d failed (%s); it is tried again", what, tries, str(e).split("\n", 1)[0][:200])
        time.sleep(wait)
        wait, tries = min(2 * wait, 5.0), tries + 1


def _in_child() -> None:
    """A client of the parent would hang here, if it were used and even if it were let go: it waits for its threads.

    Also in a child that is about to run a program: Spark's JVM is started by one with code of its own before that.
    """
    global _lock, _made
    _lock = threading.Lock()
    _of_parents.append(_made)
    _made = {}


os.register_at_fork(after_in_child=_in_child)
