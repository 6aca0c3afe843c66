"""Which keys count no more: all have the time to live of `ttl_ms`, deleted ones (tombstones) may have a shorter one."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tagstream.state.layout import StateLayout
from tagstream.state.store.codec import TOMBSTONE, Records
from tagstream.state.ttl import expired


def outlived(records: Records, now_ms: int, layout: StateLayout) -> npt.NDArray[np.bool_]:
    """Which records count no more at `now_ms`: keys without a record for too long, and keys deleted too long ago."""
    buried = (records.flags & TOMBSTONE) != 0
    found: npt.NDArray[np.bool_] = buried & expired(records.minutes, now_ms, layout.tombstone_ttl_ms)
    found |= expired(records.minutes, now_ms, layout.ttl_ms)
    return found
