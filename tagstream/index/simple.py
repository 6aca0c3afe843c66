"""SIMPLE, GLOBAL_SIMPLE and INMEMORY: indexes that read the key column of whole slices.

SIMPLE compares a batch's keys with every slice that may have them. INMEMORY reads all slices when the job starts, into a
dictionary on the driver. It is for small tables and for tests.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import repeat
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from tagstream.index.base import HoodieIndex, TableAsOf, location_schema
from tagstream.index.lookup import EVERYWHERE, BatchKeys, Lookup, SliceTask, collect_keys, pack, scan_all
from tagstream.spark_release import from_arrow
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.commit_metadata import WriteStatus

if TYPE_CHECKING:
    from tagstream.index.registry import IndexOptions

_FILE_COST = 256 * 1024  # bytes of a file that cost as much as opening it


class SimpleIndex(HoodieIndex):
    """Looks in the partitions that the batch touches."""

    name = "SIMPLE"
    java_classes = ("org.apache.hudi.index.simple.HoodieSimpleIndex",)
    is_global = False
    can_index_log_files = False
    is_implicit_with_storage = True
    knows_ordering = True

    def __init__(self, parallelism: int = 0, update_partition_path: bool = True) -> None:
        """``parallelism``: number of lookup tasks (``hoodie.simple.index.parallelism``); 0: number of cores."""
        self._parallelism = parallelism
        self.update_partition_path = update_partition_path
        self._lookup = Lookup()

    @classmethod
    def make(cls, options: IndexOptions, record_key_fields: tuple[str, ...]) -> SimpleIndex:  # noqa: ARG003
        """With the parallelism of this kind."""
        return cls(options.simple_parallelism, options.moves)

    def tag_location(self, records: DataFrame, look: TableAsOf) -> DataFrame:
        """The locations of the keys. Base files and logs are read, only their key and ordering columns."""
        keys = collect_keys(records, is_global=self.is_global)
        items = all_slices(look, keys, is_global=self.is_global, bloom=False)
        tasks = self._parallelism or look.spark.sparkContext.defaultParallelism
        return self._lookup.run(look, keys, pack(items, lambda t: t.file_slice.size + _FILE_COST, tasks))

    def end_batch(self) -> None:
        """Remove the keys from the executors."""
        self._lookup.close()


class GlobalSimpleIndex(SimpleIndex):
    """Looks in all partitions of the table."""

    name = "GLOBAL_SIMPLE"
    java_classes = ("org.apache.hudi.index.simple.HoodieGlobalSimpleIndex",)
    moves_by_default = True
    is_global = True

    @classmethod
    def make(cls, options: IndexOptions, record_key_fields: tuple[str, ...]) -> GlobalSimpleIndex:  # noqa: ARG003
        """With the parallelism of this kind."""
        return cls(options.global_simple_parallelism, options.moves)


def all_slices(look: TableAsOf, keys: BatchKeys, *, is_global: bool, bloom: bool) -> list[SliceTask]:
    """The newest slices of the batch's partitions (global: of all), each with all keys of its partition to look up."""
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
    """Hudi's index is keyed by (partition, key) and empty at the start; this one is global, and `start` fills it."""

    name = "INMEMORY"
    java_classes = ("org.apache.hudi.index.inmemory.HoodieInMemoryHashIndex",)
    moves_by_default = True
    is_global = True
    can_index_log_files = True
    is_implicit_with_storage = False

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._before: dict[str, dict[str, Place | None]] = {}

    @classmethod
    def make(cls, options: IndexOptions, record_key_fields: tuple[str, ...]) -> InMemoryIndex:  # noqa: ARG003
        """It has no options."""
        return cls()

    def clustered(self, table: HoodieTable, written: Sequence[WriteStatus], partitions: Collection[str]) -> bool:  # noqa: ARG002
        """The keys are in other file groups now, and must be loaded again."""
        return False

    def __len__(self) -> int:
        return len(self._places)

    def start(self, look: TableAsOf) -> None:
        """Load every key of the table. Each takes about 200 bytes of the driver's memory."""
        self._places, self._before = {}, {}
        for rows in scan_all(look):
            names = ("partition_path", "file_id", "instant")
            places = zip(*(rows.column(name).to_pylist() for name in names), strict=True)
            self._places.update(zip(rows.column("record_key").to_pylist(), places, strict=True))

    def tag_location(self, records: DataFrame, look: TableAsOf) -> DataFrame:
        """The locations of the keys. Ordering values are not stored."""
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
        """Put new locations and remove deleted keys. The locations before are kept until the instant is committed."""
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
        """Restore the locations from before the instant."""
        for key, place in self._before.pop(instant, {}).items():
            if place is None:
                self._places.pop(key, None)
            else:
                self._places[key] = place
        return True

    def complete_commit(self, instant: str, deleted: pa.Array) -> None:  # noqa: ARG002 - they are out of it already
        """Drop the locations from before the instant: it can no longer be rolled back."""
        self._before.pop(instant, None)
