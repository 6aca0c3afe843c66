"""RECORD_INDEX: look-ups through the record index of the table's metadata table.

The metadata table is told of each batch's new, moved and deleted keys in the same commit (``streaming.metadata``), so the
index itself has nothing to keep up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame

from tagstream.index.base import HoodieIndex, TableAsOf, location_schema
from tagstream.index.family.batch_keys import collect_keys
from tagstream.table.errors import UnsupportedTableError
from tagstream.table.metadata.metadata_table import MetadataTable
from tagstream.table.metadata.record_index import RecordIndex, shards_of


class RecordLevelIndex(HoodieIndex):
    """Global: a record key has one entry."""

    name = "RECORD_INDEX"
    is_global = True
    can_index_log_files = False
    is_implicit_with_storage = True

    def __init__(self, update_partition_path: bool = False) -> None:
        self.update_partition_path = update_partition_path
        self._sent: list[Broadcast[tuple[RecordIndex, tuple[pa.Array, ...]]]] = []

    def tag_location(self, records: DataFrame, look: TableAsOf) -> DataFrame:
        """Where the keys are by the metadata table; each task reads shards of its own.

        UnsupportedTableError for a table without a record index.
        """
        index = RecordIndex.open(MetadataTable.open(look.table, look.timeline))
        if index is None:
            raise UnsupportedTableError(
                f"table {look.table.config.name} at {look.table.base_path} has no record index "
                "(hoodie.table.metadata.partitions names none); take another index, or let Hudi build it"
            )
        keys = collect_keys(records, is_global=True).keys
        shards = shards_of(keys, index.shard_count)
        tasks = look.spark.sparkContext.defaultParallelism
        parts = tuple(keys.filter(pa.array(shards % tasks == n)) for n in np.unique(shards % tasks).tolist())
        schema = location_schema(look.ordering.sql_type)
        if not parts:
            return look.spark.createDataFrame([], schema)
        sent = look.spark.sparkContext.broadcast((index, parts))
        self._sent.append(sent)
        return look.spark.range(0, len(parts), 1, len(parts)).mapInArrow(
            _make_task(sent, look.ordering.sql_type), schema
        )

    def end_batch(self) -> None:
        """Remove the keys from the executors."""
        for sent in self._sent:
            sent.destroy()
        self._sent.clear()


def _make_task(
    sent: Broadcast[tuple[RecordIndex, tuple[pa.Array, ...]]], sql_type: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index, parts = sent.value
        kind = pa.binary() if sql_type == "binary" else pa.int64()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = index.lookup(parts[number])
                yield from found.append_column("ord", pa.nulls(found.num_rows, kind)).combine_chunks().to_batches()

    return run
