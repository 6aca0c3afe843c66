"""RECORD_INDEX and RECORD_LEVEL_INDEX: look-ups through the record index of the table's metadata table.

The metadata table is told of each batch's new, moved and deleted keys in the same commit (``streaming.metadata``), so the
index itself has nothing to keep up to date. One of the two has file groups for each partition of the table, and a key in
each of them is a row of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame

from tagstream.index.base import HoodieIndex, TableAsOf, location_schema
from tagstream.index.lookup import EVERYWHERE, BatchKeys, collect_keys
from tagstream.table.errors import UnsupportedTableError
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.metadata.record_index import RecordIndex, shards_of

# (partition path, keys) of one or some shards; None where the index is global
_Part = tuple[str | None, pa.Array]


class GlobalRecordLevelIndex(HoodieIndex):
    """A record key has one entry."""

    name = "RECORD_INDEX"
    is_global = True
    can_index_log_files = False
    is_implicit_with_storage = True

    def __init__(self, update_partition_path: bool = False) -> None:
        self.update_partition_path = update_partition_path
        self._sent: list[Broadcast[tuple[RecordIndex, list[list[_Part]]]]] = []

    def start(self, look: TableAsOf) -> None:
        """UnsupportedTableError for a table without a record index, or with one of the other form: no batch could pass."""
        self._opened(look)

    def tag_location(self, records: DataFrame, look: TableAsOf) -> DataFrame:
        """Where the keys are by the metadata table; each task reads shards of its own. Errors as of :meth:`start`."""
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
            why = f"; it is not made while {pending[0].file_name()} is pending: carry that out first" if pending else ""
            raise UnsupportedTableError(
                f"{table} has no record index (hoodie.table.metadata.partitions names none){why}; or take another index"
            )
        if index.is_partitioned == self.is_global:
            raise UnsupportedTableError(
                f"{table} has a record index {'by partition' if self.is_global else 'over all partitions'}; take "
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
    is_global = False


def _tasks(keys: BatchKeys, counts: dict[str | None, int], parallelism: int) -> list[list[_Part]]:
    """The keys by task, ``parallelism`` at most. A shard's are in one; those of a partition without shards are left out."""
    tasks: list[list[_Part]] = [[] for _ in range(parallelism)]
    first = 0  # the shards of all partitions in a row, so that small partitions are spread, too
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
