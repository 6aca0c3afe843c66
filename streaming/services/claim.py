"""Whether a compaction that is inflight may be taken up: left by a process that is gone, or at work elsewhere.

Hudi gives no sign of life while it compacts, and two that carry out one plan take each other's files away. So a plan that is
inflight is taken up only where this project began it (a file beside its markers says so, and the writer lease says that
nobody but this process is at it now), or when nothing of it was written for as long as a heartbeat counts.
"""

from __future__ import annotations

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.heartbeat import DEFAULT_TIMEOUT_MS, is_alive
from tagstream.table.timeline.instant import COMPACTION, Instant, State
from tagstream.table.write.markers import marker_folder

_CLAIM = "tagstream.compaction"


def claim(storage: Storage, instant: str) -> None:
    """Say that this project carries the plan out."""
    storage.replace(f"{marker_folder(instant)}/{_CLAIM}", b"")


def may_take_up(table: HoodieTable, instant: str, now_ms: int) -> bool:
    """Whether a plan on the timeline may be carried out here. The caller holds the writer lease."""
    storage = table.storage
    if is_alive(storage, instant, now_ms):
        return False
    name = Instant(instant, COMPACTION, State.INFLIGHT).file_name()
    begun = [e for e in storage.list(table.config.timeline_folder, (name,)) if e.name == name]
    if not begun or storage.exists(f"{marker_folder(instant)}/{_CLAIM}"):
        return True
    newest = max(begun[0].mtime_ms, _newest_below(storage, marker_folder(instant)))
    return now_ms - newest > DEFAULT_TIMEOUT_MS


def _newest_below(storage: Storage, folder: str) -> int:
    newest = 0
    for entry in storage.list(folder):
        newest = max(newest, entry.mtime_ms)
        if entry.is_dir:
            newest = max(newest, _newest_below(storage, f"{folder}/{entry.name}"))
    return newest
