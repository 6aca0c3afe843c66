"""The interface of Hudi's kinds of index, in Hudi's terms: tag, update, roll back.

A pull-type index is called in each micro-batch with the batch's keys. It returns the locations of those that the table has.
The stream's own step (``streaming.batch.pull_tag``) decides: insert, update, delete, move or late.

An index with its own storage (HBASE) is compared with the table, and loaded from it. Hudi treats every key that HBase lacks
as new. So a table that was not written with this index from the start would get each row a second time.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

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

if TYPE_CHECKING:
    from tagstream.index.registry import IndexOptions

LOG = logging.getLogger("tagstream")
_SLICES = 8
_KEYS = 50

# The input of an index. `partition_path` is null for a delete without one (global indexes only).
RECORD_SCHEMA = "record_key string, partition_path string"


def location_schema(ordering: str) -> str:
    """Spark schema of the found locations. ``ordering``: ``long`` or ``binary``, as the stream encodes ordering values.

    ``partition_path`` and ``file_id``: the location of the key's row; ``instant``: the commit that wrote it there ("" if
    the index does not have it); ``ord``: its ordering value (null if the index does not have it).
    """
    return f"record_key string, partition_path string, file_id string, instant string, ord {ordering}"


# The input of `update_location`: the location to which each key of the batch was written. `file_id` null: the key was
# deleted in that partition. `is_new`: the key is new in that file group (an insert, or the new location of a move).
WRITTEN_SCHEMA = pa.schema(
    [("record_key", pa.string()), ("partition_path", pa.string()), ("file_id", pa.string()), ("is_new", pa.bool_())]
)


@dataclass(frozen=True)
class OrderingCode:
    """How ordering values are encoded for comparison; ``encode`` converts the column to int64 or binary.

    ``type``: the Arrow type of ordering values in the stream, a struct for several fields; None for a table without one.
    """

    type: pa.DataType | None
    encode: Callable[[pa.Array], pa.Array]
    sql_type: str = "long"


@dataclass(frozen=True)
class TableAsOf:
    """The table at the begin of a batch: only commits up to ``as_of`` (None: no commit yet) count."""

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
    """One index. Its fixed properties are on the class, for checks and documentation before an index is created.

    ``name``: its ``hoodie.index.type``. ``java_classes``: the corresponding classes of Hudi, the usual one first.
    ``moves_by_default``: Hudi's default of "update partition path" for this index. The other three flags that have no
    default are Hudi's, too (``HoodieIndex.java``); docs/guide/indexes.md has the table of these flags.

    ``is_global``: the record key alone identifies a row, in the whole table. ``can_index_log_files``: it finds rows that
    only logs have, so inserts of merge-on-read may be written to logs. ``is_implicit_with_storage``: the table itself is
    the index; otherwise ``update_location`` keeps it up to date. ``update_in_tasks``: it is called in each write task with
    the task's keys (so the object is sent to the tasks, and must be picklable); otherwise on the driver, once per batch,
    with all keys. ``knows_absence``: a key without a result is not in the table; False for an index that only computes a
    key's file group (bucket). ``knows_ordering``: its results have the rows' ordering values, so that late events are found
    when the batch is tagged; otherwise they are found when a copy-on-write file is merged, and by readers of merge-on-read.
    """

    name: ClassVar[str]
    java_classes: ClassVar[tuple[str, ...]]
    moves_by_default: ClassVar[bool] = False
    is_global: ClassVar[bool]
    can_index_log_files: ClassVar[bool]
    is_implicit_with_storage: ClassVar[bool]
    update_in_tasks: ClassVar[bool] = False
    knows_absence: ClassVar[bool] = True
    knows_ordering: ClassVar[bool] = False
    update_partition_path: bool = True

    @classmethod
    @abstractmethod
    def make(cls, options: IndexOptions, record_key_fields: tuple[str, ...]) -> HoodieIndex:
        """The index for the user's options. ConfigError names a missing option."""

    def check(self) -> int | None:
        """Before a start: check that the other system with the index responds and is suitable. Raises that system's
        errors."""
        return None

    def start(self, look: TableAsOf) -> None:  # noqa: B027 - most indexes have nothing to load
        """Before the first batch, and again whenever others have changed the table: load the part in memory."""

    @abstractmethod
    def tag_location(self, records: DataFrame, look: TableAsOf) -> DataFrame:
        """The locations of the keys of ``records`` (:data:`RECORD_SCHEMA`, keys may repeat) in the table.

        Returns rows of :func:`location_schema`, only for keys with a row, each once if the table has it once. A non-global
        index reads only the record's own partition.
        """

    def update_location(self, written: pa.Table, instant: str) -> None:  # noqa: B027 - nothing to do where the table is the index
        """Apply the changes of a write of ``instant`` (:data:`WRITTEN_SCHEMA`), before the instant is completed.

        A moved key is in it once, with its new location. A task's next attempt may call it again with the same rows.
        """

    def before_commit(self, table: HoodieTable, partitions: Collection[str]) -> None:  # noqa: B027 - most keep no files
        """Write the index's own files of a batch's partitions, on the driver, before the batch is committed.

        ForeignCommitError when another writer has written different ones since the batch began.
        """

    def clustered(self, table: HoodieTable, written: Sequence[WriteStatus], partitions: Collection[str]) -> bool:  # noqa: ARG002 - for those that keep file groups in memory
        """A clustering of this process has replaced file groups of ``partitions``. ``written``: its new files.

        Returns False when the index must be started again.
        """
        return True

    def complete_commit(self, instant: str, deleted: pa.Array) -> None:  # noqa: B027 - only for those with places of their own
        """The instant is completed and can no longer be rolled back; ``deleted``: the record keys it deleted.

        Called on the driver; the call may be missing after a kill.
        """

    def committed(self, statuses: Sequence[WriteStatus]) -> None:  # noqa: B027 - see complete_commit
        """Apply the file statistics of a completed write; on the driver, after ``complete_commit``."""

    def rollback_commit(self, instant: str) -> bool:  # noqa: ARG002 - for those that keep places of their own
        """Undo the changes of ``update_location`` for an instant that is rolled back. False: this was not possible."""
        return True

    def end_batch(self) -> None:  # noqa: B027 - most indexes keep nothing
        """Release the resources of a batch (broadcast keys)."""


def unknown_keys(index: HoodieIndex, look: TableAsOf) -> list[str]:
    """Live keys of some slices, from the oldest to the newest, that the index lacks; empty: it has all of them."""
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
    """Load the locations of all live keys of the table into the index; returns their number.

    The index may have some already.
    """
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
