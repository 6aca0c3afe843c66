"""Which file slices a clustering takes, and which of them it joins: Hudi's size-based strategy.

Source: PartitionAwareClusteringPlanStrategy, SparkSizeBasedClusteringPlanStrategy and ClusteringPlanPartitionFilter of Hudi
1.2.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.services.clustering.options import ClusteringOptions, PartitionFilter


@dataclass(frozen=True)
class Joined:
    """Slices of one partition that become ``outputs`` new file groups."""

    slices: tuple[FileSlice, ...]
    outputs: int

    @property
    def size(self) -> int:
        """Bytes by which slices are put together: those of base files, and of the logs of a slice without one."""
        return sum(map(size_of, self.slices))


def size_of(file_slice: FileSlice) -> int:
    """Bytes of a slice as the strategy counts them: log files count only where there is no base file."""
    return file_slice.base_file.size if file_slice.base_file else file_slice.size


def choose_partitions(partitions: Sequence[str], options: ClusteringOptions, hour: int) -> list[str]:
    """The partitions that are looked at, the newest first where the filter goes by days. ``hour`` of the day, 0 to 23."""
    found = list(partitions)
    if options.partition_regex is not None:
        wanted = re.compile(options.partition_regex)
        found = [path for path in found if wanted.fullmatch(path)]
    if options.partitions:
        found = [path for path in found if path in options.partitions]
    match options.filter:
        case PartitionFilter.RECENT_DAYS:
            newest = sorted(found, reverse=True)
            return newest[options.skip_days : options.skip_days + options.lookback_days]
        case PartitionFilter.SELECTED_PARTITIONS:
            return sorted(
                path for path in found if (options.first_partition or "") <= path <= (options.last_partition or "")
            )
        case PartitionFilter.DAY_ROLLING:
            ordered = sorted(found)
            return [path for number, path in enumerate(ordered) if number % 24 == hour]
    return sorted(found)


def join_slices(slices: Iterable[FileSlice], options: ClusteringOptions, settled: frozenset[str]) -> list[Joined]:
    """The slices of one partition, the largest first, put together until a group is full.

    ``settled``: file ids that a clustering of the same sort columns has written and nobody has touched since; joining them
    may gain something, rewriting one of them alone does not.
    """
    small = [each for each in slices if (each.base_file.size if each.base_file else 0) < options.small_file_limit]
    groups: list[list[FileSlice]] = []
    size = 0
    for each in sorted(small, key=lambda found: (-size_of(found), found.file_id)):
        if not groups or (size >= options.max_group_bytes or size + size_of(each) > options.max_group_bytes):
            groups.append([])
            size = 0
        groups[-1].append(each)
        size += size_of(each)
    found = []
    for group in groups:
        if len(group) == 1 and (not options.single_groups or group[0].file_id in settled):
            continue
        joined = Joined(tuple(group), 1)
        found.append(Joined(joined.slices, max(1, -(-joined.size // options.target_file_bytes))))
    return found
