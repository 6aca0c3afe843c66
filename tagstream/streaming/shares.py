"""Distribute work of different weights evenly over tasks, for tasks that read files and tasks that write them."""

from __future__ import annotations

from collections.abc import Iterable


def least_loaded(weights: Iterable[int], shares: int) -> list[int]:
    """For each weight, in order, the share 0..shares-1 with the least weight so far. Heaviest first is most even."""
    load = [0] * shares
    found = []
    for weight in weights:
        share = load.index(min(load))
        load[share] += weight
        found.append(share)
    return found
