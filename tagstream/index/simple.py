"""SIMPLE, GLOBAL_SIMPLE and INMEMORY: indexes that read the key column of whole slices.

SIMPLE compares a batch's keys with every slice that may hold them. INMEMORY reads all slices when the job starts,
into a dictionary on the driver; it is for small tables and for tests.
"""

from __future__ import annotations

from itertools import repeat

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from tagstream.index.base import HoodieIndex, TableAsOf, location_schema
from tagstream.index.lookup import EVERYWHERE, BatchKeys, Lookup, SliceTask, collect_keys, pack, scan_all
from tagstream.spark_release import from_arrow

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


Place = tuple[str, str, str]  # partition path, file id, instant


class InMemoryIndex(HoodieIndex):
    """Hudi's has (partition, key) as its key and is empty at the start; this one is truly global and never empty."""

    name = "INMEMORY"
    is_global = True
    can_index_log_files = True
    is_implicit_with_storage = False

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._before: dict[str, dict[str, Place | None]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def start(self, look: TableAsOf) -> None:
        """Load every key of the table: some 200 bytes of the driver's memory each."""
        self._places, self._before = {}, {}
        for rows in scan_all(look):
            names = ("partition_path", "file_id", "instant")
            places = zip(*(rows.column(name).to_pylist() for name in names), strict=True)
            self._places.update(zip(rows.column("record_key").to_pylist(), places, strict=True))

    def tag_location(self, records: DataFrame, look: TableAsOf) -> DataFrame:
        """Where the keys are; their ordering values are not kept."""
        keys = collect_keys(records, is_global=True).keys.to_pylist()
        found = [(key, place) for key, place in zip(keys, map(self._places.get, keys), strict=True) if place]
        kind = pa.binary() if look.ordering.sql_type == "binary" else pa.int64()
        columns = list(zip(*(place for _, place in found), strict=True)) or [(), (), ()]
        table = pa.table(
            {
                "record_key": pa.array([key for key, _ in found], pa.string()),
                "partition_path": pa.array(columns[0], pa.string()),
                "file_id": pa.array(columns[1], pa.string()),
                "instant": pa.array(columns[2], pa.string()),
                "ord": pa.nulls(len(found), kind),
            }
        )
        return from_arrow(look.spark, table, location_schema(look.ordering.sql_type))

    def update_location(self, written: pa.Table, instant: str) -> None:
        """Put new places, remove deleted keys; what was there before is kept until the instant is committed."""
        gone = written.filter(pc.is_null(written.column("file_id"))).column("record_key").to_pylist()
        new = written.filter(pc.and_(pc.is_valid(written.column("file_id")), written.column("is_new")))
        keys = new.column("record_key").to_pylist()
        touched = [*gone, *keys]
        before = self._before.setdefault(instant, {})
        for key, place in zip(touched, map(self._places.get, touched), strict=True):
            before.setdefault(key, place)
        for key in gone:
            self._places.pop(key, None)
        places = zip(
            new.column("partition_path").to_pylist(), new.column("file_id").to_pylist(), repeat(instant), strict=False
        )
        self._places.update(zip(keys, places, strict=False))

    def rollback_commit(self, instant: str) -> bool:
        """Back to what was there before."""
        for key, place in self._before.pop(instant, {}).items():
            if place is None:
                self._places.pop(key, None)
            else:
                self._places[key] = place
        return True

    def complete_commit(self, instant: str, deleted: pa.Array) -> None:  # noqa: ARG002 - they are out of it already
        """The instant can no more be rolled back."""
        self._before.pop(instant, None)
