"""Work of different weights shared evenly: the same for tasks that read files and for tasks that write them."""

from __future__ import annotations

from collections.abc import Iterable


def least_loaded(weights: Iterable[int], shares: int) -> list[int]:
    """For each weight, in their order, the share 0..shares-1 that had least before it: heaviest first is most even."""
    load = [0] * shares
    found = []
    for weight in weights:
        share = load.index(min(load))
        load[share] += weight
        found.append(share)
    return found
