"""What a bootstrap reads: the newest merged slice of every file group as of the newest completed instant.

The plan also says what it leaves out and why. It lists files that commits name and the table's folder lacks: a slice
that is found by listing alone would only be smaller or older without them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from hashlib import blake2b

from tagstream.bootstrap.errors import BootstrapError
from tagstream.table.errors import ConfigError, UnsupportedTableError
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.file_group.names import parse_base_file_name, parse_log_file_name
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.storage import Storage, at_once
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.timeline import FileGroupId, Timeline


def missing_files(
    timeline: Timeline,
    slices: Mapping[tuple[str, str], FileSlice],
    committed: Iterable[str],
    partitions: re.Pattern[str],
    *,
    by_name: bool,
) -> tuple[str, ...]:
    """Paths that belong to the newest slice of their file group and are missing there.

    ``slices``: the newest ones by (partition path, file id). ``committed``: paths in the active commits. ``partitions``:
    matches the partitions that count. ``by_name``: whether a log file's name has the instant of its slice (table versions
    up to 7); if not, its completion time decides. Files of older slices may be missing, because a cleaner removes them.
    So may all files of a replaced file group.
    """
    found = []
    for path in committed:
        partition, _, name = path.rpartition("/")
        base, log = parse_base_file_name(name), parse_log_file_name(name)
        part = base or log
        if part is None or (log is not None and log.is_cdc) or partitions.fullmatch(partition) is None:
            continue
        group = (partition, part.file_id)
        if group in timeline.replaced:
            continue
        file_slice = slices.get(group)
        newest = file_slice.base_file.instant if file_slice is not None and file_slice.base_file is not None else ""
        if base is not None:
            lacks = base.instant > newest
        else:
            assert log is not None
            lacks = file_slice is None or name not in {f.name for f in file_slice.log_files}
            if lacks and by_name:
                lacks = log.base_instant >= newest
            elif lacks:
                lacks = timeline.completion_time(log.base_instant) >= newest
        if lacks:
            found.append(path)
    return tuple(sorted(found))


_FEW = 32  # searching a commit file's bytes for each of them takes a tenth of the time of parsing it
_AT_ONCE = 128  # commits whose content is in memory
_PLAIN = re.compile(r"[0-9A-Za-z-]+")
_TASK_BYTES = 64 << 20
_OPEN_BYTES = 128 << 10  # reading a slice costs at least as much as reading this many bytes
_LEAST_TASKS = 16  # with as many slices: a few cores then have equal work, and an interruption costs little


@dataclass(frozen=True)
class PlannedSlice:
    """A slice to scan. `expected_rows`: number of rows by the commit of its base file, None without an active commit.

    `log_writes`, `log_deletes`: records in its log files by their commits, as far as these are active.
    """

    file_slice: FileSlice
    expected_rows: int | None
    log_writes: int = 0
    log_deletes: int = 0

    @property
    def files(self) -> int:
        """Base and log files."""
        return (self.file_slice.base_file is not None) + len(self.file_slice.log_files)


@dataclass(frozen=True)
class LeftOut:
    """A part of the table that the index will not have, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class BootstrapPlan:
    """What to scan, as of `instant` (None: the table has no commit, and there is nothing to scan).

    `missing`: files that belong to a newest slice by the commits but do not exist; a listing alone does not show them.
    """

    table: HoodieTable
    timeline: Timeline
    instant: str | None
    slices: tuple[PlannedSlice, ...]
    left_out: tuple[LeftOut, ...]
    missing: tuple[str, ...] = ()
    partition_regex: str = ".*"

    @property
    def size(self) -> int:
        """Bytes of all files to scan (of base files only some columns are read)."""
        return sum(s.file_slice.size for s in self.slices)

    @property
    def files(self) -> int:
        """Base and log files to scan."""
        return sum(s.files for s in self.slices)

    @property
    def expected_rows(self) -> int:
        """Rows of base files by their commits. Rows of log files and of archived commits are not included."""
        return sum(s.expected_rows or 0 for s in self.slices)

    @property
    def uncounted(self) -> int:
        """Number of base files whose row count no active commit has."""
        return sum(s.expected_rows is None and s.file_slice.base_file is not None for s in self.slices)

    def fingerprint(self, *choices: object) -> str:
        """Hash of everything to scan and of `choices`. Runs with equal hashes may continue each other's work."""
        what = [self.table.base_path, self.instant, [astuple(s.file_slice) for s in self.slices], list(choices)]
        return blake2b(json.dumps(what).encode(), digest_size=16).hexdigest()

    def tasks(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of slices, grouped into tasks of similar size."""
        costs = [planned.file_slice.size + _OPEN_BYTES for planned in self.slices]
        limit = min(_TASK_BYTES, sum(costs) / _LEAST_TASKS)
        tasks: dict[int, list[int]] = {}
        before = 0
        for number, cost in enumerate(costs):
            tasks.setdefault(int((before + cost / 2) / limit), []).append(number)
            before += cost
        return tuple(map(tuple, tasks.values()))


def plan_bootstrap(
    table: HoodieTable, partition_regex: str = ".*", only: Collection[FileGroupId] | None = None
) -> BootstrapPlan:
    """List the table. Partitions whose whole path does not match ``partition_regex`` are left out.

    ``only``: file groups to include, as (partition path, file id); all by default. UnsupportedTableError for a table
    without meta fields, ConfigError for a wrong regex.
    """
    if not table.config.populate_meta_fields:
        raise UnsupportedTableError(
            f"table {table.config.name} at {table.base_path} has hoodie.populate.meta.fields=false, so its rows have no "
            "record keys to index; rewrite the table with meta fields"
        )
    try:
        wanted = re.compile(partition_regex)
    except re.error as e:
        raise ConfigError(f"index.partition.regex={partition_regex!r} is not a regular expression: {e}") from e
    timeline = table.timeline()
    view = table.view(timeline)
    left_out = [
        LeftOut(f"instant {i.time} ({i.action})", f"it is {i.state.lower()}, not completed") for i in timeline.pending
    ]
    if view.as_of is None:
        return BootstrapPlan(table, timeline, None, (), tuple(left_out), partition_regex=partition_regex)
    listed: dict[FileGroupId, FileSlice] = {}
    chosen: list[str] = []
    for partition in view.partitions() if only is None else sorted({partition for partition, _ in only}):
        if wanted.fullmatch(partition) is None:
            left_out.append(
                LeftOut(f"partition {partition!r}", f"index.partition.regex={partition_regex} leaves it out")
            )
            continue
        chosen.append(partition)
    view.look_up(chosen)
    for slices_there in at_once(table.storage, *(partial(view.latest_merged_slices, path) for path in chosen)):
        for found in slices_there:
            if only is None or (found.partition_path, found.file_id) in only:
                listed[found.partition_path, found.file_id] = found
    since = "" if only is None else _first_instant(table, timeline, listed, only, wanted)
    stats = _stats_by_file(table, timeline, since, only)
    slices: list[PlannedSlice] = []
    for found in listed.values():
        kept, empty = _without_empty_files(found)
        left_out += empty
        if kept is not None:
            base = stats.get(kept.base_path or "")
            logs = [stats[path] for path in kept.log_paths if path in stats]
            writes, deletes = sum(log.all_writes for log in logs), sum(log.all_deletes for log in logs)
            slices.append(PlannedSlice(kept, base.rows if base else None, writes, deletes))
    for (partition, file_id), instant in sorted(timeline.replaced.items()):
        if only is not None and (partition, file_id) not in only:
            continue
        left_out.append(LeftOut(f"file group {partition}/{file_id}", f"replaced by instant {instant}"))
    missing = missing_files(timeline, listed, stats, wanted, by_name=not table.config.has_completion_times)
    return BootstrapPlan(table, timeline, view.as_of, tuple(slices), tuple(left_out), missing, partition_regex)


def _without_empty_files(found: FileSlice) -> tuple[FileSlice | None, list[LeftOut]]:
    """The slice without empty files; None when all of its files are empty."""
    empty: Sequence[str] = [log.name for log in found.log_files if log.size == 0]
    kept = replace(found, log_files=tuple(log for log in found.log_files if log.size))
    if found.base_file is not None and found.base_file.size == 0:
        empty, kept = [found.base_file.name, *empty], replace(kept, base_file=None)
    left_out = [LeftOut(f"file {found.partition_path}/{name}", "it is empty") for name in empty]
    return (kept if kept.base_file is not None or kept.log_files else None), left_out


@dataclass(frozen=True)
class _FileStat:
    """Rows by the newest commit of a file, and records by all of its commits: a log file may be appended to."""

    rows: int
    all_writes: int
    all_deletes: int


def _first_instant(
    table: HoodieTable,
    timeline: Timeline,
    slices: Mapping[FileGroupId, FileSlice],
    only: Collection[FileGroupId],
    partitions: re.Pattern[str],
) -> str:
    """The instant before whose completion no file of these groups' newest slices was written.

    It is the first instant of all ("") where a group has no slice, or has one whose base file may be missing although its
    logs' names do not show it: then any commit may name it.
    """
    for group in only:
        if group in timeline.replaced or not partitions.fullmatch(group[0]):
            continue
        found = slices.get(group)
        if found is None:
            return ""
        if found.base_file is None and (table.config.has_completion_times or group in timeline.pending_compactions):
            return ""
    return min((time for found in slices.values() for time in _instants(found)), default=timeline.newest or "")


def _instants(found: FileSlice) -> list[str]:
    """The instants in the names of the slice and its files."""
    base = [] if found.base_file is None else [found.base_file.instant]
    return [found.base_instant, *base, *(log.time for log in found.log_files)]


def _stats_by_file(
    table: HoodieTable, timeline: Timeline, since: str, only: Collection[FileGroupId] | None
) -> Mapping[str, _FileStat]:
    """Rows and records of every file by its path, from the active commits completed at instant `since` or later."""
    found: dict[str, _FileStat] = {}
    none = _FileStat(0, 0, 0)
    ids = {file_id for _, file_id in only or ()}
    few = 0 < len(ids) <= _FEW and all(map(_PLAIN.fullmatch, ids))
    writes = [i for i in timeline.completed_writes if timeline.completion_time(i.time) >= since]
    # Most commits do not name any of these few groups, and need not be parsed.
    of = partial(timeline.metadata_with, texts=ids) if few else timeline.metadata
    for metadata in _read_each(table.storage, of, writes):
        for stat in [] if metadata is None else metadata.all_stats():
            if only is not None and (stat.partition_path, stat.file_id) not in only:
                continue
            before, rows = found.get(stat.path, none), stat.num_writes
            found[stat.path] = _FileStat(rows, before.all_writes + rows, before.all_deletes + stat.num_deletes)
    found.pop("", None)  # a stat without a file
    return found


def _read_each(
    storage: Storage, of: Callable[[Storage, Instant], CommitMetadata | None], instants: Sequence[Instant]
) -> Iterator[CommitMetadata | None]:
    """The metadata of each instant in order. Some of them are read in parallel."""
    for start in range(0, len(instants), _AT_ONCE):
        yield from at_once(storage, *(partial(of, storage, i) for i in instants[start : start + _AT_ONCE]))


def check_labels(labels: Sequence[int]) -> None:
    """BootstrapError unless there are labels and each is there once."""
    if not labels or len(set(labels)) != len(labels):
        raise BootstrapError(
            "the key groups' labels are empty or not unique; take them from the checkpoint's meta.json"
        )
