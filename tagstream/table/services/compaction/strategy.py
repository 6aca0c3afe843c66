"""Which of the slices with logs a plan takes, by Hudi's strategies, and the metrics that they look at.

Source: Hudi's classes in org.apache.hudi.table.action.compact.strategy and FileSliceMetricUtils.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from functools import partial

from tagstream.table.errors import ConfigError
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.services.compaction.options import MIB, CompactionOptions, Strategy

_DAY = re.compile(r"(\d{1,4})/(\d{1,2})/(\d{1,2})")
_KEY = re.compile(r"(^|/)[^/=]*=")


def metrics_of(file_slice: FileSlice, base_file_bytes: int) -> dict[str, float]:
    """The metrics of an operation in its plan; whole MiB but for TOTAL_LOG_FILES_SIZE, which is bytes."""
    base = file_slice.base_file.size if file_slice.base_file else 0
    read = (base + log_bytes(file_slice)) // MIB
    write = (base if file_slice.base_file else base_file_bytes) // MIB
    return {
        "TOTAL_LOG_FILES": float(len(file_slice.log_files)),
        "TOTAL_IO_MB": float(read + write),
        "TOTAL_IO_READ_MB": float(read),
        "TOTAL_LOG_FILES_SIZE": float(log_bytes(file_slice)),
        "TOTAL_IO_WRITE_MB": float(write),
    }


def log_bytes(file_slice: FileSlice) -> int:
    """Bytes of a slice's log files."""
    return sum(log.size for log in file_slice.log_files)


def choose(slices: Sequence[FileSlice], options: CompactionOptions, today: date) -> list[FileSlice]:
    """The slices that the strategy takes, in its order. ConfigError where it wants days in the partition paths."""
    match options.strategy:
        case Strategy.UNBOUNDED:
            return list(slices)
        case Strategy.BOUNDED_IO:
            return _within_io(slices, options)
        case Strategy.LOG_FILE_SIZE:
            found = [each for each in slices if log_bytes(each) >= options.log_size_threshold]
            return _within_io(sorted(found, key=log_bytes, reverse=True), options)
        case Strategy.LOG_FILE_NUM:
            found = [each for each in slices if len(each.log_files) >= options.log_count_threshold]
            return _within_io(sorted(found, key=lambda each: len(each.log_files), reverse=True), options)
        case Strategy.PARTITION_REGEX:
            wanted = re.compile(options.partition_regex or "")
            return [each for each in slices if wanted.search(each.partition_path)]
        case Strategy.DAY_BASED:
            return _of_days(slices, lambda days: days[: options.target_partitions])
    first = today - timedelta(days=options.target_partitions)
    return _of_days(slices, partial(_not_before, first=first))


def _within_io(slices: Iterable[FileSlice], options: CompactionOptions) -> list[FileSlice]:
    """As many as fit; the one that goes over the target is taken, too, as Hudi takes it."""
    left, found = options.target_io_mb, []
    for each in slices:
        left -= int(metrics_of(each, options.base_file_bytes)["TOTAL_IO_MB"])
        found.append(each)
        if left <= 0:
            break
    return found


def _of_days(
    slices: Sequence[FileSlice], wanted: Callable[[list[tuple[date, str]]], list[tuple[date, str]]]
) -> list[FileSlice]:
    """The slices of some partitions, the latest days first."""
    by_partition: dict[str, list[FileSlice]] = {}
    for each in slices:
        by_partition.setdefault(each.partition_path, []).append(each)
    days = sorted(((day_of(path), path) for path in by_partition), reverse=True)
    return [each for _, path in wanted(days) for each in by_partition[path]]


def _not_before(days: list[tuple[date, str]], first: date) -> list[tuple[date, str]]:
    return [each for each in days if each[0] >= first]


def day_of(partition_path: str) -> date:
    """The day that a partition path begins with: ``2026/11/22`` or ``year=2026/month=11/day=22``."""
    found = _DAY.match(_KEY.sub(r"\1", partition_path))
    try:
        return date(*map(int, found.groups() if found else ()))
    except (TypeError, ValueError):
        raise ConfigError(
            f"partition {partition_path!r} is no day (yyyy/MM/dd): set hoodie.compaction.strategy to one that does not go "
            "by days, e.g. LogFileSizeBasedCompactionStrategy"
        ) from None
