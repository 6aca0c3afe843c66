"""Time to live of a key: when its last change is too old to count, by the batch's pinned time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

_MINUTE_MS = 60_000


def minutes_of(time_ms: int) -> int:
    """Whole minutes since 1970, as kept in the location record (32 bits reach the year 10136)."""
    return time_ms // _MINUTE_MS


def expired(minutes: npt.NDArray[np.uint32], now_ms: int, ttl_ms: int) -> npt.NDArray[np.bool_]:
    """Which records have outlived `ttl_ms` at `now_ms`; none when `ttl_ms` is 0."""
    if ttl_ms <= 0:
        return np.zeros(len(minutes), np.bool_)
    limit = minutes_of(now_ms - ttl_ms)
    return minutes.astype(np.int64) < limit
