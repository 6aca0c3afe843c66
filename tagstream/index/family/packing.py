"""Spread pieces of work of known cost over tasks."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def pack(items: Sequence[T], cost: Callable[[T], float], tasks: int) -> list[list[T]]:
    """At most ``tasks`` lists of about equal cost: the dearest first, each to the list that has least so far."""
    heap = [(0.0, i) for i in range(min(tasks, len(items)))]
    packed: list[list[T]] = [[] for _ in heap]
    for item in sorted(items, key=cost, reverse=True):
        total, i = heapq.heappop(heap)
        packed[i].append(item)
        heapq.heappush(heap, (total + cost(item), i))
    return packed


def cut(items: Sequence[T], cost: Callable[[T], float], tasks: int) -> list[list[T]]:
    """The items in their order, cut into at most ``tasks`` runs of about equal cost."""
    share = sum(map(cost, items)) / max(1, tasks)
    runs: list[list[T]] = []
    done = 0.0
    for item in items:
        if not runs or (done >= share * len(runs) and len(runs) < tasks):
            runs.append([])
        runs[-1].append(item)
        done += cost(item)
    return runs
