"""Plans of a Hudi table as the source: its snapshot at first, then its commits, in the order of their times.

The time of a commit is that of its completion from table version 8 on, so a commit that is completed later has a later
time. Up to version 7 it is its instant time, and a pending commit may be completed later with an earlier time. So no
plan reaches beyond the first pending one. Compactions and clusterings change no row. They are left out, and nothing waits
for them.

A batch never has a part of a commit: the deletes of a commit count before its rows. The position is the time of the last
commit that was planned. It is in the plans, as those of files are (``file_plans``).

A snapshot may need several batches. Its file slices are stored before its first plan, so that a start after a kill
continues with the same slices::

    R/tagstream/source/snapshot.jsonl
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tagstream.streaming.errors import CheckpointError, SourceError
from tagstream.streaming.source.file_plans import SNAPSHOT, PlanLog, Split, batches, share_out
from tagstream.streaming.source.incr_reader import unit_of_replaced, unit_of_slice, unit_of_stat
from tagstream.streaming.source.source_file import FilePosition
from tagstream.table.errors import MissingChangesError, TableNotFoundError
from tagstream.table.file_group.names import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.change_stream import check_archive, has_changes, time_of, writes_between
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import CLEAN, Instant
from tagstream.table.timeline.timeline import Timeline

LOG = logging.getLogger("tagstream")
SNAPSHOT_VERSION = 1
_TABLE = ""  # the path of the position
_PLANS = 100


@dataclass(frozen=True)
class IncrPlanOptions:
    """``limit``: bytes per batch. ``tasks``: number of tasks per batch. ``instants``: most commits per batch. ``latest``:
    a new stream begins with the newest commit. ``full_scan``: read the whole table where its history is gone.
    """

    limit: int
    tasks: int
    instants: int
    latest: bool = False
    full_scan: bool = False


@dataclass(frozen=True)
class _Write:
    """A completed write with changes. ``splits``: what is read of it."""

    instant: Instant
    splits: tuple[Split, ...]

    @property
    def size(self) -> int:
        return sum(split.size for split in self.splits)


class IncrPlanner:
    """Plans the commits of the table in ``source`` in ``log``. ``check`` raises when this run is not the stream's one
    writer any more.
    """

    def __init__(
        self,
        source: Storage,
        query_folder: Storage,
        log: PlanLog,
        options: IncrPlanOptions,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._source = source
        self._folder = query_folder
        self._log = log
        self._options = options
        self._check = check
        positions, self._newest = log.positions()
        self._reached = positions.get(_TABLE)
        self._history: tuple[object, ...] = ()
        self._snapshot = True  # one may be stored
        self._plans_since = 0
        self.waiting: dict[str, int] = {}
        self._warned = ""

    @property
    def is_new(self) -> bool:
        """Whether nothing of the table is planned yet."""
        return self._newest == 0 and self._reached is None

    def look(self) -> int:
        """Read the table's timeline and plan what is new. Returns the number of new plans.

        SourceError when the table or the history that is needed does not exist any more.
        """
        try:
            table = HoodieTable.open(self._source)
        except TableNotFoundError as e:
            raise SourceError(f"source table {self._source.root} does not exist ({e})") from e
        timeline = table.timeline()
        made = self._rest_of_snapshot()
        until = self._last_time(table, timeline)
        if self._reached is None and not self._begin(table, timeline, until):
            return made
        if self._reached is not None and not made:
            lost = self._lost(table, timeline, until)
            if lost:
                self._scan_again(table, timeline, until, lost)
        made += self._rest_of_snapshot()
        made += self._commits(table, timeline, until)
        if made and self._plans_since >= _PLANS and self._reached is not None:
            self._log.keep_positions({_TABLE: self._reached}, self._newest)
            self._plans_since = 0
        return made

    def report_waiting(self) -> None:
        """Log a warning for a pending commit that the stream waits for."""
        for time in self.waiting:
            if time != self._warned:
                self._warned = time
                LOG.warning(
                    "source table %s has the pending commit %s: commits after it are read when it is completed or rolled "
                    "back",
                    self._source.root,
                    time,
                )

    def _last_time(self, table: HoodieTable, timeline: Timeline) -> str | None:
        """The time up to which commits can be planned; None without a completed commit."""
        self.waiting.clear()
        times = [time_of(i) for i in timeline.completed_writes]
        if not table.config.has_completion_times:
            pending = min((i.time for i in timeline.pending_writes), default=None)
            if pending is not None:
                if any(time > pending for time in times):
                    self.waiting[pending] = 1
                times = [time for time in times if time < pending]
        return max(times, default=None)

    def _begin(self, table: HoodieTable, timeline: Timeline, until: str | None) -> bool:
        """Begin a new stream; False while the table has no commit."""
        if until is None:
            return False
        if not self._options.latest:
            self._store_snapshot(table, timeline, until)
            return True
        first = writes_between(timeline, None, until)[-1]
        self._reached = self._position(table, str(int(time_of(first)) - 1))
        return True

    def _position(self, table: HoodieTable, time: str) -> FilePosition:
        """A time of the table as the position that plans store; its size is the table version."""
        return FilePosition(int(time), table.config.version, 0, 0, 0)

    def _since(self) -> str:
        assert self._reached is not None
        return str(self._reached.end).zfill(17)

    def _lost(self, table: HoodieTable, timeline: Timeline, until: str | None) -> str:
        """Why the commits after the position cannot be read; empty where they can. The archive and the cleaned files are
        looked at when the timeline has changed.
        """
        assert self._reached is not None
        if self._reached.size != table.config.version:
            return self._other_version(table, timeline)
        cleans = tuple(i.time for i in timeline.instants if i.action == CLEAN and i.is_completed)
        state = (timeline.start, cleans, self._reached.end)
        if state == self._history:
            return ""
        since = self._since()
        try:
            check_archive(table, timeline, since)
        except MissingChangesError as e:
            return str(e)
        planned = self._newest > 0  # before the first plan no commit has the position
        known = {time_of(i) for i in timeline.completed_writes}
        if planned and since not in known and not self._is_archived(table, since):
            return f"its commit of {since} does not exist any more, because it was restored to an earlier one or made again"
        if cleans:
            for instant in writes_between(timeline, since, until):
                gone = self._gone(table, timeline, instant)
                if gone:
                    return gone
        self._history = state
        return ""

    def _is_archived(self, table: HoodieTable, time: str) -> bool:
        found = table.archived_after(str(int(time) - 1).zfill(17))
        return any(time in (action.time, action.completion_time) for action in found)

    def _gone(self, table: HoodieTable, timeline: Timeline, instant: Instant) -> str:
        metadata = timeline.metadata(table.storage, instant)
        if not has_changes(metadata):
            return ""
        for stat in metadata.all_stats():
            needed = tuple(stat.change_files)
            if not needed:
                bases = [name for name in (stat.prev_base_file, stat.base_file) if name]
                needed = (stat.path, *(join(stat.partition_path, name) for name in bases))
            for path in needed:
                if not table.storage.exists(path):
                    return f"{table.storage.where(path)} of commit {instant.time} was deleted by a clean"
        return ""

    def _other_version(self, table: HoodieTable, timeline: Timeline) -> str:
        """Translate the position after a change of the table's version; why that is not possible."""
        since = self._since()
        was = self._reached.size if self._reached is not None else 0
        if table.config.has_completion_times == (was >= 8):
            self._reached = self._position(table, since)
            return ""
        done = [time_of(i) for i in timeline.completed_writes if i.time <= since]
        if table.config.has_completion_times and done:
            self._reached = self._position(table, max(done))
            return ""
        return f"its table version was changed from {was} to {table.config.version}, which changes the times of its commits"

    def _scan_again(self, table: HoodieTable, timeline: Timeline, until: str | None, why: str) -> None:
        if not self._options.full_scan or until is None:
            raise SourceError(
                f"source table {self._source.root} cannot be read from this stream's position ({self._since()}): {why}. "
                "Start with a new --checkpoint-dir and a new target table; or read all rows of the source table again with "
                "hoodie.datasource.read.incr.fallback.fulltablescan.enable=true: then rows that were deleted meanwhile "
                "stay in the target"
            )
        LOG.warning(
            "source table %s cannot be read from the position of this stream (%s): %s. All its rows are read; rows that "
            "were deleted meanwhile stay in the target",
            self._source.root,
            self._since(),
            why,
        )
        self._store_snapshot(table, timeline, until)

    def _store_snapshot(self, table: HoodieTable, timeline: Timeline, until: str) -> None:
        """Store the slices of the table's present rows, in parts for one batch each."""
        seen = writes_between(timeline, None, until)
        as_of = max(instant.time for instant in seen)
        view = table.view(timeline, as_of)
        splits = [
            Split(join(p, found.file_id), 0, max(1, found.size), int(until), unit=unit_of_slice(until, as_of, found))
            for p in view.partitions()
            for found in view.latest_merged_slices(p)
        ]
        parts = list(batches(splits, self._options.limit)) or [[]]
        head = {
            "version": SNAPSHOT_VERSION,
            "time": until,
            "table_version": table.config.version,
            "first": self._newest + 1,
            "parts": len(parts),
        }
        lines = [json.dumps(head), *(json.dumps([[s.path, s.end, s.unit] for s in part]) for part in parts)]
        self._check()
        self._folder.replace(SNAPSHOT, "".join(f"{line}\n" for line in lines).encode())
        self._snapshot = True

    def _rest_of_snapshot(self) -> int:
        """Plan the parts of the stored snapshot that have no plan yet."""
        try:
            data = self._folder.read(SNAPSHOT) if self._snapshot else b""
        except FileNotFoundError:
            data = b""
        self._snapshot = False
        if not data:
            return 0
        head, parts = _read_snapshot(data, self._folder.where(SNAPSHOT))
        time, made = int(head["time"]), 0
        position = FilePosition(time, int(head["table_version"]), 0, 0, 0)
        for part in parts[self._newest + 1 - int(head["first"]) :]:
            splits = [Split(path, 0, size, time, unit=unit) for path, size, unit in part]
            self._add(splits, position)
            made += 1
        self._folder.delete(SNAPSHOT)
        if made:
            LOG.info("source table %s: its rows as of %s are planned in %s batches", self._source.root, time, made)
        return made

    def _commits(self, table: HoodieTable, timeline: Timeline, until: str | None) -> int:
        if self._reached is None or until is None:
            return 0
        made = 0
        for batch in self._grouped(_writes(table, timeline, writes_between(timeline, self._since(), until))):
            splits = [split for write in batch for split in write.splits]
            self._add(splits, self._position(table, time_of(batch[-1].instant)))
            made += 1
        return made

    def _grouped(self, writes: Iterable[_Write]) -> Iterator[list[_Write]]:
        """Batches of whole commits."""
        batch: list[_Write] = []
        for write in writes:
            full = len(batch) >= self._options.instants or sum(w.size for w in batch) + write.size > self._options.limit
            if batch and full:
                yield batch
                batch = []
            batch.append(write)
        if batch:
            yield batch

    def _add(self, splits: Sequence[Split], position: FilePosition) -> None:
        note = Split(_TABLE, 0, 0, position.end, None, position)
        plan = share_out(self._newest + 1, splits, self._options.tasks, [note], position.end)
        self._check()
        self._log.add(plan)
        self._newest += 1
        self._plans_since += 1
        self._reached = position


def _writes(table: HoodieTable, timeline: Timeline, instants: Iterable[Instant]) -> Iterator[_Write]:
    for instant in instants:
        metadata = timeline.metadata(table.storage, instant)
        if has_changes(metadata):
            yield _Write(instant, tuple(_splits(instant, metadata)))


def _splits(instant: Instant, metadata: CommitMetadata) -> Iterator[Split]:
    """What is read of a commit; sizes are those of its files."""
    time, at = time_of(instant), instant.time
    for partition, ids in sorted(metadata.replaced.items()):
        for file_id in ids:
            unit = unit_of_replaced(time, at, partition, file_id)
            yield Split(join(partition, file_id), 0, 1, int(time), unit=unit)
    for stat in metadata.all_stats():
        size = max(1, stat.total_write_bytes or stat.file_size)
        yield Split(stat.path, 0, size, int(time), unit=unit_of_stat(time, at, metadata.operation, stat))


def _read_snapshot(data: bytes, where: str) -> tuple[dict[str, Any], list[list[tuple[str, int, dict[str, Any]]]]]:
    """The head and the parts of a stored snapshot. CheckpointError when it is damaged or has another version."""
    try:
        head, *parts = (json.loads(line) for line in data.splitlines())
        if head["version"] == SNAPSHOT_VERSION and head["parts"] == len(parts):
            return head, parts
    except (ValueError, KeyError, TypeError) as e:
        raise CheckpointError(f"{where} is damaged ({e!r}); restore it, or start with a new --checkpoint-dir") from e
    raise CheckpointError(
        f"{where} is truncated, or has another version than {SNAPSHOT_VERSION}; run the program version that wrote it"
    )
