"""A compaction whose tasks another process runs, without the writer lease.

Only the writer with the lease writes to the timeline. So the two processes communicate through the instant's folder
below ``.hoodie/.temp``:

1. The worker process writes ``tagstream.worker`` there, an offer to do the work, and writes it again every few seconds.
An old offer is from a dead process, and another process may replace it. 2. The writer reads the offer and begins the
plan (``begin_compaction``). 3. The worker runs the tasks, which write files under temporary names, and writes
``tagstream.result``, their write statuses. The first result counts; files of another worker are in no result. 4. The
writer reads the result and completes the plan (``complete_compaction``), which removes the folder.

Each process may be killed at any step. A restarted writer that finds a result completes the plan.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tagstream.table.errors import CorruptFileError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.compaction import complete_compaction, groups_of
from tagstream.table.services.planned import base_files
from tagstream.table.services.plans import is_planned_here, read_operations
from tagstream.table.storage.storage import create
from tagstream.table.timeline.commit_metadata import WriteStatus
from tagstream.table.timeline.instant import COMPACTION, Instant, State
from tagstream.table.write.markers import marker_folder

_WORKER, _RESULT = "tagstream.worker", "tagstream.result"
STALE_MS = 60_000


@dataclass(frozen=True)
class Elsewhere:
    """A plan's execution in another process. ``worker``: the process that offers or does it, None if there was none;
    ``age_ms``: since its last heartbeat."""

    instant: str
    worker: str | None
    age_ms: int
    begun: bool
    statuses: tuple[WriteStatus, ...] | None

    @property
    def is_free(self) -> bool:
        """Whether a process may offer to execute the plan."""
        return self.statuses is None and (self.worker is None or self.age_ms > STALE_MS)


def pending_plans(table: HoodieTable) -> list[str]:
    """The pending compactions of this project, oldest first, without Hudi's."""
    found = []
    for instant in table.timeline().pending:
        if instant.action == COMPACTION:
            planned = Instant(instant.time, COMPACTION, State.REQUESTED).file_name()
            if is_planned_here(table, planned):
                found.append(instant.time)
    return found


def look(table: HoodieTable, instant: str, now_ms: int) -> Elsewhere:
    """The state of a pending plan's execution. CorruptFileError for a result that cannot be read."""
    storage, folder = table.storage, marker_folder(instant)
    found = {entry.name: entry for entry in storage.list(folder, (_WORKER, _RESULT))}
    inflight = table.instant_path(Instant(instant, COMPACTION, State.INFLIGHT))
    worker, statuses = None, None
    try:
        if _WORKER in found:
            worker = storage.read(f"{folder}/{_WORKER}").decode()
        if _RESULT in found:
            statuses = _statuses(table, storage.read(f"{folder}/{_RESULT}"), instant)
    except FileNotFoundError:  # completed or rolled back in the meantime
        worker, statuses = None, None
    age = now_ms - found[_WORKER].mtime_ms if worker is not None else 0
    return Elsewhere(instant, worker, age, storage.exists(inflight), statuses)


def offer(table: HoodieTable, instant: str, worker: str) -> None:
    """Record that ``worker`` will execute the plan, or still executes it."""
    table.storage.replace(f"{marker_folder(instant)}/{_WORKER}", worker.encode())


def hand_in(table: HoodieTable, instant: str, worker: str, statuses: Sequence[WriteStatus]) -> bool:
    """Write the result; False if another process was first, or the plan is no longer being executed."""
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
    """As ``complete_compaction``, for a plan that a writer with an earlier lease has begun. It may have died while it
    gave the files their names, so the files get their names again."""
    check()
    table.storage.delete_many(base_files(table, instant, groups_of(read_operations(table, instant))))
    return complete_compaction(table, instant, statuses, clock_ms, check, reach)


def _statuses(table: HoodieTable, data: bytes, instant: str) -> tuple[WriteStatus, ...]:
    try:
        return tuple(WriteStatus.from_json(text) for text in json.loads(data)["statuses"])
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(
            f"{table.storage.where(f'{marker_folder(instant)}/{_RESULT}')} cannot be read ({error}): remove it, and "
            f"the compaction is executed again"
        ) from error
