"""Whether a write is still pending, asked by its tasks before they hand anything on."""

from __future__ import annotations

import time
from collections.abc import Callable

from tagstream.table.errors import TableNotFoundError
from tagstream.table.storage.storage import META_FOLDER, Storage
from tagstream.table.timeline.instant import Instant, State

# A task that stands still meanwhile finds its answer too old when it goes on: this clock does not stand still with it.
_FRESH_S = 1.0
_yes: dict[tuple[str, str], float] = {}


def is_inflight(
    storage: Storage, timeline_folder: str, instant: str, action: str, clock_s: Callable[[], float] = time.monotonic
) -> bool:
    """Whether the inflight file of an action is there: nobody has taken the write back.

    On an object store, where each look is a request, a yes counts for a second in this process: one process asks for many
    files and key groups of a batch, and the look cannot keep anything from happening just after it anyway.
    """
    rel = f"{timeline_folder}/{Instant(instant, action, State.INFLIGHT).file_name()}"
    key, now = (storage.root, rel), clock_s()
    if storage.publishes_by_copy and now - _yes.get(key, float("-inf")) < _FRESH_S:
        return True
    found = storage.exists(rel)
    if found:
        for old in [other for other in list(_yes) if other[0] == storage.root]:
            _yes.pop(old, None)  # another thread of the task may have been first
        _yes[key] = now
    return found


def check_seen(storage: Storage) -> None:
    """TableNotFoundError for a task that sees no table at all: its host does not share the folder that the driver has.

    Asked where an instant is not pending: else that would look like another writer's work, and be tried again for ever.
    """
    if not storage.exists(META_FOLDER):
        raise TableNotFoundError(
            f"a task on another host than the driver's sees no table at {storage.root}: table, checkpoint and source must "
            "lie where all of Spark's hosts see them, under the same path or on a store (S3, HDFS, ...)"
        )
