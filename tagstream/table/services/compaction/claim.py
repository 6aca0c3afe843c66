"""Whether a compaction that is inflight may be taken up: left by a process that is gone, or at work elsewhere.

Hudi gives no sign of life while it compacts, and two that carry out one plan take each other's files away. So a plan is
taken up at once only where this project has made it, and, if it is inflight, has begun it too (a file beside its markers
says so); the writer lease says that nobody but this process is at it now. Any other is left until nothing of it was written
for as long as a heartbeat counts.
"""

from __future__ import annotations

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.compaction.plan import PLANNED_BY, PLANNER
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.heartbeat import DEFAULT_TIMEOUT_MS, is_alive
from tagstream.table.timeline.instant import COMPACTION, Instant, State
from tagstream.table.write.markers import marker_folder

_CLAIM = "tagstream.compaction"


def claim(storage: Storage, instant: str) -> None:
    """Say that this project carries the plan out."""
    storage.replace(f"{marker_folder(instant)}/{_CLAIM}", b"")


def may_take_up(table: HoodieTable, instant: str, now_ms: int, action: str = COMPACTION) -> bool:
    """Whether a plan on the timeline may be carried out here. The caller holds the writer lease.

    ``action``: what the pending plan is called on the timeline.
    """
    storage = table.storage
    if is_alive(storage, instant, now_ms):
        return False
    planned, name = (Instant(instant, action, state).file_name() for state in (State.REQUESTED, State.INFLIGHT))
    files = {e.name: e.mtime_ms for e in storage.list(table.config.timeline_folder, (f"{instant}.{action}.",))}
    own = storage.exists(f"{marker_folder(instant)}/{_CLAIM}") if name in files else is_planned_here(table, planned)
    if own:
        return True
    newest = max(*files.values(), _newest_below(storage, marker_folder(instant)), 0)
    return now_ms - newest > DEFAULT_TIMEOUT_MS


def is_planned_here(table: HoodieTable, planned: str) -> bool:
    """Whether this project made the plan in the timeline's file ``planned``. FileNotFoundError when it is not there."""
    rel = f"{table.config.timeline_folder}/{planned}"
    plan = read_record(table.storage.read(rel), table.storage.where(rel))
    return (plan.get("extraMetadata") or {}).get(PLANNED_BY) == PLANNER


def _newest_below(storage: Storage, folder: str) -> int:
    newest = 0
    for entry in storage.list(folder):
        newest = max(newest, entry.mtime_ms)
        if entry.is_dir:
            newest = max(newest, _newest_below(storage, f"{folder}/{entry.name}"))
    return newest
