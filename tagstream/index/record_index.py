"""RECORD_INDEX and RECORD_LEVEL_INDEX: lookups in the record index of the table's metadata table.

Each commit also writes its batch's new, moved and deleted keys to the metadata table (``streaming.batch``). So the index
itself has nothing to update. RECORD_LEVEL_INDEX has file groups for each partition of the table, and a key may be in
several partitions as separate rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame

from tagstream.index.base import HoodieIndex, TableAsOf, location_schema
from tagstream.index.lookup import EVERYWHERE, BatchKeys, collect_keys
from tagstream.table.errors import UnsupportedTableError
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.metadata.record_index import RecordIndex, shards_of

if TYPE_CHECKING:
    from tagstream.index.registry import IndexOptions

# (partition path, keys) of one or several shards; None when the index is global
_Part = tuple[str | None, pa.Array]


class GlobalRecordLevelIndex(HoodieIndex):
    """A record key has one entry."""

    name = "RECORD_INDEX"
    java_classes: ClassVar[tuple[str, ...]] = (
        "org.apache.hudi.index.SparkMetadataTableRecordIndex",
        "org.apache.hudi.index.SparkMetadataTableGlobalRecordLevelIndex",
    )
    is_global = True
    can_index_log_files = False
    is_implicit_with_storage = True

    def __init__(self, update_partition_path: bool = False) -> None:
        self.update_partition_path = update_partition_path
        self._sent: list[Broadcast[tuple[RecordIndex, list[list[_Part]]]]] = []

    @classmethod
    def make(cls, options: IndexOptions, record_key_fields: tuple[str, ...]) -> GlobalRecordLevelIndex:  # noqa: ARG003
        """The table's metadata table has it: no options but those of moves."""
        return cls(options.moves)

    def start(self, look: TableAsOf) -> None:
        """UnsupportedTableError for a table without a record index, or with the other kind, before the first batch."""
        self._opened(look)

    def tag_location(self, records: DataFrame, look: TableAsOf) -> DataFrame:
        """The locations of the keys by the metadata table. Each task reads its own shards. Errors as in :meth:`start`."""
        index = self._opened(look)
        keys = collect_keys(records, is_global=self.is_global)
        tasks = _tasks(keys, index.shard_counts, look.spark.sparkContext.defaultParallelism)
        schema = location_schema(look.ordering.sql_type)
        if not tasks:
            return look.spark.createDataFrame([], schema)
        sent = look.spark.sparkContext.broadcast((index, tasks))
        self._sent.append(sent)
        return look.spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(
            _make_task(sent, look.ordering.sql_type), schema
        )

    def _opened(self, look: TableAsOf) -> RecordIndex:
        index = RecordIndex.open(MetadataTable.open(look.table, look.timeline))
        table = f"table {look.table.config.name} at {look.table.base_path}"
        if index is None:
            pending = look.timeline.pending
            why = (
                f"; it is not built while {pending[0].file_name()} is pending: complete that action first"
                if pending
                else ""
            )
            raise UnsupportedTableError(
                f"{table} has no record index (hoodie.table.metadata.partitions lacks it){why}; or set another index"
            )
        if index.is_partitioned == self.is_global:
            raise UnsupportedTableError(
                f"{table} has a record index {'by partition' if self.is_global else 'over all partitions'}; set "
                f"hoodie.index.type={'RECORD_LEVEL_INDEX' if self.is_global else 'RECORD_INDEX'}"
            )
        return index

    def end_batch(self) -> None:
        """Remove the keys from the executors."""
        for sent in self._sent:
            sent.destroy()
        self._sent.clear()


class RecordLevelIndex(GlobalRecordLevelIndex):
    """A record key has one entry in each partition."""

    name = "RECORD_LEVEL_INDEX"
    java_classes: ClassVar[tuple[str, ...]] = ("org.apache.hudi.index.SparkMetadataTableRecordLevelIndex",)
    is_global = False


def _tasks(keys: BatchKeys, counts: dict[str | None, int], parallelism: int) -> list[list[_Part]]:
    """The keys for at most ``parallelism`` tasks. A shard is read by one task. Partitions without shards are left out."""
    tasks: list[list[_Part]] = [[] for _ in range(parallelism)]
    first = 0  # shards are numbered over all partitions, so that those of small partitions are spread too
    for path, (start, stop) in keys.ranges.items():
        partition = None if None in counts and path == EVERYWHERE else path
        count = counts.get(partition, 0)
        if not count:
            continue
        own = keys.slice(start, stop)
        numbers = (first + shards_of(own, count)) % parallelism
        for number in np.unique(numbers).tolist():
            tasks[number].append((partition, own.filter(pa.array(numbers == number))))
        first += count
    return [parts for parts in tasks if parts]


def _make_task(
    sent: Broadcast[tuple[RecordIndex, list[list[_Part]]]], sql_type: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index, tasks = sent.value
        kind = pa.binary() if sql_type == "binary" else pa.int64()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for partition, keys in tasks[number]:
                    found = index.lookup(keys, partition)
                    yield from found.append_column("ord", pa.nulls(found.num_rows, kind)).combine_chunks().to_batches()

    return run
