"""Counts of one tag call, for the batch's report."""

from __future__ import annotations

import numpy as np

from tagstream.state.store.store_meta import StoreMeta
from tagstream.state.tag.decide import Decision

STAT_NAMES = (
    "records",
    "inserts",
    "updates",
    "deletes",
    "moves",
    "late",
    "superseded",
    "unknown_deletes",
    "skipped",
    "live_keys",
    "tombstones",
    "bytes",
    "caught_up",
    "twice",
)


def empty_stats() -> dict[str, int]:
    """All counts at zero. `caught_up` and `twice`: keys that epochs changed, and that they found in two places."""
    return dict.fromkeys(STAT_NAMES, 0)


def count(records: int, decision: Decision, meta: StoreMeta, store_bytes: int) -> dict[str, int]:
    """Counts of a batch. `inserts` leaves moves out; `superseded` records lost to a newer one of their key in the batch.

    `skipped`: records that say nothing of a row, counted by who leaves them out.
    `live_keys`, `tombstones` and `bytes` (of the local store) describe the whole key group after the batch.
    """
    n = {
        name: int(np.count_nonzero(getattr(decision, name))) for name in ("late", "insert", "update", "move", "delete")
    }
    return {
        "records": records,
        "inserts": n["insert"],
        "updates": n["update"],
        "deletes": n["delete"],
        "moves": n["move"],
        "late": n["late"],
        "superseded": records - len(decision.late),
        "unknown_deletes": int(np.count_nonzero(decision.buried)) - n["delete"],
        "skipped": 0,
        "live_keys": meta.live,
        "tombstones": meta.tombstones,
        "bytes": store_bytes,
    }
