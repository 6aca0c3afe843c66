"""Make an orderly stream late, doubled or shuffled. Seeded, lazy, and nothing is lost."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def delayed(items: Iterable[T], share: float, distance: int, *, seed: int) -> Iterator[T]:
    """`share` of the items come up to `distance` places later; the others keep their order."""
    rng = random.Random(seed)
    waiting: list[tuple[int, int, T]] = []
    place = 0
    for place, item in enumerate(items):
        if rng.random() < share:
            heapq.heappush(waiting, (place + rng.randint(1, distance), place, item))
        else:
            yield item
        while waiting and waiting[0][0] <= place:
            yield heapq.heappop(waiting)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]


def duplicated(items: Iterable[T], share: float, distance: int, *, seed: int) -> Iterator[T]:
    """`share` of the items come a second time, up to `distance` places later."""
    rng = random.Random(seed)
    waiting: list[tuple[int, int, T]] = []
    for place, item in enumerate(items):
        yield item
        if rng.random() < share:
            heapq.heappush(waiting, (place + rng.randint(1, distance), place, item))
        while waiting and waiting[0][0] <= place:
            yield heapq.heappop(waiting)[2]
    while waiting:
        yield heapq.heappop(waiting)[2]


def shuffled(items: Iterable[T], window: int, *, seed: int) -> Iterator[T]:
    """Items leave a buffer of `window` places in random order."""
    rng = random.Random(seed)
    buffer: list[T] = []
    for item in items:
        buffer.append(item)
        if len(buffer) > window:
            at = rng.randrange(len(buffer))
            buffer[at], buffer[-1] = buffer[-1], buffer[at]
            yield buffer.pop()
    rng.shuffle(buffer)
    yield from buffer
