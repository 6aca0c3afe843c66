"""Which files a clean deletes, by the timeline, the file slices, the options and the last clean.

In each file group the needed slices are kept (``retention``): the newest slice; with an earliest commit to retain also
the newest slice before this commit and all later ones; slices with a file that a savepoint names; slices that a pending
plan reads. Replaced groups are deleted as a whole when the replace commit is older than the retained commits. Files of
unfinished writes are never deleted.

A later slice of its group makes a slice old, and the commit that wrote the later slice is on the timeline. So a clean
checks only the partitions of the commits between the earliest commit that the last clean retained and the one that this
clean retains: the cost depends on the changes, not on the table's size. The deleted files also decide whether the table
can be read as of an earlier instant (``check_past``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tagstream.table.errors import CleanedPastError
from tagstream.table.file_group.fs_view import FileSlice, FileSystemView
from tagstream.table.file_group.names import (
    instant_from_ms,
    list_partitions,
    next_instant,
    parse_base_file_name,
    parse_log_file_name,
)
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.services.options import CleanOptions, CleanPolicy
from tagstream.table.services.retention import Needed, Past, savepointed_names, why_needed
from tagstream.table.storage.storage import Storage, each
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import CLEAN, LOG_COMPACTION, SAVEPOINT, Instant
from tagstream.table.timeline.timeline import FileGroupId, Timeline, savepoints

_HOUR_MS = 3_600_000
# Members of a clean's extra metadata: Hudi's name for the existing savepoints; and this project's name for the first
# write that a clean by file versions has not seen.
SAVEPOINTED = "savepointed_timestamps"
NEXT_WRITE = "tagstream.clean.next.write"
# After this number of commits without files to delete, a clean without files records how far it has checked.
_REMEMBERED_COMMITS = 10


@dataclass(frozen=True)
class OldFile:
    """A file to be deleted; ``size`` in bytes."""

    name: str
    size: int


@dataclass(frozen=True)
class CleanPlan:
    """``earliest``: the earliest retained commit; ``newest``: the newest completed write when the clean was planned.

    ``files`` by partition path; ``partitions``: those deleted with their folders; ``looked_at``: the number of listed
    partitions; ``extra``: the action's extra metadata.
    """

    policy: CleanPolicy
    earliest: Instant | None
    newest: str
    files: Mapping[str, tuple[OldFile, ...]]
    partitions: tuple[str, ...] = ()
    looked_at: int = 0
    extra: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of all files to be deleted."""
        return sum(file.size for files in self.files.values() for file in files)


def old_files(
    view: FileSystemView, partitions: Sequence[str], options: CleanOptions, earliest: Instant | None, needed: Needed
) -> tuple[dict[str, tuple[OldFile, ...]], tuple[str, ...]]:
    """(old files by partition path, partitions left empty by a delete of partitions). Each is listed once or twice.

    ``earliest``: the commit to retain, None for a policy that has none.
    """
    time = earliest.time if earliest is not None else None

    def look(partition: str) -> tuple[tuple[OldFile, ...], bool]:
        return _of_partition(view, partition, options, time, needed)

    view.look_up(partitions)
    found = dict(zip(partitions, each(look, partitions), strict=True))
    files = {partition: old for partition, (old, _) in found.items() if old}
    return files, tuple(partition for partition, (_, whole) in found.items() if whole)


def _of_partition(
    view: FileSystemView, partition: str, options: CleanOptions, earliest: str | None, needed: Needed
) -> tuple[tuple[OldFile, ...], bool]:
    by_version = options.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS
    past = Past(versions=options.file_versions) if by_version else Past(earliest)
    gone: list[OldFile] = []
    stays = False
    for file_id, slices in view.all_slices(partition).items():
        reasons = why_needed(view.timeline, (partition, file_id), slices, past, needed)
        old = [found for found, reason in zip(slices, reasons, strict=True) if reason is None]
        stays |= len(old) < len(slices)
        gone += [file for file_slice in old for file in _files(file_slice)]
    whole = bool(gone) and not stays and options.whole_partitions and _is_left_empty(view, partition, earliest, gone)
    return tuple(gone), whole


def _files(file_slice: FileSlice) -> Iterator[OldFile]:
    for file in (file_slice.base_file, *file_slice.log_files, *file_slice.change_files):
        if file is not None:
            yield OldFile(file.name, file.size)


def _is_left_empty(view: FileSystemView, partition: str, earliest: str | None, gone: Sequence[OldFile]) -> bool:
    """The folder has no other file, not even of an unfinished write, and no later replace commit deletes the partition
    again."""
    if not partition:
        return False
    if any(p == partition and earliest is not None and at >= earliest for (p, _), at in view.timeline.replaced.items()):
        return False
    return not data_files(view, partition) - {file.name for file in gone}


def data_files(view: FileSystemView, partition: str) -> set[str]:
    """The names of all data files in a partition's folder, committed or not; its folders count, too."""
    return {
        entry.name
        for entry in view.storage.list(partition)
        if entry.is_dir or parse_base_file_name(entry.name) or parse_log_file_name(entry.name)
    }


def earliest_to_retain(
    timeline: Timeline, options: CleanOptions, now_ms: int, utc: bool, last: str | None = None
) -> Instant | None:
    """The completed write from which on slices are kept; None when nothing may be deleted, or the policy has none.

    ``last``: that of the last clean, from which ``max_commits_to_clean`` counts. ``utc``: the zone of instants. A
    pending write or plan keeps everything that it may read: the newest write before it is retained, too.
    """
    done = timeline.completed_writes
    if options.policy is CleanPolicy.KEEP_LATEST_COMMITS:
        if len(done) <= options.commits:
            return None
        wanted = len(done) - options.commits
    elif options.policy is CleanPolicy.KEEP_LATEST_BY_HOURS:
        if not done:
            return None
        oldest = instant_from_ms(now_ms - options.hours * _HOUR_MS, utc)
        wanted = next((n for n, instant in enumerate(done) if instant.time >= oldest), len(done) - 1)
    else:
        return None
    pending = next((i.time for i in timeline.pending if i.is_write), None)
    if pending is not None and done[wanted].time > pending:
        wanted = sum(i.time < pending for i in done) - 1
    if last is not None and options.max_commits_to_clean is not None:
        wanted = min(wanted, sum(i.time < last for i in done) + options.max_commits_to_clean)
    return done[wanted] if wanted >= 0 else None


@dataclass(frozen=True)
class LastClean:
    """``earliest``: the earliest commit that it retained; None if its policy has none. ``savepoints``: their times.

    ``next_write``: the first write that it has not checked, for a clean of this project that keeps file versions.
    ``deleted``: whether it deleted any file.
    """

    time: str
    earliest: str | None
    savepoints: frozenset[str]
    next_write: str | None = None
    deleted: bool = True


def last_clean(storage: Storage, timeline: Timeline) -> LastClean | None:
    """The newest completed clean on the active timeline; CorruptFileError when it cannot be read."""
    done = completed_cleans(timeline)
    return clean_of(storage, timeline, done[-1]) if done else None


def completed_cleans(timeline: Timeline) -> list[Instant]:
    """The completed cleans on the active timeline, oldest first."""
    return [i for i in timeline.instants if i.action == CLEAN and i.is_completed]


def clean_of(storage: Storage, timeline: Timeline, clean: Instant) -> LastClean:
    """The record of a completed clean on the active timeline; CorruptFileError when it cannot be read."""
    rel = f"{timeline.folder}/{clean.file_name()}"
    record = read_record(storage.read(rel), storage.where(rel))
    extra = record.get("extraMetadata") or {}
    kept = frozenset(time for time in (extra.get(SAVEPOINTED) or "").split(",") if time)
    earliest, deleted = record.get("earliestCommitToRetain") or None, bool(record.get("totalFilesDeleted"))
    return LastClean(clean.time, earliest, kept, extra.get(NEXT_WRITE), deleted)


@dataclass(frozen=True)
class Scope:
    """``partitions``: those to check, sorted. ``whole``: they are all of the table's. ``commits``: number of commits
    read."""

    partitions: tuple[str, ...]
    whole: bool
    commits: int = 0


def partitions_in_scope(
    timeline: Timeline,
    options: CleanOptions,
    earliest: str | None,
    last: LastClean | None,
    savepoints: frozenset[str],
    read: Callable[[Instant], CommitMetadata],
    everything: Callable[[], Iterable[str]],
) -> Scope:
    """``earliest``: the earliest retained commit, None if the policy has none. ``savepoints``: their times now.

    ``read`` returns a write's metadata and ``everything`` all partitions. They are called only if needed.
    """
    since = _since(timeline, options, last, savepoints)
    if since is None:
        return Scope(tuple(sorted(everything())), whole=True)
    touching = [i for i in timeline.completed_writes if since <= i.time and (earliest is None or i.time < earliest)]
    names = {name for metadata in each(read, touching) for name in (*metadata.stats, *metadata.replaced)}
    return Scope(tuple(sorted(names)), whole=False, commits=len(touching))


def _since(timeline: Timeline, options: CleanOptions, last: LastClean | None, savepoints: frozenset[str]) -> str | None:
    """The first write that counts; None when all partitions must be checked."""
    if not options.incremental or last is None:
        return None
    if last.savepoints - savepoints:
        return None  # a deleted savepoint may have kept files in any partition
    since = last.next_write if options.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS else last.earliest
    if since is None or timeline.start is None or since < timeline.start:
        return None
    return since


def plan_table(
    table: HoodieTable, options: CleanOptions, now_ms: int, *, due: bool = True, timeline: Timeline | None = None
) -> CleanPlan | None:
    """The work of a clean now; None when there is none, or (``due``) too few commits were made since the last clean.

    A plan without files only records how far was checked. Nothing is changed. ``timeline``: the present one.
    """
    timeline, storage = timeline if timeline is not None else table.timeline(), table.storage
    last = last_clean(storage, timeline)
    since = [i for i in timeline.completed_writes if last is None or (i.completion_time or i.time) > last.time]
    newest = timeline.newest_completed
    if newest is None or (due and len(since) < options.max_commits):
        return None
    earliest = earliest_to_retain(
        timeline, options, now_ms, table.config.timezone_utc, last.earliest if last is not None else None
    )
    by_version = options.policy is CleanPolicy.KEEP_LATEST_FILE_VERSIONS
    if earliest is None and not by_version:
        return None
    saved = savepoints(storage, timeline)
    scope = partitions_in_scope(
        timeline, options, earliest.time if earliest is not None else None, last, frozenset(s.time for s in saved),
        lambda instant: timeline.metadata(storage, instant), lambda: _all_partitions(table, timeline),
    )  # fmt: skip
    needed = Needed(savepointed_names(saved), busy_groups(storage, timeline))
    files, partitions = old_files(table.view(timeline), scope.partitions, options, earliest, needed)
    if not files and not (options.incremental and (scope.whole or scope.commits >= _REMEMBERED_COMMITS)):
        return None
    extra = {SAVEPOINTED: ",".join(s.time for s in saved)} if saved else {}
    if by_version:
        extra[NEXT_WRITE] = min([next_instant(0, newest), *(i.time for i in timeline.pending if i.is_write)])
    return CleanPlan(options.policy, earliest, newest, files, partitions, len(scope.partitions), extra)


def busy_groups(storage: Storage, timeline: Timeline) -> frozenset[FileGroupId]:
    """The file groups of pending log compactions; their plans do not name the slices that they begin."""
    plans = (timeline.plan(storage, i) for i in timeline.pending if i.action == LOG_COMPACTION)
    return frozenset((s.partition_path, s.file_id) for plan in plans for s in plan.rewrites)


def _all_partitions(table: HoodieTable, timeline: Timeline) -> list[str]:
    metadata = MetadataTable.open(table, timeline)
    return metadata.partition_paths() if metadata is not None else list_partitions(table.storage)


def check_past(table: HoodieTable, timeline: Timeline, as_of: str) -> None:
    """CleanedPastError for an instant time (17 digits) whose file slices a completed clean may have deleted.

    A clean records the earliest commit that it retained. A clean by file versions has none: only the newest write at
    its begin is sure. The files that a savepoint keeps can be read as of the savepoint's write.
    """
    if as_of >= (timeline.newest_completed or ""):
        return
    earliest = max((_kept_from(table, timeline, clean) for clean in completed_cleans(timeline)), default="")
    if as_of >= earliest:
        return
    seen = max((i.time for i in timeline.completed_writes if i.time <= as_of), default=None)
    saved = [i.time for i in timeline.instants if i.action == SAVEPOINT and i.is_completed]
    if seen in saved:
        return
    also = f", and the savepoints {', '.join(saved)}" if saved else ""
    raise CleanedPastError(
        f"table {table.config.name} at {table.base_path} cannot be read as of {as_of}: a clean has deleted files of "
        f"that time. It can be read as of {earliest} and later{also}; hoodie.clean.commits.retained and "
        f"hoodie.clean.hours.retained set how long files are kept"
    )


def _kept_from(table: HoodieTable, timeline: Timeline, clean: Instant) -> str:
    """The first instant whose slices this clean has kept; empty if it is not known to have deleted any."""
    cleaned = clean_of(table.storage, timeline, clean)
    if not cleaned.deleted:
        return ""
    return cleaned.earliest or max(
        (i.time for i in timeline.completed_writes if i.time < clean.time), default=clean.time
    )
