"""Health of a table that is streamed into: what is wrong, and which key or command corrects it.

Nothing is changed.

``FileSizes`` has sums of a table's files, partition by partition: for display, not for decisions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

from tagstream.table.file_group.fs_view import FileSlice, FileSystemView
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.metadata.record_encoding import instant_ms
from tagstream.table.timeline.instant import CLEAN, CLUSTERING, COMMIT, COMPACTION, DELTA_COMMIT, SAVEPOINT, Instant
from tagstream.table.timeline.lease import is_alive
from tagstream.table.timeline.timeline import Timeline, savepoints

SMALL_FILE_BYTES = 104_857_600  # default of hoodie.parquet.small.file.limit
_MIB = 1 << 20
# Classes of base files by size: the counts are for files below each bound, and last for all larger files.
SIZE_BOUNDS = (_MIB, 8 * _MIB, 32 * _MIB, 100 * _MIB, 256 * _MIB)
HOUR_MS = 3_600_000
_DAY_MS = 24 * HOUR_MS


@dataclass(frozen=True)
class FileSizes:
    """Sums over file groups. A file group is small if its base file (or else its logs) is smaller than the limit.

    ``deepest_log``: the most log files of a file slice. ``sizes``: number of base files by ``SIZE_BOUNDS``.
    """

    file_groups: int = 0
    small_files: int = 0
    base_files: int = 0
    base_bytes: int = 0
    log_files: int = 0
    log_bytes: int = 0
    deepest_log: int = 0
    sizes: tuple[int, ...] = (0,) * (len(SIZE_BOUNDS) + 1)

    @property
    def bytes(self) -> int:
        """Total bytes of base files and logs."""
        return self.base_bytes + self.log_bytes

    def plus(self, other: FileSizes) -> FileSizes:
        """The sums of both."""
        return FileSizes(
            self.file_groups + other.file_groups,
            self.small_files + other.small_files,
            self.base_files + other.base_files,
            self.base_bytes + other.base_bytes,
            self.log_files + other.log_files,
            self.log_bytes + other.log_bytes,
            max(self.deepest_log, other.deepest_log),
            tuple(a + b for a, b in zip(self.sizes, other.sizes, strict=True)),
        )


def sizes_of(slices: Iterable[FileSlice], small_limit: int = SMALL_FILE_BYTES) -> FileSizes:
    """The sums over some file slices, without opening files. ``small_limit``: bytes of a small file."""
    groups = small = bases = base_bytes = logs = log_bytes = deepest = 0
    sizes = [0] * (len(SIZE_BOUNDS) + 1)
    for found in slices:
        groups += 1
        log_sum = sum(log.size for log in found.log_files)
        logs, log_bytes = logs + len(found.log_files), log_bytes + log_sum
        deepest = max(deepest, len(found.log_files))
        if found.base_file is not None:
            bases, base_bytes = bases + 1, base_bytes + found.base_file.size
            sizes[bisect_right(SIZE_BOUNDS, found.base_file.size)] += 1
        small += (found.base_file.size if found.base_file is not None else log_sum) < small_limit
    return FileSizes(groups, small, bases, base_bytes, logs, log_bytes, deepest, tuple(sizes))


def partition_sizes(view: FileSystemView, partition_path: str, small_limit: int = SMALL_FILE_BYTES) -> FileSizes:
    """The sums over one partition, which is listed once."""
    return sizes_of(view.latest_merged_slices(partition_path), small_limit)


def total_sizes(parts: Iterable[FileSizes]) -> FileSizes:
    """The sum of all parts."""
    return reduce(FileSizes.plus, parts, FileSizes())


@dataclass(frozen=True)
class Limits:
    """The limits above which a figure becomes a finding.

    ``log_files``: of one slice. ``active``: completed writes on the timeline. ``pending_ms``: age of an unfinished
    action. ``old_share``: share of the table's bytes that a clean would delete. ``small_share``: of the file groups, if
    there are ``groups`` of them and the table has ``small_bytes``. ``savepoint_ms``: age of a savepoint.
    ``metadata_deltas``: delta commits of the metadata table since its compaction.
    """

    log_files: int = 20
    active: int = 100
    pending_ms: int = HOUR_MS
    old_share: float = 0.3
    small_share: float = 0.5
    groups: int = 20
    small_bytes: int = 1 << 30
    savepoint_ms: int = 30 * _DAY_MS
    metadata_deltas: int = 50


@dataclass(frozen=True)
class Figures:
    """The figures of a table.

    ``oldest_uncompacted_ms``: age of the oldest delta commit since the last compaction, None without one. ``old_bytes``:
    bytes that a clean would delete now. ``metadata_deltas``: None without a metadata table.
    """

    sizes: FileSizes
    active: int
    pending: tuple[Instant, ...]
    oldest_uncompacted_ms: int | None
    old_bytes: int
    savepoints: int
    metadata_deltas: int | None


@dataclass(frozen=True)
class Finding:
    """One problem. ``remedy``: the key or command that corrects it."""

    what: str
    remedy: str


def figures_of(table: HoodieTable, timeline: Timeline, now_ms: int, old_bytes: int) -> Figures:
    """Compute the figures from the timeline and every partition. ``old_bytes``: bytes that a clean would delete."""
    view = table.view(timeline)
    partitions = view.partitions()
    view.look_up(partitions)
    sizes = total_sizes(partition_sizes(view, partition) for partition in partitions)
    done = timeline.completed_writes
    compaction = max((i.time for i in done if i.action == COMMIT), default="")
    waiting = [i for i in done if i.action == DELTA_COMMIT and i.time > compaction] if sizes.log_files else []
    return Figures(
        sizes,
        len(done),
        timeline.pending,
        now_ms - instant_ms(waiting[0].time, table.config.timezone_utc) if waiting else None,
        old_bytes,
        sum(i.action == SAVEPOINT and i.is_completed for i in timeline.instants),
        _metadata_deltas(table, timeline),
    )


def findings(table: HoodieTable, timeline: Timeline, found: Figures, now_ms: int, limits: Limits) -> Iterator[Finding]:
    """The problems, the worst first."""
    utc = table.config.timezone_utc
    for instant in found.pending:
        age = now_ms - instant_ms(instant.time, utc)
        if age > limits.pending_ms and not is_alive(table.storage, instant.time, now_ms):
            yield Finding(
                f"{instant.action} {instant.time} has been {instant.state.lower()} for {_hours(age)}", _remedy(instant)
            )
    if found.sizes.deepest_log > limits.log_files:
        yield Finding(
            f"a file slice has {found.sizes.deepest_log:,} log files, which every reader merges",
            "hoodie.compact.inline.max.delta.commits, or `tagstream table compact`",
        )
    if found.metadata_deltas is not None and found.metadata_deltas > limits.metadata_deltas:
        yield Finding(
            f"the metadata table has {found.metadata_deltas:,} delta commits since its last compaction",
            "hoodie.metadata.compact.max.delta.commits; an unfinished action of the table delays compactions",
        )
    if found.sizes.bytes and found.old_bytes > limits.old_share * (found.old_bytes + found.sizes.bytes):
        yield Finding(
            f"{found.old_bytes / 2**20:,.0f} MiB are in old slices, {found.sizes.bytes / 2**20:,.0f} MiB in the newest",
            "hoodie.clean.automatic, hoodie.clean.commits.retained, or `tagstream table clean`",
        )
    if found.active > limits.active:
        held = "; a savepoint prevents archiving" if found.savepoints else ""
        yield Finding(
            f"{found.active:,} completed writes are on the active timeline{held}",
            "hoodie.archive.automatic, hoodie.keep.max.commits, or `tagstream table archive`",
        )
    sizes = found.sizes
    much = sizes.file_groups >= limits.groups and sizes.bytes >= limits.small_bytes  # a small table has small files
    if much and sizes.small_files > limits.small_share * sizes.file_groups:
        yield Finding(
            f"{sizes.small_files:,} of {sizes.file_groups:,} file groups are small",
            "hoodie.parquet.small.file.limit, fewer partitions or larger batches; hoodie.clustering.inline (for partitions "
            "that no longer change hoodie.clustering.async.enabled) or `tagstream table cluster` joins them",
        )
    for saved in savepoints(table.storage, timeline):
        if now_ms - saved.made_ms > limits.savepoint_ms:
            yield Finding(
                f"savepoint {saved.time} is {(now_ms - saved.made_ms) // _DAY_MS:,} days old: nothing after it is archived",
                f"`tagstream table savepoint --delete --instant {saved.time}`",
            )


def _remedy(instant: Instant) -> str:
    known: dict[str, str] = {
        COMPACTION: f"`tagstream table compact --execute {instant.time}`, or a running job, which executes it",
        CLEAN: "`tagstream table clean`, or a running job, which finishes it",
        CLUSTERING: f"`tagstream table cluster --execute {instant.time}`, or --take-back",
    }
    return known.get(instant.action, "a start of the job that began it, which rolls it back or finishes it")


def _metadata_deltas(table: HoodieTable, timeline: Timeline) -> int | None:
    metadata = MetadataTable.open(table, timeline)
    if metadata is None:
        return None
    done = [i for i in metadata.timeline.instants if i.is_completed]
    compaction = max((i.time for i in done if i.action == COMMIT), default="")
    return sum(i.action == DELTA_COMMIT and i.time > compaction for i in done)


def _hours(ms: int) -> str:
    return f"{ms / HOUR_MS:,.1f} hours" if ms < 2 * _DAY_MS else f"{ms / _DAY_MS:,.0f} days"
