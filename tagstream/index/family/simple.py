"""SIMPLE and GLOBAL_SIMPLE: compare the batch's keys with the key column of every slice that may hold them."""

from __future__ import annotations

from pyspark.sql import DataFrame

from tagstream.index.base import HoodieIndex, TableAsOf
from tagstream.index.family.batch_keys import EVERYWHERE, BatchKeys, collect_keys
from tagstream.index.family.lookup import Lookup, SliceTask
from tagstream.index.family.packing import pack

_FILE_COST = 256 * 1024  # bytes of a file that cost as much as opening it


class SimpleIndex(HoodieIndex):
    """The partitions that the batch touches."""

    name = "SIMPLE"
    is_global = False
    can_index_log_files = False
    is_implicit_with_storage = True
    knows_ordering = True

    def __init__(self, parallelism: int = 0, update_partition_path: bool = True) -> None:
        """``parallelism``: look-up tasks (``hoodie.simple.index.parallelism``; 0: as many as cores)."""
        self._parallelism = parallelism
        self.update_partition_path = update_partition_path
        self._lookup = Lookup()

    def tag_location(self, records: DataFrame, look: TableAsOf) -> DataFrame:
        """Where the keys are: base files and logs of the slices are read, key and ordering columns only."""
        keys = collect_keys(records, is_global=self.is_global)
        items = all_slices(look, keys, is_global=self.is_global, bloom=False)
        tasks = self._parallelism or look.spark.sparkContext.defaultParallelism
        return self._lookup.run(look, keys, pack(items, lambda t: t.file_slice.size + _FILE_COST, tasks))

    def end_batch(self) -> None:
        """Remove the keys from the executors."""
        self._lookup.close()


class GlobalSimpleIndex(SimpleIndex):
    """All partitions of the table."""

    name = "GLOBAL_SIMPLE"
    is_global = True


def all_slices(look: TableAsOf, keys: BatchKeys, *, is_global: bool, bloom: bool) -> list[SliceTask]:
    """The newest slices of the partitions that the batch touches (global: of all), each with all keys of its partition."""
    if look.as_of is None or not keys.ranges:
        return []
    view = look.table.view(look.timeline, look.as_of)
    items = []
    for partition in view.partitions() if is_global else keys.ranges:
        start, stop = keys.ranges[EVERYWHERE if is_global else partition]
        items += [SliceTask(s, start, stop, start, stop, bloom) for s in view.latest_merged_slices(partition)]
    return items
