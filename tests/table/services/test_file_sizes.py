"""Sums over files."""

from __future__ import annotations

from tagstream.table.file_group.fs_view import BaseFile, FileSlice, LogFile
from tagstream.table.services.health import FileSizes, sizes_of, total_sizes

MIB = 1 << 20


def a_slice(name: str, base: int | None, *logs: int) -> FileSlice:
    base_file = None if base is None else BaseFile(f"{name}.parquet", name, "1", base)
    found = tuple(LogFile(f".{name}.log.{n}", name, "1", n, None, size) for n, size in enumerate(logs, 1))
    return FileSlice("p", name, "1", base_file, found)


def test_sums_over_slices() -> None:
    found = sizes_of([a_slice("a", 200 * MIB, 5, 6, 7), a_slice("b", 99 * MIB), a_slice("c", None, 10)])
    assert (found.file_groups, found.base_files, found.base_bytes) == (3, 2, 299 * MIB)
    assert (found.log_files, found.log_bytes, found.deepest_log) == (4, 28, 3)
    assert found.small_files == 2
    assert found.sizes == (0, 0, 0, 1, 1, 0)
    assert found.bytes == 299 * MIB + 28
    assert sizes_of([a_slice("a", 8 * MIB)], small_limit=8 * MIB).small_files == 0


def test_sums_over_partitions() -> None:
    one, other = sizes_of([a_slice("a", 1, 2, 3)]), sizes_of([a_slice("b", MIB), a_slice("c", 300 * MIB)])
    total = total_sizes([one, other])
    assert total == sizes_of([a_slice("a", 1, 2, 3), a_slice("b", MIB), a_slice("c", 300 * MIB)])
    assert total.deepest_log == 2
    assert total_sizes([]) == FileSizes()
