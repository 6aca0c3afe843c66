"""The active timeline: a table's actions and savepoints, which actions are completed, which files and blocks are valid.

A savepoint is a completed write whose files must not be deleted (Hudi's HoodieSavepointMetadata).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from tagstream.table.errors import CorruptFileError
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.avro_timeline import MAGIC, Plan, read_plan, read_record, requested_name
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import (
    CLUSTERING,
    COMMIT,
    COMPACTION,
    COMPLETED_ACTION,
    DELTA_COMMIT,
    REPLACE_COMMIT,
    ROLLBACK,
    SAVEPOINT,
    Instant,
    State,
    newest_states,
)

FileGroupId = tuple[str, str]

_TABLES_SEEN = 4


@dataclass(frozen=True)
class Timeline:
    """A snapshot of the timeline folder. It is a value, so that all tasks of a batch use the same one.

    It is pickled in compressed form: a few bytes for each instant. The tasks of one Python worker decompress it once.
    ``instants``: the newest state of each action, sorted by time. ``pending_compactions``, ``pending_clusterings``
    and ``replaced``: the instant by (partition path, file id) of unfinished plans and of completed replace commits.
    """

    folder: str
    instants: tuple[Instant, ...]
    pending_compactions: Mapping[FileGroupId, str] = field(default_factory=dict)
    pending_clusterings: Mapping[FileGroupId, str] = field(default_factory=dict)
    replaced: Mapping[FileGroupId, str] = field(default_factory=dict)

    @staticmethod
    def load(storage: Storage, folder: str) -> Timeline:
        """Read the folder, the plans of pending compactions and clusterings, and the completed replace commits.

        A batch calls this several times. Files of the timeline are written once. So the previous result is returned
        when the folder's modification time and its names are unchanged. Otherwise replace commits that were read before
        are not read again.
        """
        stamp = storage.stamp(folder)  # before the names: a change in between is seen by the next call
        names = storage.names(folder)
        for seen in _SEEN:
            if (seen.folder, seen.stamp, seen.names) == (folder, stamp, names) and seen.storage == storage:
                return seen.timeline
        others = [seen for seen in _SEEN if (seen.folder, seen.storage) != (folder, storage)]
        before = next((seen.replaced for seen in _SEEN if (seen.folder, seen.storage) == (folder, storage)), {})
        timeline = Timeline(folder, newest_states(names))
        replaced = _replaced_by_commit(storage, timeline, before)
        timeline = replace(
            timeline,
            pending_compactions=_planned(storage, timeline, (COMPACTION,)),
            pending_clusterings=_planned(storage, timeline, (CLUSTERING, REPLACE_COMMIT)),
            replaced={group: time for found in replaced.values() for group, time in found.items()},
        )
        _SEEN[:] = [*others, _Look(storage, folder, stamp, names, timeline, replaced)][-_TABLES_SEEN:]
        return timeline

    def with_completed(self, completed: Instant) -> Timeline | None:
        """The timeline after this pending commit was completed and nothing else changed.

        None when more than the file name is necessary, as for a replace commit.
        """
        if completed.action not in (COMMIT, DELTA_COMMIT):
            return None
        made = (completed.time, completed.action)
        return replace(self, instants=tuple(completed if (i.time, i.action) == made else i for i in self.instants))

    def __reduce__(self) -> tuple[Callable[[bytes], Timeline], tuple[bytes]]:
        return _unpacked, (_pack(self),)

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
        """Unfinished writes without compactions, log compactions and clusterings: other writers rely on their plans."""
        plans = set(self.pending_clusterings.values())  # of version 6: replacecommits with a clustering plan
        return tuple(i for i in self.pending if i.is_write and i.action not in COMPLETED_ACTION and i.time not in plans)

    @property
    def pending_rollbacks(self) -> tuple[Instant, ...]:
        """Unfinished rollbacks."""
        return tuple(i for i in self.pending if i.action == ROLLBACK)

    @property
    def newest_completed(self) -> str | None:
        """Time of the newest completed write; None for a table without commits."""
        return self.completed_writes[-1].time if self.completed_writes else None

    @property
    def newest(self) -> str | None:
        """The greatest instant or completion time of any action, completed or not: the next instant must be greater."""
        times = [i.time for i in self.instants] + [i.completion_time for i in self.instants if i.completion_time]
        return max(times, default=None)

    @cached_property
    def _completed_times(self) -> frozenset[str]:
        return frozenset(i.time for i in self.completed_writes)

    @cached_property
    def start(self) -> str | None:
        """Time from which on every write is on the active timeline; older writes were archived.

        It is the time of the first write without a savepoint. Archiving may skip writes with a savepoint, which leaves
        gaps between them. If all writes have one, the newest write is after all gaps.
        """
        savepoints = {i.time for i in self.instants if i.action == SAVEPOINT}
        writes = [i.time for i in self.instants if i.is_write]
        return next((time for time in writes if time not in savepoints), writes[-1] if writes else None)

    def is_archived(self, time: str) -> bool:
        """True for an action older than the active timeline: it was completed, and the archive has it."""
        return self.start is not None and time < self.start

    def is_valid(self, time: str) -> bool:
        """True when files and blocks of this instant are valid: it is completed or archived."""
        return time in self._completed_times or self.is_archived(time)

    def completion_time(self, time: str) -> str:
        """Completion time of a completed action (version 8 on); its instant time where it has none.

        A savepoint has the instant time of its write; it is not included.
        """
        return self._completion_times.get(time, time)

    @cached_property
    def _completion_times(self) -> dict[str, str]:
        return {i.time: i.completion_time for i in self.instants if i.completion_time and i.action != SAVEPOINT}

    def find(self, time: str) -> Instant | None:
        """The write action of this time; None without one."""
        return next((i for i in self.instants if i.time == time and i.is_write), None)

    def plan(self, storage: Storage, instant: Instant) -> Plan:
        """The plan of a table service's action; CorruptFileError when the file of a compaction's plan is missing.

        The file of a replacecommit's plan may be removed by its rollback, by any writer at any time: its plan is then
        empty.
        """
        rel = f"{self.folder}/{requested_name(instant)}"
        try:
            return read_plan(storage.read(rel), instant.action, storage.where(rel))
        except FileNotFoundError:
            if instant.action == REPLACE_COMMIT:
                return Plan("", ())
            raise CorruptFileError(
                f"{storage.where(rel)} is missing, the plan of an unfinished {instant.action}: without it the valid "
                "files are not known; restore it, or read again if that action has just ended"
            ) from None

    def metadata(self, storage: Storage, instant: Instant) -> CommitMetadata:
        """The content of a completed write's file."""
        rel = f"{self.folder}/{instant.file_name()}"
        return CommitMetadata.from_bytes(storage.read(rel), storage.where(rel))

    def rolled_back_by(self, storage: Storage, rollback: Instant) -> tuple[str, ...]:
        """The times of the instants that a completed rollback has rolled back."""
        rel = f"{self.folder}/{rollback.file_name()}"
        return tuple(read_record(storage.read(rel), storage.where(rel)).get("commitsRollback") or ())

    def metadata_with(self, storage: Storage, instant: Instant, texts: Collection[str]) -> CommitMetadata | None:
        """As :meth:`metadata`; None, without parsing, when the content has none of the texts (letters, digits, ``-``)."""
        rel = f"{self.folder}/{instant.file_name()}"
        data = storage.read(rel)
        there = data.startswith(MAGIC) or any(text.encode() in data for text in texts)  # Avro may be compressed
        if not there:
            return None
        return CommitMetadata.from_bytes(data, storage.where(rel))


@dataclass(frozen=True)
class _Look:
    """A cached result: the state of the folder and its timeline.

    ``replaced``: the groups of each replace commit, by file.
    """

    storage: Storage
    folder: str
    stamp: object
    names: tuple[str, ...]
    timeline: Timeline
    replaced: Mapping[str, Mapping[FileGroupId, str]]


# The last results of a few tables.
_SEEN: list[_Look] = []


def _pack(timeline: Timeline) -> bytes:
    """Column by column, which compresses well because instants differ little."""
    found = timeline.instants
    columns = [[i.time for i in found], [i.action for i in found], [i.state.value for i in found],
               [i.completion_time for i in found]]  # fmt: skip
    kinds = timeline.pending_compactions, timeline.pending_clusterings, timeline.replaced
    groups = [[[*key, time] for key, time in kind.items()] for kind in kinds]
    return zlib.compress(json.dumps([timeline.folder, columns, groups]).encode(), 1)


@lru_cache(maxsize=4)
def _unpacked(packed: bytes) -> Timeline:
    folder, (times, actions, states, completed), groups = json.loads(zlib.decompress(packed))
    known = {state.value: state for state in State}
    instants = tuple(map(Instant, times, actions, [known[state] for state in states], completed))
    return Timeline(folder, instants, *({(p, file_id): time for p, file_id, time in group} for group in groups))


def _planned(storage: Storage, timeline: Timeline, actions: tuple[str, ...]) -> dict[FileGroupId, str]:
    """File groups of unfinished plans. Log compactions do not count: they start no slice and move no row."""
    found: dict[FileGroupId, str] = {}
    for instant in timeline.pending:
        if instant.action in actions:
            plan = timeline.plan(storage, instant)
            found.update({(s.partition_path, s.file_id): instant.time for s in plan.rewrites})
    return found


def _replaced_by_commit(
    storage: Storage, timeline: Timeline, before: Mapping[str, Mapping[FileGroupId, str]]
) -> dict[str, Mapping[FileGroupId, str]]:
    """File groups of each completed replace commit, oldest first: if two replace a group, the later one counts."""
    found: dict[str, Mapping[FileGroupId, str]] = {}
    for instant in timeline.completed_writes:
        if instant.action == REPLACE_COMMIT:
            name = instant.file_name()
            if name in before:
                found[name] = before[name]
                continue
            groups = timeline.metadata(storage, instant).replaced.items()
            found[name] = {(partition, file_id): instant.time for partition, ids in groups for file_id in ids}
    return found


@dataclass(frozen=True)
class Savepoint:
    """``time``: instant of the saved write. ``made_ms``: milliseconds since 1970. ``files``: names by partition path."""

    time: str
    user: str
    comment: str
    made_ms: int
    files: Mapping[str, frozenset[str]]


def savepoints(storage: Storage, timeline: Timeline) -> tuple[Savepoint, ...]:
    """The completed savepoints, oldest first; CorruptFileError for one that cannot be read."""
    found = []
    for instant in timeline.instants:
        if instant.action == SAVEPOINT and instant.is_completed:
            rel = f"{timeline.folder}/{instant.file_name()}"
            record = read_record(storage.read(rel), storage.where(rel))
            files = {
                partition: frozenset(each.get("savepointDataFile") or ())
                for partition, each in (record.get("partitionMetadata") or {}).items()
            }
            user, comment = record.get("savepointedBy") or "", record.get("comments") or ""
            found.append(Savepoint(instant.time, user, comment, record.get("savepointedAt") or 0, files))
    return tuple(found)
