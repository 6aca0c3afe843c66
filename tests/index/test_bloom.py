"""How a bloom look-up is cut into tasks, from the numbers of comparisons."""

from __future__ import annotations

from tagstream.index.bloom import BloomIndex, BloomIndexOptions
from tagstream.index.lookup import SliceTask
from tagstream.table.file_group.fs_view import BaseFile, FileSlice, LogFile


def task(name: str, comparisons: int, *, log: bool = False) -> SliceTask:
    logs = (LogFile(f".{name}_1.log.1_0-0-0", name, "1", 1, "0-0-0", 100),) if log else ()
    at = FileSlice("p", name, "1", BaseFile(f"{name}_0-0-0_1.parquet", name, "1", 1000), logs)
    return SliceTask(at, 0, 1000, 10, 10 + comparisons, True)


def test_a_file_with_very_many_keys_is_checked_by_several_tasks() -> None:
    index = BloomIndex(BloomIndexOptions(keys_per_bucket=40))
    tasks = index._tasks([task("big", 100), task("small", 5)], cores=2)
    pieces = [t for part in tasks for t in part if t.file_slice.file_id == "big"]
    assert sorted((t.base_start, t.base_stop) for t in pieces) == [(10, 43), (43, 76), (76, 110)]
    assert all((t.start, t.stop) == (t.base_start, t.base_stop) for t in pieces)
    assert max(t.comparisons for part in tasks for t in part) <= 40


def test_a_slice_with_logs_is_not_cut() -> None:
    index = BloomIndex(BloomIndexOptions(keys_per_bucket=40))
    (only,) = [t for part in index._tasks([task("big", 100, log=True)], cores=2) for t in part]
    assert (only.start, only.stop, only.comparisons) == (0, 1000, 100)


def test_without_buckets_files_are_checked_in_their_order_each_by_one_task() -> None:
    index = BloomIndex(BloomIndexOptions(bucketized=False, parallelism=2, keys_per_bucket=1))
    tasks = index._tasks([task(name, 10) for name in "dbca"], cores=8)
    assert [[t.file_slice.file_id for t in part] for part in tasks] == [["a", "b"], ["c", "d"]]
