"""Options of compaction, clustering, cleaning and archiving, with Hudi's names and defaults (1.2.0)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from tagstream.table.errors import ConfigError
from tagstream.table.history.archive_merge import MergeOptions

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
    """hoodie.compaction.strategy, by the part of the class name that tells them apart."""

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
        raise ConfigError(f"hoodie.compaction.strategy={name} is not known here; use one of {known}") from None


@dataclass(frozen=True)
class CompactionOptions:
    """When and what; in brackets Hudi's keys.

    ``trigger`` (hoodie.compact.inline.trigger.strategy), ``max_delta_commits`` (hoodie.compact.inline.max.delta.commits),
    ``max_delta_seconds`` (hoodie.compact.inline.max.delta.seconds); ``strategy`` (hoodie.compaction.strategy),
    ``target_io_mb`` of reading and writing (hoodie.compaction.target.io), ``log_size_threshold`` in bytes and
    ``log_count_threshold`` of a slice (hoodie.compaction.logfile.size.threshold, .num.threshold), ``target_partitions``
    (hoodie.compaction.daybased.target.partitions), ``partition_regex`` that must be found in a partition path
    (hoodie.compaction.partition.path.regex); ``max_memory``: bytes of a slice's log rows that are held in memory
    (hoodie.memory.compaction.max.size), more go to a temporary file; ``base_file_bytes``: what the first base file of a
    group is taken for when IO is estimated (hoodie.parquet.max.file.size).
    """

    trigger: Trigger = Trigger.NUM_COMMITS
    max_delta_commits: int = 5
    max_delta_seconds: int = 3600
    strategy: Strategy = Strategy.LOG_FILE_SIZE
    target_io_mb: int = 512_000
    log_size_threshold: int = 0
    log_count_threshold: int = 0
    target_partitions: int = 10
    partition_regex: str | None = None
    max_memory: int = 1024 * MIB
    base_file_bytes: int = 120 * MIB

    def __post_init__(self) -> None:
        """Raises ConfigError for values that cannot be used."""
        for name, least in _LEAST_OF_COMPACTION.items():
            if getattr(self, name) < least:
                raise ConfigError(f"compaction option {name} is {getattr(self, name)}; the least is {least}")
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
                    f"hoodie.compaction.partition.path.regex={self.partition_regex} is not a regular expression: {error}"
                ) from None


_LEAST_OF_COMPACTION = {
    "max_delta_commits": 1, "max_delta_seconds": 1, "target_io_mb": 0, "log_size_threshold": 0, "log_count_threshold": 0,
    "target_partitions": 1, "max_memory": 1, "base_file_bytes": 0,
}  # fmt: skip


_PACKAGE = "org.apache.hudi.client.clustering.plan.strategy."
# All of them group slices by their sizes; engines differ in nothing that a plan holds.
_SIZE_BASED = (
    "SparkSizeBasedClusteringPlanStrategy", "JavaSizeBasedClusteringPlanStrategy", "FlinkSizeBasedClusteringPlanStrategy",
)  # fmt: skip


class PartitionFilter(StrEnum):
    """hoodie.clustering.plan.partition.filter.mode: which of the partitions, after pattern and list."""

    NONE = "NONE"
    RECENT_DAYS = "RECENT_DAYS"
    SELECTED_PARTITIONS = "SELECTED_PARTITIONS"
    DAY_ROLLING = "DAY_ROLLING"


def check_plan_strategy(name: str) -> None:
    """ConfigError for a plan strategy other than the size-based one, by its class name with or without the package."""
    if name.strip().removeprefix(_PACKAGE) not in _SIZE_BASED:
        raise ConfigError(
            f"hoodie.clustering.plan.strategy.class={name} is not done here; use {_PACKAGE}{_SIZE_BASED[0]}, which takes "
            "small files, and name the columns to sort by in hoodie.clustering.plan.strategy.sort.columns"
        )


@dataclass(frozen=True)
class ClusteringOptions:
    """When, what and how; in brackets Hudi's keys, ``P`` for ``hoodie.clustering.plan.strategy``.

    ``max_commits``: completed writes since the last clustering that make one due (hoodie.clustering.inline.max.commits).
    ``small_file_limit``: only slices whose base file has fewer bytes (P.small.file.limit); ``target_file_bytes`` of a new
    file (P.target.file.max.bytes); ``max_group_bytes``: slices that are joined have at most so many together
    (P.max.bytes.per.group); ``max_groups`` of a plan (P.max.num.groups); ``sort_columns`` (P.sort.columns);
    ``single_groups``: also slices that have none to be joined with (P.single.group.clustering.enabled).
    Partitions: ``partition_regex`` (P.partition.regex.pattern) and ``partitions`` (P.partition.selected) first, then
    ``filter`` (hoodie.clustering.plan.partition.filter.mode) with ``lookback_days`` and ``skip_days`` newest partitions
    (P.daybased.lookback.partitions, P.daybased.skipfromlatest.partitions), or from ``first_partition`` to
    ``last_partition`` (P.cluster.begin.partition, P.cluster.end.partition). ``max_memory``: bytes of rows that a task
    holds, what is more lies in temporary files (hoodie.memory.compaction.max.size).
    """

    max_commits: int = 4
    small_file_limit: int = 300 * MIB
    target_file_bytes: int = 1024 * MIB
    max_group_bytes: int = 2048 * MIB
    max_groups: int = 30
    sort_columns: tuple[str, ...] = ()
    single_groups: bool = True
    partition_regex: str | None = None
    partitions: tuple[str, ...] = ()
    filter: PartitionFilter = PartitionFilter.NONE
    lookback_days: int = 2
    skip_days: int = 0
    first_partition: str | None = None
    last_partition: str | None = None
    max_memory: int = 1024 * MIB

    def __post_init__(self) -> None:
        """Raises ConfigError for values that cannot be used."""
        for name, least in _LEAST_OF_CLUSTERING.items():
            if getattr(self, name) < least:
                raise ConfigError(f"clustering option {name} is {getattr(self, name)}; the least is {least}")
        if self.partition_regex is not None:
            try:
                re.compile(self.partition_regex)
            except re.error as error:
                raise ConfigError(
                    f"hoodie.clustering.plan.strategy.partition.regex.pattern={self.partition_regex} is no regular "
                    f"expression: {error}"
                ) from None
        if self.filter is PartitionFilter.SELECTED_PARTITIONS and None in (self.first_partition, self.last_partition):
            raise ConfigError(
                "hoodie.clustering.plan.partition.filter.mode=SELECTED_PARTITIONS needs "
                "hoodie.clustering.plan.strategy.cluster.begin.partition and .cluster.end.partition"
            )


_LEAST_OF_CLUSTERING = {
    "max_commits": 1, "small_file_limit": 0, "target_file_bytes": 1, "max_group_bytes": 1, "max_groups": 1,
    "lookback_days": 1, "skip_days": 0, "max_memory": 1,
}  # fmt: skip


class CleanPolicy(StrEnum):
    """What is kept: slices that the newest commits, or commits of the last hours, may read; or newest slices by number."""

    KEEP_LATEST_COMMITS = "KEEP_LATEST_COMMITS"
    KEEP_LATEST_BY_HOURS = "KEEP_LATEST_BY_HOURS"
    KEEP_LATEST_FILE_VERSIONS = "KEEP_LATEST_FILE_VERSIONS"


@dataclass(frozen=True)
class CleanOptions:
    """``commits``, ``hours`` and ``file_versions`` are each of one policy.

    ``max_commits``: completed writes since the last clean that make a new one due. ``incremental``: only partitions are
    looked at in which something may have become old since the last clean. ``max_commits_to_clean``: how many commits one
    clean may go forward at most (None: no limit). ``whole_partitions``: partitions that a delete of partitions has emptied
    go with their folders; only where no write is at work while the clean is carried out.

    ConfigError for a number that cannot be.
    """

    policy: CleanPolicy = CleanPolicy.KEEP_LATEST_COMMITS
    commits: int = 10
    hours: int = 24
    file_versions: int = 3
    max_commits: int = 1
    incremental: bool = True
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
    """Once there are more than ``max_commits`` completed writes, all but the newest ``min_commits`` may go.

    ``beyond_savepoint``: writes later than a savepoint go, too, and the timeline has a gap. Hudi 1.2.0 and hudi-rs do not
    see the rows of the writes in it, in tables of their own either. ``compaction_deltas``: how many delta commits make a
    compaction of a merge-on-read table due, which must stay countable (None: it is due by time).
    ``keep_rollbacks``: for an index outside of the table (HBase), which has to know what was rolled back: there a write that
    is older than the timeline, and not known to be rolled back, counts as completed. ``keep_uncompacted``: from version 8 on
    the delta commits since the last compaction stay, for hudi-rs does not look into the archive for when they were
    completed, and passes over their log files. ``merge``: how small files of version 6's archive are merged; None: not.
    """

    min_commits: int = 20
    max_commits: int = 30
    automatic: bool = True
    beyond_savepoint: bool = False
    compaction_deltas: int | None = 5
    keep_rollbacks: bool = False
    keep_uncompacted: bool = False
    merge: MergeOptions | None = field(default_factory=MergeOptions)

    def __post_init__(self) -> None:
        if not 1 <= self.min_commits < self.max_commits:
            raise ConfigError(
                f"hoodie.keep.min.commits is {self.min_commits} and hoodie.keep.max.commits {self.max_commits}: the first "
                "must be 1 at least and smaller than the second"
            )


def check_retention(archive: ArchiveOptions, clean: CleanOptions) -> None:
    """ConfigError where commits would be archived that the cleaner has to see."""
    if clean.policy is CleanPolicy.KEEP_LATEST_COMMITS and archive.min_commits <= clean.commits:
        raise ConfigError(
            f"hoodie.keep.min.commits is {archive.min_commits} and hoodie.clean.commits.retained {clean.commits}: what the "
            "cleaner retains must be on the active timeline, so the first must be greater"
        )
