"""When a table is compacted and which file slices: Hudi's options with Hudi's defaults (1.2.0, from its classes)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from tagstream.table.errors import ConfigError

MIB = 1024 * 1024
_PACKAGE = "org.apache.hudi.table.action.compact.strategy."
_SUFFIX = "CompactionStrategy"


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
    short = name.strip().removeprefix(_PACKAGE).removesuffix(_SUFFIX)
    try:
        return Strategy(short)
    except ValueError:
        known = ", ".join(f"{each}{_SUFFIX}" for each in Strategy)
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
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ConfigError(f"compaction option {name} is {getattr(self, name)}; the least is {least}")
        if self.strategy is Strategy.PARTITION_REGEX:
            if self.partition_regex is None:
                raise ConfigError(
                    f"hoodie.compaction.strategy={_PACKAGE}{self.strategy}{_SUFFIX} needs "
                    "hoodie.compaction.partition.path.regex"
                )
            try:
                re.compile(self.partition_regex)
            except re.error as error:
                raise ConfigError(
                    f"hoodie.compaction.partition.path.regex={self.partition_regex} is not a regular expression: {error}"
                ) from None


_LEAST = {
    "max_delta_commits": 1, "max_delta_seconds": 1, "target_io_mb": 0, "log_size_threshold": 0, "log_count_threshold": 0,
    "target_partitions": 1, "max_memory": 1, "base_file_bytes": 0,
}  # fmt: skip
