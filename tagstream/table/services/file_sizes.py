"""How large the files of a table are, partition by partition: for people who look at it, and for nothing that decides."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.file_group.fs_view import FileSystemView

SMALL_FILE_BYTES = 104_857_600  # hoodie.parquet.small.file.limit where nothing else is set
_MIB = 1 << 20
# Base files by size: how many are under each bound, and in the last place how many are not under any.
SIZE_BOUNDS = (_MIB, 8 * _MIB, 32 * _MIB, 100 * _MIB, 256 * _MIB)


@dataclass(frozen=True)
class FileSizes:
    """Sums over file groups. A file group is small when its base file (without one: its logs) is under the limit.

    ``deepest_log``: the most log files that one file slice has; ``sizes``: base files by ``SIZE_BOUNDS``.
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
        """Base files and logs together."""
        return self.base_bytes + self.log_bytes

    def plus(self, other: FileSizes) -> FileSizes:
        """Both together."""
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
    """The sums over some file slices: a step a file, no file is opened."""
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
    """All together."""
    return reduce(FileSizes.plus, parts, FileSizes())
