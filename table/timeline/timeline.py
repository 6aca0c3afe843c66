"""The active timeline: which actions a table has, which are completed, and so which files and blocks count."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from tagstream.table.errors import CorruptFileError
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.avro_timeline import MAGIC, read_record
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import (
    COMPACTION,
    COMPLETED_ACTION,
    LOG_COMPACTION,
    ORDER,
    REPLACE_COMMIT,
    ROLLBACK,
    SAVEPOINT,
    Instant,
    parse_instant,
)

FileGroupId = tuple[str, str]

# The last look at a few tables' timelines: folder -> (its inode and time of change, its names, what was made of them)
_SEEN: dict[str, tuple[tuple[int, int], tuple[str, ...], Timeline]] = {}
_TABLES_SEEN = 4


@dataclass(frozen=True)
class Timeline:
    """One look at the timeline folder; a value, so that every task of a batch works from the same look.

    ``instants``: the newest state of each action, sorted by time. ``pending_compactions`` and ``replaced``: the
    instant by (partition path, file id) of unfinished compaction plans and of completed replace commits.
    """

    folder: str
    instants: tuple[Instant, ...]
    pending_compactions: Mapping[FileGroupId, str] = field(default_factory=dict)
    replaced: Mapping[FileGroupId, str] = field(default_factory=dict)

    @staticmethod
    def load(storage: Storage, folder: str) -> Timeline:
        """Read the folder, the plans of pending compactions and the completed replace commits.

        A batch looks several times. A file of the timeline is written once, so the look before is given again when the
        folder was not touched and has the same names.
        """
        place = storage.path(folder)
        state = _state_of(place)  # before the names: a change in between is seen the next time
        names = storage.names(folder)
        seen = _SEEN.get(place)
        if seen is not None and seen[:2] == (state, names):
            return seen[2]
        timeline = Timeline(folder, _newest_states(names))
        timeline = replace(
            timeline,
            pending_compactions=_compaction_plans(storage, timeline),
            replaced=_replaced_groups(storage, timeline),
        )
        while len(_SEEN) >= _TABLES_SEEN:
            _SEEN.pop(next(iter(_SEEN)), None)
        _SEEN[place] = state, names, timeline
        return timeline

    @cached_property
    def completed_writes(self) -> tuple[Instant, ...]:
        """Completed actions that wrote data, oldest first."""
        return tuple(i for i in self.instants if i.is_completed and i.is_write)

    @property
    def pending(self) -> tuple[Instant, ...]:
        """Every action that is not completed, oldest first."""
        return tuple(i for i in self.instants if not i.is_completed)

    @property
    def pending_writes(self) -> tuple[Instant, ...]:
        """Unfinished writes. A compaction, log compaction or clustering is a plan others rely on: not among them."""
        return tuple(i for i in self.pending if i.is_write and i.action not in COMPLETED_ACTION)

    @property
    def pending_rollbacks(self) -> tuple[Instant, ...]:
        """Rollbacks that were begun and not finished."""
        return tuple(i for i in self.pending if i.action == ROLLBACK)

    @property
    def newest_completed(self) -> str | None:
        """Time of the newest completed write; None for a table without commits."""
        return self.completed_writes[-1].time if self.completed_writes else None

    @property
    def newest(self) -> str | None:
        """The greatest time any action has, completed or not: the next instant must be greater."""
        times = [i.time for i in self.instants] + [i.completion_time for i in self.instants if i.completion_time]
        return max(times, default=None)

    @cached_property
    def _completed_times(self) -> frozenset[str]:
        return frozenset(i.time for i in self.completed_writes)

    @cached_property
    def start(self) -> str | None:
        """Time of the first active write that no savepoint holds back; everything older was archived."""
        savepoints = {i.time for i in self.instants if i.action == SAVEPOINT}
        return next((i.time for i in self.instants if i.is_write and i.time not in savepoints), None)

    def is_valid(self, time: str) -> bool:
        """True when files and blocks of this instant count: completed, or so old that it was archived."""
        return time in self._completed_times or (self.start is not None and time < self.start)

    def completion_time(self, time: str) -> str:
        """When a completed action was completed (version 8 on); its own time where that is not recorded."""
        return self._completion_times.get(time, time)

    @cached_property
    def _completion_times(self) -> dict[str, str]:
        return {i.time: i.completion_time for i in self.instants if i.completion_time}

    def find(self, time: str) -> Instant | None:
        """The write action of this time."""
        return next((i for i in self.instants if i.time == time and i.is_write), None)

    def metadata(self, storage: Storage, instant: Instant) -> CommitMetadata:
        """The content of a completed write's file."""
        rel = f"{self.folder}/{instant.file_name()}"
        return CommitMetadata.from_bytes(storage.read(rel), storage.path(rel))

    def metadata_with(self, storage: Storage, instant: Instant, texts: Collection[str]) -> CommitMetadata | None:
        """As :meth:`metadata`; None, and not parsed, where none of the texts (letters, digits, ``-``) is in the content."""
        rel = f"{self.folder}/{instant.file_name()}"
        data = storage.read(rel)
        there = data.startswith(MAGIC) or any(text.encode() in data for text in texts)  # Avro may be compressed
        if not there:
            return None
        return CommitMetadata.from_bytes(data, storage.path(rel))


def _state_of(folder: str) -> tuple[int, int]:
    try:
        stat = os.stat(folder)
    except FileNotFoundError:
        return 0, 0
    return stat.st_ino, stat.st_mtime_ns


def _newest_states(names: Iterable[str]) -> tuple[Instant, ...]:
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


def _compaction_plans(storage: Storage, timeline: Timeline) -> dict[FileGroupId, str]:
    found: dict[FileGroupId, str] = {}
    for instant in timeline.pending:
        if instant.action not in (COMPACTION, LOG_COMPACTION):
            continue
        rel = f"{timeline.folder}/{instant.time}.{instant.action}.requested"
        try:
            plan = read_record(storage.read(rel), storage.path(rel))
        except FileNotFoundError:
            raise CorruptFileError(
                f"{storage.path(rel)} is missing, the plan of an unfinished {instant.action}: without it nobody can tell "
                "which log files count; restore it, or read again if a compaction has just ended"
            ) from None
        # A log compaction only rewrites logs into logs: it starts no slice.
        if instant.action == COMPACTION:
            for operation in plan.get("operations") or ():
                found[(operation.get("partitionPath") or "", operation["fileId"])] = instant.time
    return found


def _replaced_groups(storage: Storage, timeline: Timeline) -> dict[FileGroupId, str]:
    found: dict[FileGroupId, str] = {}
    for instant in timeline.completed_writes:  # oldest first: where two replace a group the later one counts
        if instant.action == REPLACE_COMMIT:
            for partition, file_ids in timeline.metadata(storage, instant).replaced.items():
                found.update({(partition, file_id): instant.time for file_id in file_ids})
    return found
