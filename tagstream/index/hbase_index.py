"""The HBASE index: it looks keys up with gets, updates them with puts, and deletes keys after a commit is completed.

Cells and rules are those of Hudi's ``SparkHoodieHBaseIndex``, so each program can read what the other has put. Hudi loses
a location when a write fails; this index keeps it (docs/guide/indexes.md#hbase). A location counts when its commit is on
the timeline and its file group still exists.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from tagstream.index.base import HoodieIndex, TableAsOf, location_schema
from tagstream.index.errors import HbaseError, HbaseRowError, HbaseTableError
from tagstream.index.hbase_client import (
    LOCATIONS,
    SHELL,
    HbaseClient,
    HbaseTable,
    RateLimiter,
    check_client,
    to_cells,
)
from tagstream.index.hbase_options import HbaseOptions, plain_row_keys, rebalanced_row_keys
from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.instant import REPLACE_COMMIT, ROLLBACK
from tagstream.table.timeline.operation import WriteOperationType
from tagstream.table.timeline.timeline import Timeline

if TYPE_CHECKING:
    from tagstream.index.registry import IndexOptions

log = logging.getLogger(__name__)
_INSTANT = re.compile(r"\d+")


@dataclass(frozen=True, eq=False)
class Commits:
    """What the timeline says about locations, as of one read of it. A picklable value that is sent with the tasks.

    A commit counts as in Hudi's ``checkIfValidCommit``: some commit is completed, and this one is completed or older than
    the timeline's start. A write that was rolled back before the oldest commit would look older too. So ``rolled_back``
    has such writes, as far as the timeline still names them. ``seen_until`` is the newest instant time on the timeline, of
    any state. ``dropped`` and ``clustered`` are file groups (partition path, zero byte, file id) that a replace commit
    removed: ``clustered`` by a clustering, ``dropped`` by another operation.
    """

    completed: pa.Array
    start: str | None
    rolled_back: pa.Array
    seen_until: str
    dropped: pa.Array
    clustered: pa.Array

    @staticmethod
    def of(look: TableAsOf) -> Commits:
        """From the timeline of ``look``, without instants newer than its ``as_of``."""
        timeline, as_of = look.timeline, look.as_of
        completed = [i.time for i in timeline.completed_writes if as_of is not None and i.time <= as_of]
        clusterings = _clusterings(look.table, timeline)
        groups = {f"{partition}\0{file_id}": time for (partition, file_id), time in timeline.replaced.items()}
        return Commits(
            pa.array(completed, pa.string()),
            # Without a completed commit no commit can be older than the first.
            timeline.start if completed else None,
            pa.array(_rolled_back(look.table, timeline), pa.string()),
            timeline.newest or "",
            pa.array([group for group, time in groups.items() if time not in clusterings], pa.string()),
            pa.array([group for group, time in groups.items() if time in clusterings], pa.string()),
        )

    def count(self, times: pa.ChunkedArray) -> pa.ChunkedArray:
        """For each commit time, whether its commit counts."""
        good = pc.is_in(times, value_set=self.completed)
        if self.start is None:
            return good
        return pc.or_(good, pc.and_not(pc.less(times, self.start), pc.is_in(times, value_set=self.rolled_back)))

    def are_void(self, times: pa.ChunkedArray) -> pa.ChunkedArray:
        """For each time, whether it certainly is not and never will be a commit: on the timeline, and does not count."""
        return pc.and_not(pc.less_equal(times, self.seen_until), self.count(times))

    def are_there(self, locations: pa.Table) -> pa.ChunkedArray:
        """For each location, whether its file group still has the row.

        HbaseRowError for a group that a clustering replaced without updating the index: its rows are in other groups.
        """
        if len(self.dropped) + len(self.clustered) == 0:
            return pa.chunked_array([pa.repeat(True, locations.num_rows)])
        groups = pc.binary_join_element_wise(locations["partition_path"], locations["file_id"], "\0")
        moved = pc.is_in(groups, value_set=self.clustered)
        if pc.any(moved).as_py():
            row = locations.filter(moved).slice(0, 1).to_pylist()[0]
            raise HbaseRowError(
                f"HBase has row {row['row']!r} in file group {row['file_id']} of partition {row['partition_path']!r}, which "
                "a clustering replaced without writing to this index: fill the index again, and let only writers with the "
                "HBASE index cluster this table"
            )
        return pc.invert(pc.is_in(groups, value_set=self.dropped))


def _clusterings(table: HoodieTable, timeline: Timeline) -> frozenset[str]:
    """Times of completed replace commits that only rewrote rows."""
    replacing = set(timeline.replaced.values())
    found = (i for i in timeline.completed_writes if i.action == REPLACE_COMMIT and i.time in replacing)
    return frozenset(
        i.time for i in found if timeline.metadata(table.storage, i).operation.upper() == WriteOperationType.CLUSTER
    )


def _rolled_back(table: HoodieTable, timeline: Timeline) -> list[str]:
    """Times of the writes that rollbacks on the active timeline have rolled back."""
    done = (i for i in timeline.instants if i.action == ROLLBACK and i.is_completed)
    return [time for rollback in done for time in timeline.rolled_back_by(table.storage, rollback)]


class HbaseIndex(HoodieIndex):
    """Locations of all keys of a table in one HBase table.

    The object is sent to the tasks. Send it to the write tasks of a batch only after the batch's ``tag_location``: they
    need the timeline that this method has read.
    """

    name: ClassVar[str] = "HBASE"
    java_classes: ClassVar[tuple[str, ...]] = (
        "org.apache.hudi.index.hbase.SparkHoodieHBaseIndex",
        "org.apache.hudi.index.hbase.RebalancedSparkHoodieHBaseIndex",
    )
    is_global: ClassVar[bool] = True
    can_index_log_files: ClassVar[bool] = True
    is_implicit_with_storage: ClassVar[bool] = False
    update_in_tasks: ClassVar[bool] = True

    def __init__(
        self,
        options: HbaseOptions,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``clock`` gives seconds, for the limit of operations per second."""
        self.options = options
        self.update_partition_path = options.update_partition_path
        self._clock = clock
        self._sleep = sleep
        self._region_servers = 1
        self._tasks = 1
        self._commits: Commits | None = None
        self._puts: RateLimiter | None = None

    @classmethod
    def make(cls, options: IndexOptions, record_key_fields: tuple[str, ...]) -> HbaseIndex:  # noqa: ARG003
        """With plain or rebalanced row keys. ConfigError without the name of a table, and without the client."""
        if options.hbase is None:
            raise ConfigError("the HBASE index needs hoodie.index.hbase.table, the name of its table in HBase")
        check_client()
        return (RebalancedHbaseIndex if options.rebalanced else HbaseIndex)(options.hbase)

    def row_keys(self, keys: pa.Array) -> pa.Array:
        """Row keys in HBase of record keys, as bytes."""
        return plain_row_keys(keys)

    def check(self) -> int | None:
        """Check that the HBase table exists and is suitable. Return how many versions of a cell it keeps.

        HbaseTableError when it is not suitable, HbaseUnavailableError when HBase does not respond.
        """
        with self._client() as client:
            versions = client.run("read its column families", HbaseTable.max_versions)
            self._check_family(client.where, versions)
            self._region_servers = client.run("list its regions", HbaseTable.region_servers)
        return versions

    def start(self, look: TableAsOf) -> None:
        """Run :meth:`check`, and find out how many tasks share the capacity of HBase."""
        versions = self.check()
        self._tasks = look.spark.sparkContext.defaultParallelism
        self._commits = Commits.of(look)
        log.info(
            "HBASE index in %s: %d versions, %d region servers, %d parallel tasks of %d mutations/s",
            self.options.table, versions, self._region_servers, self._tasks,
            self.options.puts_a_second(self._region_servers, self._tasks),
        )  # fmt: skip

    def tag_location(self, records: DataFrame, look: TableAsOf) -> DataFrame:
        """Look up each distinct key once. Locations that uncommitted writes put do not count."""
        commits = self._commits = Commits.of(look)
        ord_type = pa.int64() if look.ordering.sql_type == "long" else pa.binary()

        def tag(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return self._tag(batches, commits, ord_type)

        # Not more tasks than run in parallel: each has its own connection.
        keys = records.select("record_key").distinct().coalesce(self._tasks)
        return keys.mapInArrow(tag, location_schema(look.ordering.sql_type))

    def update_location(self, written: pa.Table, instant: str) -> None:
        """Put the locations of new rows. Deleted keys stay until ``complete_commit``: a rollback could not restore them."""
        fresh = written.filter(pc.and_(written["is_new"], pc.is_valid(written["file_id"])))
        fresh = fresh.set_column(0, "record_key", self.row_keys(fresh["record_key"].combine_chunks()))
        if self._puts is None:
            self._puts = self._limiter(self._tasks)
        size = self.options.puts_a_batch(self._region_servers, self._tasks)
        with self._client() as client:
            for start in range(0, fresh.num_rows, size):
                part = fresh.slice(start, size)
                self._puts.acquire(part.num_rows)
                client.run(f"put locations of {instant}", partial(self._put, fresh=part, instant=instant))

    def complete_commit(self, instant: str, deleted: pa.Array) -> None:
        """Delete from HBase the keys that a completed commit deleted. Runs on the driver, after the commit is completed.

        Harmless when called twice, late or never. A key that a later commit wrote again stays. A key that is not deleted
        here keeps a location without a row, and the next upsert of the key goes there.
        """
        rows, limiter = pc.unique(self.row_keys(deleted)), self._limiter(1)
        size = self.options.puts_a_batch(self._region_servers, 1)

        with self._client() as client:
            for start in range(0, len(rows), size):
                part = rows.slice(start, size)
                limiter.acquire(len(part))
                client.run(f"delete keys of {instant}", partial(_delete, rows=part, instant=instant))

    def rollback_commit(self, instant: str) -> bool:
        """With ``rollback.sync`` restore the locations from before the instant's puts; else do nothing."""
        if not self.options.rollback_sync:
            return True
        if not _INSTANT.fullmatch(instant):
            raise ValueError(f"{instant!r} is not an instant")
        limiter = self._limiter(1)
        size = self.options.get_batch_size
        try:
            with self._client() as client:
                found = client.run(f"scan for puts of {instant}", lambda table: table.put_by(instant))
                for start in range(0, found.num_rows, size):
                    part = found.slice(start, size)
                    limiter.acquire(part.num_rows)
                    client.run(f"undo puts of {instant}", partial(_undo_put, put=part))
        except HbaseError as error:
            log.warning("the HBASE index was not rolled back; its puts of %s stay and do not count: %s", instant, error)
            return False
        return True

    def _tag(
        self, batches: Iterator[pa.RecordBatch], commits: Commits, ord_type: pa.DataType
    ) -> Iterator[pa.RecordBatch]:
        limiter = RateLimiter(self.options.gets_a_second, self._clock, self._sleep)
        size = self.options.get_batch_size
        with self._client() as client:
            for batch in batches:
                for start in range(0, batch.num_rows, size):
                    keys = batch.column(0).slice(start, size).cast(pa.string())
                    limiter.acquire(len(keys))
                    rows = self.row_keys(keys)
                    found = client.run("get locations", partial(newest_valid, rows=rows, commits=commits))
                    yield from _answer(keys.take(pc.index_in(found["row"], rows).combine_chunks()), found, ord_type)

    def _put(self, table: HbaseTable, fresh: pa.Table, instant: str) -> None:
        """Put a batch; may run again.

        HBase keeps few versions of a cell, so a put must not displace the newest location that counts. It replaces the
        version that this write, or a failed write, has put before. A task that outlived its write changes nothing where a
        later write has put a location.
        """
        if self._commits is None:
            raise ValueError("the index has not been started, or was sent to the tasks before its start")
        found = table.get(fresh["record_key"].combine_chunks())
        times = found["commit_ts"]
        void = self._commits.are_void(times)
        later = found.filter(pc.and_not(pc.greater(times, instant), void))["row"].combine_chunks()
        fresh = fresh.filter(pc.invert(pc.is_in(fresh["record_key"], value_set=later)))
        found = found.filter(pc.or_(pc.equal(times, instant), void))
        places = pc.index_in(fresh["record_key"], found["row"].combine_chunks())
        at = found["at"].combine_chunks().take(places.combine_chunks())
        for place in pc.unique(at).to_pylist():
            here = fresh.filter(pc.is_null(at) if place is None else pc.equal(at, place))
            columns = (here[name].to_pylist() for name in ("record_key", "file_id", "partition_path"))
            table.put(
                (
                    (row, to_cells(instant, file_id, partition))
                    for row, file_id, partition in zip(*columns, strict=True)
                ),
                place,
            )

    def _check_family(self, where: str, versions: int | None) -> None:
        if versions is None:
            shell = SHELL.format(table=self.options.table)
            raise HbaseTableError(
                f"{where} has no column family _s: name another table, or drop it and create it again: {shell}"
            )
        if self.update_partition_path and versions < 2:
            raise HbaseTableError(
                f"{where} keeps one version of a cell. With hoodie.hbase.index.update.partition.path a write that fails "
                "would lose the old locations of the keys it moved. In the HBase shell: "
                f"alter '{self.options.table}', {{NAME => '_s', VERSIONS => 3}}"
            )

    def _limiter(self, tasks: int) -> RateLimiter:
        return RateLimiter(self.options.puts_a_second(self._region_servers, tasks), self._clock, self._sleep)

    def _client(self) -> HbaseClient:
        return HbaseClient(self.options, self._sleep)

    def __getstate__(self) -> dict[str, Any]:
        # A limiter's time is that of one machine's clock.
        return {**self.__dict__, "_puts": None}


class RebalancedHbaseIndex(HbaseIndex):
    """Like `HbaseIndex`, with row keys that begin with a bucket number (Hudi's ``RebalancedSparkHoodieHBaseIndex``)."""

    java_classes: ClassVar[tuple[str, ...]] = ("org.apache.hudi.index.hbase.RebalancedSparkHoodieHBaseIndex",)

    def row_keys(self, keys: pa.Array) -> pa.Array:
        """Row keys in HBase of record keys, as bytes."""
        return rebalanced_row_keys(keys, self.options.bucket_number)


def newest_valid(table: HbaseTable, rows: pa.Array, commits: Commits) -> pa.Table:
    """For each row, the newest location whose commit counts, if there is one and its file group still has the row.

    A put of a failed write is skipped and the version before it is used, where Hudi would treat the key as a new one.
    """
    parts, found = [], table.get(rows)
    while found.num_rows:
        good = commits.count(found["commit_ts"])
        valid = found.filter(good)
        parts.append(valid.filter(commits.are_there(valid)))
        found = table.get_older(found.filter(pc.invert(good)))  # older each time, so this ends
    return pa.concat_tables([LOCATIONS.empty_table(), *parts])


def _delete(table: HbaseTable, rows: pa.Array, instant: str) -> None:
    """Remove rows, except those that this commit or a later one has put."""
    found = table.get(rows)
    older = found.filter(pc.less(found["commit_ts"], instant))
    if older.num_rows:
        table.delete(older["row"].to_pylist())


def _undo_put(table: HbaseTable, put: pa.Table) -> None:
    """Restore for each row the version before its put, and remove rows that have none."""
    before = table.get_older(put)
    places = put["at"].take(pc.index_in(before["row"], put["row"].combine_chunks()))
    for place in pc.unique(places).to_pylist():
        here = before.filter(pc.equal(places, place)).to_pylist()
        table.put(
            ((row["row"], to_cells(row["commit_ts"], row["file_id"], row["partition_path"])) for row in here), place
        )
    without = put.filter(pc.invert(pc.is_in(put["row"], value_set=before["row"].combine_chunks())))
    for place in pc.unique(without["at"]).to_pylist():
        table.delete(without["row"].filter(pc.equal(without["at"], place)).to_pylist(), place)


def _answer(keys: pa.Array, found: pa.Table, ord_type: pa.DataType) -> list[pa.RecordBatch]:
    names = ["record_key", "partition_path", "file_id", "instant", "ord"]
    columns = [keys, found["partition_path"], found["file_id"], found["commit_ts"], pa.nulls(len(keys), ord_type)]
    batches: list[pa.RecordBatch] = pa.table(columns, names=names).combine_chunks().to_batches()
    return batches
