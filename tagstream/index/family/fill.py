"""An index with a storage of its own (HBASE) against the table: does it know the table's keys, and fill it if not.

Hudi takes every key that HBase does not have for a new one, so a table that was not written with this index from the
start would get each of its rows a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa
from pyspark import Broadcast

from tagstream.index.base import RECORD_SCHEMA, WRITTEN_SCHEMA, HoodieIndex, TableAsOf
from tagstream.spark_release import from_arrow, to_arrow
from tagstream.table.file_group.file_group import FileSlice
from tagstream.table.read.slice_lookup import key_reader
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.schema.schema import RECORD_KEY

LOG = logging.getLogger("tagstream")
_SLICES = 8
_KEYS = 50


def unknown_keys(index: HoodieIndex, look: TableAsOf) -> list[str]:
    """Live keys of some slices, from the oldest to the newest, that the index does not know; empty: it knows all of them."""
    slices = look.slices()
    if not slices or look.as_of is None:
        return []
    by_age = sorted(slices, key=lambda s: (s.base_instant, s.partition_path, s.file_id))
    chosen = by_age[:: max(1, len(by_age) // _SLICES)][:_SLICES] + by_age[-1:]
    reader = key_reader(look.table, look.timeline, look.as_of, None)
    keys: set[str] = set()
    for file_slice in chosen:
        first = next((rows for rows in reader.read(file_slice) if rows.num_rows), None)
        if first is not None:
            keys.update(first.column(RECORD_KEY).slice(0, _KEYS).to_pylist())
    asked = sorted(keys)
    rows = pa.table({"record_key": asked, "partition_path": pa.nulls(len(asked), pa.string())})
    frame = from_arrow(look.spark, rows, RECORD_SCHEMA)
    known = set(to_arrow(index.tag_location(frame, look).select("record_key")).column(0).to_pylist())
    return [key for key in asked if key not in known]


def fill(index: HoodieIndex, look: TableAsOf) -> int:
    """Tell the index the place of every live key of the table; returns how many. It may know some of them already."""
    slices = look.slices()
    if not slices or look.as_of is None:
        return 0
    spark = look.spark
    sent = spark.sparkContext.broadcast((index, key_reader(look.table, look.timeline, look.as_of, None), tuple(slices)))
    try:
        frame = spark.range(0, len(slices), 1, min(len(slices), spark.sparkContext.defaultParallelism))
        done = to_arrow(frame.mapInArrow(_make_fill(sent), "keys long")).column(0).to_pylist()
    finally:
        sent.destroy()
    return sum(done)


def _make_fill(
    sent: Broadcast[tuple[HoodieIndex, SliceReader, tuple[FileSlice, ...]]],
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index, reader, slices = sent.value
        for batch in batches:
            counts = [_fill_slice(index, reader, slices[number]) for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_pydict({"keys": pa.array(counts, pa.int64())})

    return run


def _fill_slice(index: HoodieIndex, reader: SliceReader, at: FileSlice) -> int:
    count = 0
    for rows in reader.read(at):
        n = rows.num_rows
        columns = [
            rows.column(RECORD_KEY).combine_chunks().cast(pa.string()),
            pa.repeat(pa.scalar(at.partition_path), n),
            pa.repeat(pa.scalar(at.file_id), n),
            pa.repeat(pa.scalar(True), n),
        ]
        index.update_location(pa.Table.from_arrays(columns, schema=WRITTEN_SCHEMA), at.base_instant)
        count += n
    return count
