"""What every index of Hudi's family does, in Hudi's words: tag, update, roll back.

A pull-type index is asked in each micro-batch where the batch's keys are. It answers with the places of those
that the table has. The stream's own step (``streaming.batch.pull_tag``) decides what follows: insert, update,
delete, move or late.

An index with a storage of its own (HBASE) is compared with the table, and filled from it. Hudi takes every key
that HBase does not have for a new one, so a table that was not written with this index from the start would get
each of its rows a second time.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyspark import Broadcast
from pyspark.sql import DataFrame, SparkSession

from tagstream.spark_release import from_arrow, to_arrow
from tagstream.table.file_group.fs_view import FileSlice
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.slice_reader import SliceReader
from tagstream.table.read.snapshot import key_reader
from tagstream.table.schema.schema import RECORD_KEY
from tagstream.table.timeline.commit_metadata import WriteStatus
from tagstream.table.timeline.timeline import Timeline

# What records bring to an index. `partition_path` is null for a delete that names none (global indexes only).
RECORD_SCHEMA = "record_key string, partition_path string"


def location_schema(ordering: str) -> str:
    """Spark schema of the places found. ``ordering``: ``long`` or ``binary``, as the stream encodes ordering values.

    ``partition_path`` and ``file_id`` say where the row of the key is, ``instant`` which commit put it there ("" where the
    index does not know), ``ord`` its ordering value (null where the index does not know).
    """
    return f"record_key string, partition_path string, file_id string, instant string, ord {ordering}"


# What `update_location` is given: where each key of the batch was written. `file_id` null: the key was deleted in that
# partition.
# `is_new`: the key is new in that file group (an insert, or a move's new place).
WRITTEN_SCHEMA = pa.schema(
    [("record_key", pa.string()), ("partition_path", pa.string()), ("file_id", pa.string()), ("is_new", pa.bool_())]
)


@dataclass(frozen=True)
class OrderingCode:
    """How ordering values are encoded for comparison; ``encode`` turns the column into int64 or binary.

    ``type``: the Arrow type of ordering values in the stream, of several fields a struct; None for a table without one.
    """

    type: pa.DataType | None
    encode: Callable[[pa.Array], pa.Array]
    sql_type: str = "long"


@dataclass(frozen=True)
class TableAsOf:
    """The table as one batch finds it: nothing newer than ``as_of`` (None: no commit yet) counts."""

    spark: SparkSession
    table: HoodieTable
    timeline: Timeline
    as_of: str | None
    ordering: OrderingCode

    def slices(self) -> list[FileSlice]:
        """The newest slice of every file group of the table."""
        if self.as_of is None:
            return []
        view = self.table.view(self.timeline, self.as_of)
        return [found for partition in view.partitions() for found in view.latest_merged_slices(partition)]


class HoodieIndex(ABC):
    """One index. The three flags are Hudi's (``HoodieIndex.java``); the table of who has which is in docs/guide/indexes.md.

    ``is_global``: the record key alone identifies a row, in the whole table. ``can_index_log_files``: it finds rows that
    only logs hold, so inserts of merge-on-read may go there. ``is_implicit_with_storage``: the table itself is the index;
    otherwise ``update_location`` keeps it up to date. ``update_in_tasks``: it is called in the write tasks, on what each of
    them wrote (so the object is sent to them, and must be picklable); otherwise on the driver, once a batch, with all.
    ``knows_absence``: a key that is not answered is not in the table; False for an index that only says where a key
    belongs (bucket). ``knows_ordering``: its answers have the rows' ordering values, so that late events are told when the
    batch is tagged; otherwise they are told when a copy-on-write file is merged, and by readers of merge-on-read.
    """

    name: ClassVar[str]
    is_global: ClassVar[bool]
    can_index_log_files: ClassVar[bool]
    is_implicit_with_storage: ClassVar[bool]
    update_in_tasks: ClassVar[bool] = False
    knows_absence: ClassVar[bool] = True
    knows_ordering: ClassVar[bool] = False
    update_partition_path: bool = True

    def check(self) -> int | None:
        """Before a start: see that the other system that an index lives in is there and fit. Raises that system's errors."""
        return None

    def start(self, look: TableAsOf) -> None:  # noqa: B027 - most indexes have nothing to load
        """Before the first batch, and again whenever the table was changed by others: load what is held in memory."""

    @abstractmethod
    def tag_location(self, records: DataFrame, look: TableAsOf) -> DataFrame:
        """Where the keys of ``records`` (:data:`RECORD_SCHEMA`, keys may repeat) are in the table.

        Returns rows of :func:`location_schema`, for keys that have a row only, each once where the table has it once.
        A non-global index looks in the record's own partition alone.
        """

    def update_location(self, written: pa.Table, instant: str) -> None:  # noqa: B027 - nothing to do where the table is the index
        """Take over what a write of ``instant`` did (:data:`WRITTEN_SCHEMA`), before the instant is completed.

        A key that moved comes once, with its new place. May be called again with the same rows by a task's next attempt.
        """

    def complete_commit(self, instant: str, deleted: pa.Array) -> None:  # noqa: B027 - only for those with places of their own
        """The instant is completed and cannot be rolled back any more; ``deleted``: the record keys it deleted.

        Called on the driver; may be missing after a kill.
        """

    def committed(self, statuses: Sequence[WriteStatus]) -> None:  # noqa: B027 - see complete_commit
        """What the files of a completed write tell; on the driver, after ``complete_commit``."""

    def rollback_commit(self, instant: str) -> bool:  # noqa: ARG002 - for those that keep places of their own
        """Undo what ``update_location`` did for an instant that is rolled back. False: it could not."""
        return True

    def end_batch(self) -> None:  # noqa: B027 - most indexes keep nothing
        """Let go of what a batch needed (broadcast keys)."""


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
