"""Options of clustering, with Hudi's names and defaults (1.2.0, HoodieClusteringConfig)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

from tagstream.table.buckets.resize import ResizeLimits
from tagstream.table.config import ConfigKey, Kind
from tagstream.table.errors import ConfigError
from tagstream.table.keys.hash_fields import HashFields
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.option_fields import derived, option, same_key
from tagstream.table.services.options import CompactionOptions
from tagstream.table.write.file_sizes import FileSizeOptions

_PULL = "Pull-type indexes"  # a section of the documentation
_PLAN = "hoodie.clustering.plan.strategy."
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
            f"hoodie.clustering.plan.strategy.class={name} is not done here; use {_PACKAGE}{_SIZE_BASED[0]}, which "
            f"takes "
            "small files, and name the columns to sort by in hoodie.clustering.plan.strategy.sort.columns"
        )


@dataclass(frozen=True)
class ResizeOptions:
    """When the buckets of consistent hashing are split and merged.

    ``num_buckets``: of a new partition; None: the number that each partition began with. It is the default of the least
    and the most buckets, and within them. ``hash_fields``: the fields of the record key that are hashed, none: all.
    ``key_release``: the releases whose parsing of keys applies.
    """

    most: int | None = option(
        "hoodie.bucket.index.max.num.buckets",
        Kind.INT,
        "BUCKET with consistent hashing: a partition with so many buckets is not split further.",
        default_note="hoodie.bucket.index.num.buckets: no bucket is split",
        minimum=1,
        section=_PULL,
    )
    least: int | None = option(
        "hoodie.bucket.index.min.num.buckets",
        Kind.INT,
        "BUCKET with consistent hashing: a partition keeps at least so many buckets.",
        default_note="hoodie.bucket.index.num.buckets: no buckets are merged",
        minimum=1,
        section=_PULL,
    )
    split_threshold: float = option(
        "hoodie.bucket.index.split.threshold",
        Kind.FLOAT,
        "BUCKET with consistent hashing: a clustering splits buckets that are larger than this number times "
        "hoodie.parquet.max.file.size.",
        default=2.0,
        section=_PULL,
    )
    merge_threshold: float = option(
        "hoodie.bucket.index.merge.threshold",
        Kind.FLOAT,
        "BUCKET with consistent hashing: a clustering merges neighbours that are at most this number times "
        "hoodie.parquet.max.file.size.",
        default=0.2,
        section=_PULL,
    )
    max_file_bytes: int = same_key(FileSizeOptions, "max_file_bytes")
    num_buckets: int | None = None
    hash_fields: tuple[str, ...] = ()
    key_release: str = "1.x"

    def limits(self, begun_with: int) -> ResizeLimits:
        """The limits for a partition that began with this number of buckets."""
        number = self.num_buckets or begun_with
        return ResizeLimits(
            int(self.max_file_bytes * self.split_threshold),
            int(self.max_file_bytes * self.merge_threshold),
            min(self.least or number, number),
            max(self.most or number, number),
        )

    def hashed(self, table: HoodieTable) -> HashFields:
        """The hash fields of a table; ConfigError for fields that are not among its record key's."""
        keys = table.config.record_key_fields
        try:
            return HashFields(keys, self.hash_fields or keys, self.key_release)
        except ValueError as error:
            raise ConfigError(f"hoodie.bucket.index.hash.field: {error}") from None


@dataclass(frozen=True)
class ClusteringOptions:
    """When, what and how.

    ``max_commits``: completed writes since the last clustering that make one due; the job has a property for
    clusterings between its batches and one for those in parallel with them. ``small_file_limit``: only slices whose
    base file has fewer bytes. ``max_group_bytes``: slices that are joined have at most so many together.
    ``single_groups``: also slices that have none to be joined with. Partitions: ``partition_regex`` and ``partitions``
    first, then ``filter`` with ``lookback_days`` and ``skip_days`` newest partitions, or from ``first_partition`` to
    ``last_partition``. ``max_memory``: bytes of rows that a task holds, rows beyond that are in temporary files. ``resize``:
    of a table with consistent hashing, whose buckets are split and merged instead.
    """

    max_commits: int = derived(
        ConfigKey(
            "hoodie.clustering.inline.max.commits",
            Kind.INT,
            "Number of commits since the last clustering after which one is due.",
            default=4,
            minimum=1,
        ),
        ConfigKey(
            "hoodie.clustering.async.max.commits",
            Kind.INT,
            "The same as hoodie.clustering.inline.max.commits, for clusterings in parallel with batches.",
            default=4,
            minimum=1,
        ),
        default=4,
    )
    sort_columns: tuple[str, ...] = option(
        f"{_PLAN}sort.columns",
        Kind.LIST,
        "Columns by which the rows of merged file groups are sorted, so that readers skip more row groups.",
        unread=(),
    )
    small_file_limit: int = option(
        f"{_PLAN}small.file.limit",
        Kind.BYTES,
        "Only file groups with a smaller base file are merged. In bytes.",
        default=300 << 20,
        minimum=0,
    )
    target_file_bytes: int = option(
        f"{_PLAN}target.file.max.bytes", Kind.BYTES, "Size of a new file in bytes.", default=1 << 30, minimum=1
    )
    max_group_bytes: int = option(
        f"{_PLAN}max.bytes.per.group",
        Kind.BYTES,
        "Bytes of file groups that one task merges.",
        default=2 << 30,
        minimum=1,
    )
    max_groups: int = option(
        f"{_PLAN}max.num.groups",
        Kind.INT,
        "Largest number of merged sets of file groups in one clustering.",
        default=30,
        minimum=1,
    )
    single_groups: bool = option(
        f"{_PLAN}single.group.clustering.enabled",
        Kind.BOOL,
        "Also rewrite a single small file group that has no other to merge with, unless a clustering has written it.",
        default=True,
    )
    filter: PartitionFilter = option(
        "hoodie.clustering.plan.partition.filter.mode",
        Kind.CHOICE,
        "Which partitions are considered: all, the newest by name, a range, or in each hour of the day other ones.",
        default="NONE",
        values={name.value: name.value for name in PartitionFilter},
        convert=PartitionFilter,
    )
    lookback_days: int = option(
        f"{_PLAN}daybased.lookback.partitions",
        Kind.INT,
        "Number of newest partitions to consider (RECENT_DAYS).",
        default=2,
        minimum=1,
    )
    skip_days: int = option(
        f"{_PLAN}daybased.skipfromlatest.partitions",
        Kind.INT,
        "Number of newest partitions to leave out (RECENT_DAYS).",
        default=0,
        minimum=0,
    )
    first_partition: str | None = option(
        f"{_PLAN}cluster.begin.partition", Kind.STRING, "The first partition to consider (SELECTED_PARTITIONS)."
    )
    last_partition: str | None = option(
        f"{_PLAN}cluster.end.partition", Kind.STRING, "The last partition to consider (SELECTED_PARTITIONS)."
    )
    partition_regex: str | None = option(
        f"{_PLAN}partition.regex.pattern", Kind.REGEX, "Only partitions whose whole path matches are considered."
    )
    partitions: tuple[str, ...] = option(
        f"{_PLAN}partition.selected", Kind.LIST, "Only these partitions are considered.", unread=()
    )
    max_memory: int = same_key(CompactionOptions, "max_memory")
    resize: ResizeOptions = field(default_factory=ResizeOptions)

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
                    f"hoodie.clustering.plan.strategy.partition.regex.pattern={self.partition_regex} is not a regular "
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
