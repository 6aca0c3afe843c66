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
    """How far an action is. Later states win; only COMPLETED is visible to readers."""

    REQUESTED = "requested"
    INFLIGHT = "inflight"
    COMPLETED = "completed"


ORDER = {State.REQUESTED: 0, State.INFLIGHT: 1, State.COMPLETED: 2}

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

ACTIONS = frozenset({
    COMMIT, DELTA_COMMIT, REPLACE_COMMIT, COMPACTION, LOG_COMPACTION, CLUSTERING,
    ROLLBACK, CLEAN, SAVEPOINT, RESTORE, INDEXING, "schemacommit",
})  # fmt: skip
WRITE_ACTIONS = frozenset({COMMIT, DELTA_COMMIT, REPLACE_COMMIT, COMPACTION, LOG_COMPACTION, CLUSTERING})
# What an action is called once it is completed.
COMPLETED_ACTION = {COMPACTION: COMMIT, LOG_COMPACTION: DELTA_COMMIT, CLUSTERING: REPLACE_COMMIT}

_NAME = re.compile(r"(?P<time>\d+)(?:_(?P<completed>\d+))?\.(?P<action>[a-z]+)(?:\.(?P<state>[a-z]+))?")


@dataclass(frozen=True)
class Instant:
    """``time`` as in the file names (17 digits, compared as text); ``completion_time`` from version 8 on."""

    time: str
    action: str
    state: State
    completion_time: str | None = None

    @property
    def is_completed(self) -> bool:
        """True once readers see it."""
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
        # The inflight file of a plain commit carries no action: so it has been since the first versions.
        if self.state is State.INFLIGHT and self.action == COMMIT:
            return f"{self.time}.inflight"
        return f"{self.time}.{self.action}.{self.state.value}"


@lru_cache(maxsize=1 << 16)
def parse_instant(file_name: str) -> Instant | None:
    """The instant a timeline file stands for; None for every other file."""
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
    """The newest state of each action that these files stand for, sorted by time."""
    newest: dict[tuple[str, str], Instant] = {}
    for name in names:
        instant = parse_instant(name)
        if instant is None:
            continue
        # A compaction completes as a commit: both names stand for one action.
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
