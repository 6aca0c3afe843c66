"""When a table is clustered, which of its file slices, and how: Hudi's options with Hudi's defaults (1.2.0)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from tagstream.table.errors import ConfigError

MIB = 1024 * 1024
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
        for name, least in _LEAST.items():
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


_LEAST = {
    "max_commits": 1, "small_file_limit": 0, "target_file_bytes": 1, "max_group_bytes": 1, "max_groups": 1,
    "lookback_days": 1, "skip_days": 0, "max_memory": 1,
}  # fmt: skip
