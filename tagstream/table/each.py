"""The same work for many things, several at a time: a store, and a disk that syncs, answers each after a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_THREADS = 16
_T = TypeVar("_T")
_R = TypeVar("_R")


def each(task: Callable[[_T], _R], items: Iterable[_T], threads: int = _THREADS) -> list[_R]:
    """What a task returns for each of the items, in their order; one alone needs no thread.

    ``threads``: how many run at the same time at most. Raises what the first of the items that failed
    raised, once those under way have ended.
    """
    work = list(items)
    if len(work) < 2:
        return [task(item) for item in work]
    with ThreadPoolExecutor(min(threads, len(work))) as pool:
        return list(pool.map(task, work))
