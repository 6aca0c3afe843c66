"""One action on the timeline: its time, kind and state, its file names in both layouts, and its inflight file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from tagstream.table.errors import InstantConflictError
from tagstream.table.storage.storage import Storage


class State(StrEnum):
    """The state of an action. Later states win; readers see only COMPLETED actions."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"


ORDER = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}


class Action(StrEnum):
    """Kinds of actions on the timeline, as file names have them."""

    COMMIT = "commit"
    DELTA_COMMIT = "deltacommit"
    REPLACE_COMMIT = "replacecommit"
    COMPACTION = "compaction"
    LOG_COMPACTION = "logcompaction"
    CLUSTERING = "clustering"
    ROLLBACK = "rollback"
    CLEAN = "clean"
    SAVEPOINT = "savepoint"
    RESTORE = "restore"
    INDEXING = "indexing"
    SCHEMA_COMMIT = "schemacommit"


# The ones that code asks for, by names of this module.
COMMIT = Action.COMMIT
DELTA_COMMIT = Action.DELTA_COMMIT
REPLACE_COMMIT = Action.REPLACE_COMMIT
COMPACTION = Action.COMPACTION
LOG_COMPACTION = Action.LOG_COMPACTION
CLUSTERING = Action.CLUSTERING
ROLLBACK = Action.ROLLBACK
CLEAN = Action.CLEAN
SAVEPOINT = Action.SAVEPOINT
RESTORE = Action.RESTORE
INDEXING = Action.INDEXING

ACTIONS: frozenset[str] = frozenset(Action)
WRITE_ACTIONS: frozenset[str] = frozenset(
    {COMMIT, DELTA_COMMIT, REPLACE_COMMIT, COMPACTION, LOG_COMPACTION, CLUSTERING}
)
# The action in the file name of the completed instant.
COMPLETED_ACTION: dict[str, str] = {COMPACTION: COMMIT, LOG_COMPACTION: DELTA_COMMIT, CLUSTERING: REPLACE_COMMIT}

_NAME = re.compile(r"(?P<time>\d+)(?:_(?P<completed>\d+))?\.(?P<action>[a-z]+)(?:\.(?P<state>[a-z]+))?")


@dataclass(frozen=True)
class Instant:
    """``time`` is the instant time of the file names (17 digits, compared as text); ``completion_time``: version 8 on."""

    time: str
    action: str
    state: State
    completion_time: str | None = None

    @property
    def is_completed(self) -> bool:
        """True when readers see the action."""
        return self.state is State.COMPLETED

    @property
    def is_write(self) -> bool:
        """True for actions that add or replace data files."""
        return self.action in WRITE_ACTIONS

    def file_name(self) -> str:
        """The name of this state's file in the timeline folder."""
        if self.state is State.COMPLETED:
            time = f"{self.time}_{self.completion_time}" if self.completion_time else self.time
            return f"{time}.{COMPLETED_ACTION.get(self.action, self.action)}"
        # The inflight file of a plain commit does not name its action, as in Hudi's first versions.
        if self.state is State.INFLIGHT and self.action == COMMIT:
            return f"{self.time}.inflight"
        return f"{self.time}.{self.action}.{self.state.value}"


@lru_cache(maxsize=1 << 16)
def parse_instant(file_name: str) -> Instant | None:
    """The instant of a timeline file; None for other files."""
    match = _NAME.fullmatch(file_name)
    if match is None:
        return None
    time, completed, action, state = match.group("time", "completed", "action", "state")
    if state is None and action in ("inflight", "requested"):
        return Instant(time, COMMIT, State(action))
    if action not in ACTIONS:
        return None
    if state is None:
        return Instant(time, action, State.COMPLETED, completed)
    if state not in (State.REQUESTED, State.INFLIGHT):
        return None
    return Instant(time, action, State(state))


def newest_states(names: Iterable[str]) -> tuple[Instant, ...]:
    """The newest state of each action in these file names, sorted by time."""
    newest: dict[tuple[str, str], Instant] = {}
    for name in names:
        instant = parse_instant(name)
        if instant is None:
            continue
        # A compaction completes as a commit: both names are one action.
        key = (instant.time, COMPLETED_ACTION.get(instant.action, instant.action))
        seen = newest.get(key)
        if seen is None or ORDER[instant.state] > ORDER[seen.state]:
            newest[key] = instant
    return tuple(sorted(newest.values(), key=lambda i: (i.time, i.action)))


def write_inflight(
    storage: Storage,
    folder: str,
    time: str,
    action: str,
    content: bytes = b"",
    check: Callable[[], None] = lambda: None,
) -> None:
    """Write the inflight file of a planned action into the timeline's ``folder``, unless it exists.

    ``check`` (of the lease) is called before the write. InstantConflictError when the plan (the requested file) was
    removed. A process may be paused before the write for so long that another one removes the plan. The inflight file
    is then deleted again: without the plan, an unfinished action would stop every reader of the table.
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
            f"{storage.where(planned)} was removed by another process before this one began to execute it: find out which "
            "other process writes into the table"
        )
