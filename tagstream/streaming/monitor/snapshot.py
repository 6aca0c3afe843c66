"""The status of a running job at one moment: the values for page, JSON and metrics.

The page of a table (without a running job) uses the same rows for commits and partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tagstream.streaming.batch.commit_record import parse
from tagstream.table.services.health import FileSizes
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.operation import WriteOperationType


@dataclass(frozen=True)
class About:
    """Constants of a run. ``source``: kafka, files or DataFrame. ``log``: where its log lines are, for people."""

    table: str
    stream: str
    base_path: str
    checkpoint: str
    table_type: str = ""
    index: str = ""
    source: str = ""
    version: str = ""
    spark: str = ""
    python: str = ""
    host: str = ""
    pid: int | None = None
    log: str = ""


@dataclass(frozen=True)
class Doing:
    """What the job does now. ``batch_id`` None: between two batches, or before the first. ``detail``: progress of the
    step.
    """

    step: str
    since_ms: int
    batch_id: int | None = None
    batch_since_ms: int | None = None
    detail: str = ""


@dataclass(frozen=True)
class Health:
    """The state as one word for programs, and a sentence for people. ``fine``: an orchestrator gets a healthy answer."""

    state: str
    why: str
    fine: bool


@dataclass(frozen=True)
class BatchLine:
    """A committed batch of this run."""

    batch_id: int
    instant: str | None
    at_ms: int
    records: int
    seconds: float
    phases: Mapping[str, float]
    quarantined: int = 0


@dataclass(frozen=True)
class CommitLine:
    """A completed write of the table.

    ``stream`` and ``batch_id`` are None for another writer's commit and for a table service. ``service``: compaction or
    clustering, whichever program executed it.
    """

    instant: str
    action: str
    stream: str | None
    batch_id: int | None
    inserts: int
    updates: int
    deletes: int
    files: int
    bytes: int
    service: str = ""


@dataclass(frozen=True)
class Waiting:
    """Uncommitted records in one partition of the topic, and the time of the oldest one (None: unknown)."""

    partition: int
    records: int
    oldest_ms: int | None = None


@dataclass(frozen=True)
class Tasks:
    """The tasks of the current batch. ``moved_ms``: when the number of done tasks last changed."""

    total: int
    done: int
    running: int
    failed: int
    moved_ms: int


@dataclass(frozen=True)
class Quarantine:
    """Bad records that the checkpoint has, of all its batches. ``whole`` False: at least so many. ``newest``: reasons
    with the last batch that had each, newest first.
    """

    records: int
    whole: bool
    newest: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class ServiceLine:
    """A table service. ``completed``: actions in this run. ``last_ms``: time of its last action by any run (None:
    unknown). ``due``: when the next one is due, in words. ``failing``: the error of the last try; empty where it
    succeeded. ``tried``: whether this run has tried.
    """

    name: str
    completed: int
    last_ms: int | None = None
    due: str = ""
    failing: str = ""
    tried: bool = False


@dataclass(frozen=True)
class GroupSize:
    """Keys, tombstones and bytes of one key group of the index."""

    label: int
    keys: int
    tombstones: int
    bytes: int


@dataclass(frozen=True)
class PartitionLine:
    """The file sizes of one partition. ``share``: of the bytes of the largest partition."""

    partition_path: str
    sizes: FileSizes
    share: float = 0.0


@dataclass(frozen=True)
class TableFiles:
    """Files as last listed. ``looked_at``: number of listed partitions. ``partitions``: number of all partitions (None:
    not known yet).
    """

    at_ms: int
    looked_at: int
    partitions: int | None
    total: FileSizes
    largest: tuple[PartitionLine, ...]


@dataclass(frozen=True)
class Warned:
    """A warning or an error of the log."""

    at_ms: int
    level: str
    text: str


@dataclass(frozen=True)
class Stop:
    """How a run of this checkpoint ended. ``error``: the class of its error, or Killed; empty where it ended without an
    error.
    """

    at_ms: int
    error: str
    text: str


@dataclass(frozen=True)
class Snapshot:
    """The status of a run. Times are epoch milliseconds. An unknown value is None.

    ``lag``: records in the source that no commit of this stream has. ``catch_up_s``: seconds to read them at the rate
    of the last batches. ``counts``, ``phases``, ``batches``, ``replayed``, ``seconds``: sums over this run.
    ``durations``: how many batches were in each range of ``run_status.DURATION_BOUNDS``. ``last_commit_exact`` False:
    no commit of the stream is known, and the last one was at that time or earlier. ``groups_whole``: ``groups`` has
    every key group.

    ``services``: completed actions of each service in this run. ``services_failing``: services whose last try failed,
    with the error. ``service_lines``: one line per service. ``waiting``: uncommitted records by partition of the topic,
    as last read from the broker. ``oldest_ms``: time of the oldest of them.

    ``restarts``: of the query in this run, by error class. ``stops``: of all runs of the checkpoint, by error class.
    ``stops_in_row``: runs that ended since the last commit. ``killed_in_row``: those of them that were killed.
    ``last_end``: how the run before this one ended.
    """

    at_ms: int
    about: About
    started_ms: int
    doing: Doing
    health: Health
    run: int | None = None
    lag: int | None = None
    lag_trend: tuple[tuple[int, int], ...] = ()
    oldest_ms: int | None = None
    waiting: tuple[Waiting, ...] = ()
    tasks: Tasks | None = None
    quarantine: Quarantine | None = None
    catch_up_s: float | None = None
    rate: float | None = None
    batches: int = 0
    replayed: int = 0
    seconds: float = 0.0
    durations: tuple[int, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    recent: tuple[BatchLine, ...] = ()
    last_commit_ms: int | None = None
    last_commit_exact: bool = True
    commits: tuple[CommitLine, ...] = ()
    groups: tuple[GroupSize, ...] = ()
    groups_whole: bool = False
    files: TableFiles | None = None
    warnings: tuple[Warned, ...] = ()
    warnings_total: int = 0
    restarts: Mapping[str, int] = field(default_factory=dict)
    stops: Mapping[str, int] = field(default_factory=dict)
    services: Mapping[str, int] = field(default_factory=dict)
    services_failing: Mapping[str, str] = field(default_factory=dict)
    service_lines: tuple[ServiceLine, ...] = ()
    stops_in_row: int = 0
    killed_in_row: int = 0
    last_stop: Stop | None = None
    last_end: Stop | None = None

    @property
    def last_commit_age_s(self) -> float | None:
        """Seconds since the last commit of this stream."""
        return None if self.last_commit_ms is None else max(0.0, (self.at_ms - self.last_commit_ms) / 1000)

    @property
    def data_age_s(self) -> float | None:
        """Seconds by which the table is behind its source: the age of the oldest uncommitted record, 0 if all are
        committed.
        """
        if self.lag == 0:
            return 0.0
        return None if self.oldest_ms is None else max(0.0, (self.at_ms - self.oldest_ms) / 1000)

    @property
    def batch_running_s(self) -> float:
        """Seconds that the current batch has run; 0 between two batches."""
        since = self.doing.batch_since_ms
        return 0.0 if since is None else max(0.0, (self.at_ms - since) / 1000)

    @property
    def doing_s(self) -> float:
        """Seconds in the current step."""
        return max(0.0, (self.at_ms - self.doing.since_ms) / 1000)

    @property
    def index_keys(self) -> int:
        """Live keys of the known key groups."""
        return sum(group.keys for group in self.groups)

    @property
    def index_tombstones(self) -> int:
        """Deleted keys that the known key groups keep."""
        return sum(group.tombstones for group in self.groups)

    @property
    def index_bytes(self) -> int:
        """Bytes of the known key groups."""
        return sum(group.bytes for group in self.groups)

    def document(self) -> dict[str, Any]:
        """The content of ``/status.json``; docs/operations/monitoring.md describes every field."""
        doc = asdict(self)
        del doc["durations"]
        doc["derived"] = {
            "last_commit_age_s": self.last_commit_age_s,
            "data_age_s": self.data_age_s,
            "batch_running_s": self.batch_running_s,
            "doing_s": self.doing_s,
            "index_keys": self.index_keys,
            "index_tombstones": self.index_tombstones,
            "index_bytes": self.index_bytes,
        }
        return doc


_SERVICES: dict[str, str] = {
    WriteOperationType.COMPACT: "compaction",
    WriteOperationType.LOG_COMPACT: "compaction",
    WriteOperationType.CLUSTER: "clustering",
}  # by Hudi's names of operations


def commit_line(instant: Instant, metadata: CommitMetadata) -> CommitLine:
    """A completed write as one row."""
    stats = metadata.all_stats()
    record = parse(metadata.extra)
    return CommitLine(
        instant.time,
        instant.action,
        record.stream_id if record else None,
        record.batch_id if record else None,
        sum(s.num_inserts for s in stats),
        sum(s.num_updates for s in stats),
        sum(s.num_deletes for s in stats),
        len(stats),
        sum(s.total_write_bytes for s in stats),
        _SERVICES.get(metadata.operation, "compaction" if metadata.compacted else ""),
    )


def largest(sizes: Mapping[str, FileSizes], count: int) -> tuple[PartitionLine, ...]:
    """The partitions with the most bytes, and each one's share of the bytes of the largest."""
    rows = [PartitionLine(partition, found) for partition, found in sizes.items()]
    rows.sort(key=lambda row: (-row.sizes.bytes, row.partition_path))
    top = rows[0].sizes.bytes if rows else 0
    return tuple(replace(row, share=row.sizes.bytes / top if top else 0.0) for row in rows[:count])
