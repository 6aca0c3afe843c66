"""Calls that do not need one another: at once where a storage is a server, one after another where it is this machine's."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tagstream.table.storage.storage import Storage

_THREADS = 16


def at_once(storage: Storage, *calls: Callable[[], Any], threads: int = _THREADS) -> list[Any]:
    """What the calls return, in their order. Raises what the first of them raised, after all have ended.

    ``threads``: how many run at the same time at most. On a local storage a call that raises keeps those behind it from
    being made.
    """
    if not storage.is_remote or len(calls) < 2 or threads < 2:
        return [call() for call in calls]
    with ThreadPoolExecutor(min(threads, len(calls))) as pool:
        futures = [pool.submit(call) for call in calls]
    return [future.result() for future in futures]
