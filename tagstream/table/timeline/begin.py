"""The start of an action whose plan is on the timeline: its inflight file."""

from __future__ import annotations

from collections.abc import Callable

from tagstream.table.errors import InstantConflictError
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.instant import Instant, State


def write_inflight(
    storage: Storage,
    folder: str,
    time: str,
    action: str,
    content: bytes = b"",
    check: Callable[[], None] = lambda: None,
) -> None:
    """Write the inflight file of a planned action into the timeline's ``folder``; nothing where it is there.

    ``check`` (the lease's) is called before it is written.

    InstantConflictError where the plan is not there any more. A process that was paused before it wrote the file, for so
    long that another one removed the plan, leaves no such file: an unfinished action without its plan keeps everybody from
    reading the table.
    """
    planned, begun = (
        f"{folder}/{Instant(time, action, state).file_name()}" for state in (State.REQUESTED, State.INFLIGHT)
    )
    if storage.exists(begun):
        return
    check()
    storage.write_new(begun, content)
    if not storage.exists(planned):
        storage.delete(begun)
        raise InstantConflictError(
            f"{storage.where(planned)} was removed by another process before this one began to carry it out: look for who "
            "else writes into the table"
        )
