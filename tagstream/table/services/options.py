"""Options of compaction, partition TTL, cleaning and archiving, with Hudi's names and defaults (1.2.0)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from tagstream.table.config import ConfigKey, Kind
from tagstream.table.errors import ConfigError
from tagstream.table.history.archive_merge import MergeOptions
from tagstream.table.option_fields import derived, option, same_key
from tagstream.table.write.file_sizes import FileSizeOptions

MIB = 1024 * 1024
_COMPACTION_PACKAGE = "org.apache.hudi.table.action.compact.strategy."
_CLASS_SUFFIX = "CompactionStrategy"


class Trigger(StrEnum):
    """hoodie.compact.inline.trigger.strategy."""

    NUM_COMMITS = "NUM_COMMITS"
    NUM_COMMITS_AFTER_LAST_REQUEST = "NUM_COMMITS_AFTER_LAST_REQUEST"
    TIME_ELAPSED = "TIME_ELAPSED"
    NUM_AND_TIME = "NUM_AND_TIME"
    NUM_OR_TIME = "NUM_OR_TIME"


class Strategy(StrEnum):
    """hoodie.compaction.strategy, by the distinct part of the class name."""

    LOG_FILE_SIZE = "LogFileSizeBased"
    LOG_FILE_NUM = "LogFileNumBased"
    BOUNDED_IO = "BoundedIO"
    UNBOUNDED = "UnBounded"
    DAY_BASED = "DayBased"
    BOUNDED_PARTITION_AWARE = "BoundedPartitionAware"
    PARTITION_REGEX = "PartitionRegexBased"


def strategy_of(name: str) -> Strategy:
    """A strategy by its class name, with or without the package and ``CompactionStrategy``; ConfigError for others."""
    short = name.strip().removeprefix(_COMPACTION_PACKAGE).removesuffix(_CLASS_SUFFIX)
    try:
        return Strategy(short)
    except ValueError:
        known = ", ".join(f"{each}{_CLASS_SUFFIX}" for each in Strategy)
        raise ConfigError(
            f"hoodie.compaction.strategy={name} is not known to this version; use one of {known}"
        ) from None


def _strategies() -> dict[str, str]:
    """Accepted spellings of a strategy's class in upper case, with and without the package, and its name."""
    names = [f"{strategy}{_CLASS_SUFFIX}" for strategy in Strategy]
    return {f"{package}{name}".upper(): name for package in ("", _COMPACTION_PACKAGE) for name in names}


@dataclass(frozen=True)
class CompactionOptions:
    """``max_memory``: memory for the log rows of a slice; the rest is spilled to a temporary file.

    ``base_file_bytes``: the assumed size of a group's first base file when IO is estimated.
    """

    trigger: Trigger = option(
        "hoodie.compact.inline.trigger.strategy",
        Kind.CHOICE,
        "What makes a compaction due: delta commits since the last one, seconds since the last one, both, or one of "
        "them.",
        default="NUM_COMMITS",
        values={name.value: name.value for name in Trigger},
        aliases=("compaction.trigger.strategy",),
        convert=Trigger,
    )
    max_delta_commits: int = option(
        "hoodie.compact.inline.max.delta.commits",
        Kind.INT,
        "Number of delta commits after which a compaction is due.",
        default=5,
        minimum=1,
        aliases=("compaction.delta_commits",),
    )
    max_delta_seconds: int = option(
        "hoodie.compact.inline.max.delta.seconds",
        Kind.INT,
        "Seconds after which a compaction is due, with a trigger strategy that uses time.",
        default=3600,
        minimum=1,
        aliases=("compaction.delta_seconds",),
    )
    strategy: Strategy = option(
        "hoodie.compaction.strategy",
        Kind.CHOICE,
        "Which file slices with logs a plan includes, and in which order.",
        default="LogFileSizeBasedCompactionStrategy",
        values=_strategies(),
        convert=strategy_of,
    )
    target_io_mb: int = option(
        "hoodie.compaction.target.io",
        Kind.INT,
        "MB that one compaction may read and write, for strategies with such a limit.",
        default=512_000,
        minimum=1,
    )
    log_size_threshold: int = option(
        "hoodie.compaction.logfile.size.threshold",
        Kind.BYTES,
        "A slice is left out if the total size of its logs is smaller (LogFileSizeBasedCompactionStrategy).",
        default=0,
        minimum=0,
    )
    log_count_threshold: int = option(
        "hoodie.compaction.logfile.num.threshold",
        Kind.INT,
        "A slice with fewer log files is left out (LogFileNumBasedCompactionStrategy).",
        default=0,
        minimum=0,
    )
    target_partitions: int = option(
        "hoodie.compaction.daybased.target.partitions",
        Kind.INT,
        "Number of newest partitions in a plan (for the strategies by day and by partition).",
        default=10,
        minimum=1,
    )
    partition_regex: str | None = option(
        "hoodie.compaction.partition.path.regex",
        Kind.REGEX,
        "Regular expression of the partitions in a plan (PartitionRegexBasedCompactionStrategy).",
    )
    max_memory: int = option(
        "hoodie.memory.compaction.max.size",
        Kind.BYTES,
        "Memory for the log records of one file slice; the rest is spilled to disk.",
        default=1 << 30,
        minimum=1 << 20,
    )
    base_file_bytes: int = same_key(FileSizeOptions, "max_file_bytes")

    def __post_init__(self) -> None:
        """Raises ConfigError for values that cannot be used."""
        for name, least in _LEAST_OF_COMPACTION.items():
            if getattr(self, name) < least:
                raise ConfigError(f"compaction option {name} is {getattr(self, name)}; it must be {least} at least")
        if self.strategy is Strategy.PARTITION_REGEX:
            if self.partition_regex is None:
                raise ConfigError(
                    f"hoodie.compaction.strategy={_COMPACTION_PACKAGE}{self.strategy}{_CLASS_SUFFIX} needs "
                    "hoodie.compaction.partition.path.regex"
                )
            try:
                re.compile(self.partition_regex)
            except re.error as error:
                raise ConfigError(
                    f"hoodie.compaction.partition.path.regex={self.partition_regex} is not a regular expression: "
                    f"{error}"
                ) from None


_LEAST_OF_COMPACTION = {
    "max_delta_commits": 1, "max_delta_seconds": 1, "target_io_mb": 0, "log_size_threshold": 0, "log_count_threshold": 0,
    "target_partitions": 1, "max_memory": 1, "base_file_bytes": 0,
}  # fmt: skip


DAY_MS = 86_400_000
TTL_KEY = "hoodie.partition.ttl.inline"
DAYS_KEY = "hoodie.partition.ttl.strategy.days.retain"
_TTL_PACKAGE = "org.apache.hudi.table.action.ttl.strategy."


class TtlType(StrEnum):
    """From when a partition's age is counted: its last write, or its creation."""

    KEEP_BY_TIME = "KEEP_BY_TIME"
    KEEP_BY_CREATION_TIME = "KEEP_BY_CREATION_TIME"


_CLASSES = {"KeepByTimeStrategy": TtlType.KEEP_BY_TIME, "KeepByCreationTimeStrategy": TtlType.KEEP_BY_CREATION_TIME}


@dataclass(frozen=True)
class TtlOptions:
    """``strategy_class``: the same as ``kind`` by the name of Hudi's class, and first. ConfigError without days."""

    kind: TtlType = option(
        "hoodie.partition.ttl.management.strategy.type",
        Kind.CHOICE,
        "From when the age of a partition is counted: its last write, or its first one.",
        default=TtlType.KEEP_BY_TIME.value,
        values={kind.value: kind.value for kind in TtlType},
        convert=TtlType,
    )
    strategy_class: TtlType | None = option(
        "hoodie.partition.ttl.strategy.class",
        Kind.CHOICE,
        "The same by the name of Hudi's class; it comes first.",
        values={f"{package}{name}".upper(): name for name in _CLASSES for package in ("", _TTL_PACKAGE)},
        convert=_CLASSES.__getitem__,
    )
    days: int | None = option(
        DAYS_KEY, Kind.INT, "Age in days after which the rows of a partition are deleted.", minimum=1
    )
    selected: tuple[str, ...] = option(
        "hoodie.partition.ttl.strategy.partition.selected",
        Kind.LIST,
        "Only these partition paths; all if it is not given.",
        default=(),
        convert=tuple,
    )
    most: int = option(
        "hoodie.partition.ttl.strategy.max.delete.partitions",
        Kind.INT,
        "The most partitions that one commit deletes; the others follow after the next batch.",
        default=1000,
        minimum=1,
    )

    def __post_init__(self) -> None:
        if self.days is None:
            raise ConfigError(f"{TTL_KEY} and `tagstream table ttl` need {DAYS_KEY}: the age in days; set it")

    @property
    def by_creation(self) -> bool:
        """Whether the age is counted from the first write."""
        return (self.strategy_class or self.kind) is TtlType.KEEP_BY_CREATION_TIME

    @property
    def life_ms(self) -> int:
        """The time to live in milliseconds."""
        assert self.days is not None
        return self.days * DAY_MS


class CleanPolicy(StrEnum):
    """Kept slices: those for the newest commits, for the commits of the last hours, or a number of the newest
    slices."""

    KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
    KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"
    KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"


@dataclass(frozen=True)
class CleanOptions:
    """``commits``, ``hours`` and ``file_versions`` are each of one policy.

    ``max_commits``: completed writes after the last clean that make a new one due. ``incremental``: only partitions
    with possibly old slices since the last clean are checked. ``max_commits_to_clean``: limit of the commits that one
    clean covers (None: no limit). ``whole_partitions``: deleted partitions are removed with their folders; only if no
    write runs during the clean.

    ConfigError for an invalid number.
    """

    policy: CleanPolicy = option(
        "hoodie.clean.policy",
        Kind.CHOICE,
        "Which slices are kept: those for the newest commits, for the newest hours, or a number of versions.",
        default="KEEP_LATEST_COMMITS",
        values={name.value: name.value for name in CleanPolicy},
        aliases=("hoodie.cleaner.policy", "clean.policy"),
        convert=CleanPolicy,
    )
    commits: int = option(
        "hoodie.clean.commits.retained",
        Kind.INT,
        "Number of commits whose files are kept. A query may run as long as this number of commits takes.",
        default=10,
        minimum=1,
        aliases=("hoodie.cleaner.commits.retained", "clean.retain_commits"),
    )
    hours: int = option(
        "hoodie.clean.hours.retained",
        Kind.INT,
        "Number of hours whose files are kept (KEEP_LATEST_BY_HOURS).",
        default=24,
        minimum=1,
        aliases=("hoodie.cleaner.hours.retained", "clean.retain_hours"),
    )
    file_versions: int = option(
        "hoodie.clean.fileversions.retained",
        Kind.INT,
        "Number of slices of each file group that are kept (KEEP_LATEST_FILE_VERSIONS).",
        default=3,
        minimum=1,
        aliases=("hoodie.cleaner.fileversions.retained", "clean.retain_file_versions"),
    )
    max_commits: int = option(
        "hoodie.clean.trigger.max.commits",
        Kind.INT,
        "Number of commits after which the job checks whether a clean is needed.",
        default=1,
        minimum=1,
        aliases=("hoodie.clean.max.commits",),
    )
    incremental: bool = option(
        "hoodie.clean.incremental.enabled",
        Kind.BOOL,
        "Check only partitions that commits have changed since the last clean.",
        default=True,
        aliases=("hoodie.cleaner.incremental.mode",),
    )
    max_commits_to_clean: int | None = None
    whole_partitions: bool = True

    def __post_init__(self) -> None:
        numbers = {
            "hoodie.clean.commits.retained": self.commits,
            "hoodie.clean.hours.retained": self.hours,
            "hoodie.clean.fileversions.retained": self.file_versions,
            "hoodie.clean.trigger.max.commits": self.max_commits,
            "hoodie.clean.max.commits.to.clean": 1 if self.max_commits_to_clean is None else self.max_commits_to_clean,
        }
        for key, number in numbers.items():
            if number < 1:
                raise ConfigError(f"{key} is {number}: it must be 1 at least")


@dataclass(frozen=True)
class ArchiveOptions:
    """With more than ``max_commits`` completed writes, all but the newest ``min_commits`` may be archived.

    ``beyond_savepoint``: writes later than a savepoint are archived, too, and the timeline has a gap. Hudi 1.2.0 and
    hudi-rs do not see the rows of the writes in the gap, also in their own tables. ``compaction_deltas``: number of
    delta commits that make a compaction of a merge-on-read table due; these are kept, so that they can be counted
    (None: it is due by time). ``keep_rollbacks``: for an index outside of the table (HBase), which needs the rollbacks:
    there a write that is older than the timeline, and not known to be rolled back, counts as completed.
    ``keep_uncompacted``: from version 8 on the delta commits since the last compaction are kept, because hudi-rs does
    not read completion times from the archive, and ignores the log files of archived commits. ``merge``: how small
    files of version 6's archive are merged; None: they are not merged.
    """

    min_commits: int = option(
        "hoodie.keep.min.commits",
        Kind.INT,
        "Number of commits to keep on the active timeline; greater than hoodie.clean.commits.retained.",
        default=20,
        minimum=2,
        aliases=("archive.min_commits",),
    )
    max_commits: int = option(
        "hoodie.keep.max.commits",
        Kind.INT,
        "Number of commits above which old ones are archived; greater than hoodie.keep.min.commits.",
        default=30,
        minimum=3,
        aliases=("archive.max_commits",),
    )
    beyond_savepoint: bool = False
    compaction_deltas: int | None = 5
    keep_rollbacks: bool = False
    keep_uncompacted: bool = False
    merge: MergeOptions | None = derived(
        ConfigKey(
            "hoodie.archive.merge.enable",
            Kind.BOOL,
            "Table version 6: merge small files of the archive. Each archiving writes one such file. "
            "Hudi's default is false.",
            default=True,
        ),
        default=MergeOptions(),
    )

    def __post_init__(self) -> None:
        if not 1 <= self.min_commits < self.max_commits:
            raise ConfigError(
                f"hoodie.keep.min.commits is {self.min_commits} and hoodie.keep.max.commits {self.max_commits}: the "
                f"first must be at least 1 and smaller than the second"
            )


def check_retention(archive: ArchiveOptions, clean: CleanOptions) -> None:
    """ConfigError if commits that the cleaner needs would be archived."""
    if clean.policy is CleanPolicy.KEEP_LATEST_COMMITS and archive.min_commits <= clean.commits:
        raise ConfigError(
            f"hoodie.keep.min.commits is {archive.min_commits} and hoodie.clean.commits.retained {clean.commits}: the "
            f"commits that the cleaner retains must be on the active timeline, so the first must be greater"
        )
