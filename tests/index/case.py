"""A table, its HBASE index and a raw view of HBase: what a batch does to the index, step by step."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from tagstream.index.base import RECORD_SCHEMA, WRITTEN_SCHEMA, OrderingCode, TableAsOf
from tagstream.index.hbase_index import Commits, HbaseIndex
from tagstream.index.hbase_options import HbaseOptions
from tagstream.table.meta_client.table_config import COPY_ON_WRITE
from tests.support.hbase import LOOPBACK, HbaseServer
from tests.table.writer import CrashError, Row, Writer

_numbers = itertools.count()
Place = tuple[str, str, str]


def options(server: HbaseServer, table: str, **changes: Any) -> HbaseOptions:
    """Options for the running server, with a limit that tests do not reach."""
    fast = {"qps_fraction": 1.0, "max_qps_per_region_server": 1_000_000, "get_batch_size": 100_000}
    return HbaseOptions(table, thrift_host=LOOPBACK, thrift_port=server.thrift_port, **{**fast, **changes})


@dataclass
class Case:
    """``writer`` is the table and the oracle of where its keys are."""

    server: HbaseServer
    spark: SparkSession
    writer: Writer
    index: HbaseIndex

    @staticmethod
    def make(
        server: HbaseServer, spark: SparkSession, folder: Path, versions: int = 2, kind: type[HbaseIndex] = HbaseIndex,
        table_type: str = COPY_ON_WRITE, **changes: Any,
    ) -> Case:  # fmt: skip
        """A new table and a new HBase table for it."""
        name = f"index{next(_numbers)}"
        server.make_table(name, versions)
        case = Case(server, spark, Writer.create(folder, table_type), kind(options(server, name, **changes)))
        case.index.start(case.look())
        return case

    def look(self) -> TableAsOf:
        timeline = self.writer.table.timeline()
        ordering = OrderingCode(pa.int64(), lambda column: column)
        return TableAsOf(self.spark, self.writer.table, timeline, timeline.newest_completed, ordering)

    def tag(self, *keys: str) -> dict[str, Place]:
        """Partition, file id and instant of the keys found, by the index's work in a task, without Spark around it."""
        asked = pa.record_batch([pa.array(keys, pa.string())], ["record_key"])
        commits = self._tagged()
        answers = pickle.loads(pickle.dumps(self.index))._tag(iter([asked]), commits, pa.int64())  # noqa: S301
        return places([row for batch in answers for row in batch.to_pylist()])

    def tag_in_spark(self, *keys: str) -> dict[str, Place]:
        """The same from the table of records up."""
        records = self.spark.createDataFrame([(key, "anywhere") for key in keys], RECORD_SCHEMA)
        return places([row.asDict() for row in self.index.tag_location(records, self.look()).collect()])

    def commit(self, upserts: Sequence[Row] = (), deletes: Sequence[str] = (), clean_up: bool = True) -> str:
        """A batch that succeeds. ``clean_up``: the driver lives on to take the deleted keys out of HBase."""
        rows = self._written(upserts, deletes)
        self._tagged()
        instant = self.writer.write(upserts, deletes)
        self.update(rows, instant)
        if clean_up:
            self.index.complete_commit(instant, pa.array(list(deletes), pa.string()))
        return instant

    def fail(self, upserts: Sequence[Row] = (), deletes: Sequence[str] = (), attempts: int = 1) -> str:
        """A batch whose driver dies before the commit, and the rollback of the run after it."""
        rows = self._written(upserts, deletes)
        self._tagged()
        try:
            self.writer.write(upserts, deletes, crash="files")
        except CrashError:
            (pending,) = self.writer.table.timeline().pending_writes
        for _ in range(attempts):
            self.update(rows, pending.time)
        self.writer.rollback_pending()
        assert self.index.rollback_commit(pending.time)
        return pending.time

    def update(self, rows: Sequence[tuple[str, str, str | None, bool]], instant: str) -> None:
        """What a write task does: it works on a copy of the index that was sent to it."""
        columns = zip(*rows, strict=True) if rows else [[]] * 4
        written = pa.table([pa.array(list(column)) for column in columns], WRITTEN_SCHEMA.names).cast(WRITTEN_SCHEMA)
        pickle.loads(pickle.dumps(self.index)).update_location(written, instant)  # noqa: S301

    def cells(self, row: bytes) -> dict[bytes, bytes]:
        """The newest cells of a row."""
        with self.server.connect() as connection:
            return dict(connection.table(self.index.options.table).row(row))

    def versions(self, row: bytes, column: bytes = b"_s:commit_ts") -> list[bytes]:
        """All versions of a cell, newest first."""
        with self.server.connect() as connection:
            return list(connection.table(self.index.options.table).cells(row, column))

    def settle(self) -> None:
        """What HBase does in its own time: drop the versions that it need not keep."""
        with self.server.connect() as connection:
            connection.disable_table(self.index.options.table)
            connection.enable_table(self.index.options.table)

    def put_raw(self, row: bytes, cells: dict[bytes, bytes]) -> None:
        """Cells of anybody."""
        with self.server.connect() as connection:
            connection.table(self.index.options.table).put(row, cells)

    def _tagged(self) -> Commits:
        # What the driver does before the tasks: the look at the timeline stays with the index.
        look = self.look()
        self.index.tag_location(self.spark.range(0).selectExpr("'' AS record_key", "'' AS partition_path"), look)
        return Commits.of(look)

    def _written(self, upserts: Sequence[Row], deletes: Sequence[str]) -> list[tuple[str, str, str | None, bool]]:
        rows: list[tuple[str, str, str | None, bool]] = []
        for row in upserts:
            old, new = self.writer.where.get(row["id"]), self.writer.locate(row)
            moved = old is None or old[0] != new[0]
            rows.append((row["id"], *(new if moved or old is None else old), moved))
        return rows + [(key, self.writer.where[key][0], None, False) for key in deletes]


def places(rows: Sequence[dict[str, Any]]) -> dict[str, Place]:
    """An answer by key; ord is null, and no key comes twice."""
    assert [row["ord"] for row in rows] == [None] * len(rows)
    found = {row["record_key"]: (row["partition_path"], row["file_id"], row["instant"]) for row in rows}
    assert len(found) == len(rows)
    return found
