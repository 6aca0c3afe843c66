"""A compaction whose tasks another process carries out, without the writer lease.

Only the writer that holds the lease writes to the timeline. So the two meet in the instant's folder below
``.hoodie/.temp``:

1. The process with cores to spare writes ``tagstream.worker`` there, an offer to do the work, and writes it again
   every few seconds. An old one is of a process that is gone, and another takes its place.
2. The writer sees the offer and begins the plan (``begin_compaction``).
3. The process runs the tasks, which stage files, and writes ``tagstream.result``, their write statuses. The first
   result counts; files that another process has staged are named nowhere.
4. The writer sees the result and completes the plan (``complete_compaction``), which removes the folder.

Each may be killed at any step. A writer that finds a result after a new start still completes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tagstream.table.errors import CorruptFileError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.compaction import base_files_of, complete_compaction
from tagstream.table.services.compaction_plan import is_planned_here
from tagstream.table.services.planned import read_operations
from tagstream.table.storage.storage import create
from tagstream.table.timeline.commit_metadata import WriteStatus
from tagstream.table.timeline.instant import COMPACTION, Instant, State
from tagstream.table.write.markers import marker_folder

_WORKER, _RESULT = "tagstream.worker", "tagstream.result"
STALE_MS = 60_000


@dataclass(frozen=True)
class Elsewhere:
    """What is known of a plan's execution elsewhere. ``worker``: who offers or does it, None where nobody does or did;
    ``age_ms``: since it last gave a sign of life."""

    instant: str
    worker: str | None
    age_ms: int
    begun: bool
    statuses: tuple[WriteStatus, ...] | None

    @property
    def is_free(self) -> bool:
        """Whether a process may offer to carry the plan out."""
        return self.statuses is None and (self.worker is None or self.age_ms > STALE_MS)


def pending_plans(table: HoodieTable) -> list[str]:
    """The compactions of this project that wait on the timeline, oldest first. Hudi's are its own matter."""
    found = []
    for instant in table.timeline().pending:
        if instant.action == COMPACTION:
            planned = Instant(instant.time, COMPACTION, State.REQUESTED).file_name()
            if is_planned_here(table, planned):
                found.append(instant.time)
    return found


def look(table: HoodieTable, instant: str, now_ms: int) -> Elsewhere:
    """How far a pending plan is. CorruptFileError for a result that cannot be read."""
    storage, folder = table.storage, marker_folder(instant)
    found = {entry.name: entry for entry in storage.list(folder, (_WORKER, _RESULT))}
    inflight = f"{table.config.timeline_folder}/{Instant(instant, COMPACTION, State.INFLIGHT).file_name()}"
    worker, statuses = None, None
    try:
        if _WORKER in found:
            worker = storage.read(f"{folder}/{_WORKER}").decode()
        if _RESULT in found:
            statuses = _statuses(table, storage.read(f"{folder}/{_RESULT}"), instant)
    except FileNotFoundError:  # completed or taken back in between
        worker, statuses = None, None
    age = now_ms - found[_WORKER].mtime_ms if worker is not None else 0
    return Elsewhere(instant, worker, age, storage.exists(inflight), statuses)


def offer(table: HoodieTable, instant: str, worker: str) -> None:
    """Say that ``worker`` will carry the plan out, or that it still is at it."""
    table.storage.replace(f"{marker_folder(instant)}/{_WORKER}", worker.encode())


def hand_in(table: HoodieTable, instant: str, worker: str, statuses: Sequence[WriteStatus]) -> bool:
    """Write the result; False where another process was first, or the plan is not being carried out any more."""
    found = table.timeline().find(instant)
    if found is None or (found.action, found.state) != (COMPACTION, State.INFLIGHT):
        return False
    data = json.dumps({"worker": worker, "statuses": [status.to_json() for status in statuses]}).encode()
    return create(table.storage, f"{marker_folder(instant)}/{_RESULT}", data)


def complete_after_another(
    table: HoodieTable,
    instant: str,
    statuses: Sequence[WriteStatus],
    clock_ms: Callable[[], int],
    check: Callable[[], None] = lambda: None,
    reach: Callable[[str], None] = lambda _: None,
) -> Instant:
    """As ``complete_compaction``, for a plan that another holder of the lease has begun: it may have died while it gave the
    files their names, and they are given anew."""
    check()
    table.storage.delete_many(base_files_of(table, instant, read_operations(table, instant)))
    return complete_compaction(table, instant, statuses, clock_ms, check, reach)


def _statuses(table: HoodieTable, data: bytes, instant: str) -> tuple[WriteStatus, ...]:
    try:
        return tuple(WriteStatus.from_json(text) for text in json.loads(data)["statuses"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(
            f"{table.storage.where(f'{marker_folder(instant)}/{_RESULT}')} cannot be read ({error}): remove it, and the "
            "compaction is carried out anew"
        ) from error
