"""INSERT: every record becomes a row, without a look-up. The rows are compared with the records of the input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.hudi_rs import read_table
from tests.support.table_version import timeline_of

pytestmark = pytest.mark.spark
OPERATION = "hoodie.datasource.write.operation"
PER_FILE = 200
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
# Duplicates, moves and late events: each is a row of its own.
EVENTS = list(ev.generate(4 * PER_FILE, ev.Mix(keys=90, partitions=3), seed=5))


def as_rows(events: Iterable[ev.Event]) -> Counter[tuple[Any, ...]]:
    """How often each row must be in a table that every record was appended to. Deletes append nothing."""
    return Counter(tuple(event.row().values()) for event in events if not event.deleted)


def found_rows(table: Path) -> Counter[tuple[Any, ...]]:
    """How often each row is in the table, as hudi-rs reads it."""
    found = read_table(table, meta_columns=False).select(ev.ARROW_SCHEMA.names)
    return Counter(zip(*(column.to_pylist() for column in found.columns), strict=True))


def commits(table: Path) -> list[CommitMetadata]:
    """The commits, oldest first."""
    return [CommitMetadata.from_bytes(p.read_bytes(), str(p)) for p in sorted(timeline_of(table).glob("*.*commit"))]


def insert_case(
    folder: Path, spark: SparkSession, table_type: str, operation: str = "INSERT", **conf: str
) -> StreamCase:
    """A stream that appends; ``conf``: further keys, with ``_`` for ``.``."""
    more = {name.replace("_", "."): value for name, value in conf.items()}
    return StreamCase(folder, spark, table_type, {OPERATION: operation, **more})


@pytest.mark.table_versions(6, 9, also=(8,))
@pytest.mark.parametrize("table_type", TYPES)
def test_every_record_becomes_a_row(tmp_path: Path, spark: SparkSession, version: int, table_type: str) -> None:
    case = insert_case(tmp_path, spark, table_type)
    ev.write_files(EVENTS[: 2 * PER_FILE], case.source, PER_FILE)
    reports = case.run()
    ev.write_files(EVENTS[2 * PER_FILE :], case.source, PER_FILE, first=2)
    reports += case.run()
    assert found_rows(case.table) == as_rows(EVENTS)
    deletes = sum(event.deleted for event in EVENTS)
    assert deletes > 20
    assert sum(report.inserts for report in reports) == len(EVENTS) - deletes
    assert sum(report.unknown_deletes for report in reports) == deletes
    assert [metadata.operation for metadata in commits(case.table)] == ["INSERT"] * 4
    wrong = validate(HoodieTable.open(str(case.table)))
    assert all(" occurs " in text for text in wrong), wrong  # the same key in several rows is what was asked for
    logs = [path for path in case.table.rglob(".*.log.*") if ".hoodie" not in path.relative_to(case.table).parts]
    assert not logs, "rows go to base files"


MODES = ("NONE", "GLOBAL_SORT", "PARTITION_SORT", "PARTITION_PATH_REPARTITION", "PARTITION_PATH_REPARTITION_AND_SORT")


@pytest.mark.table_versions(6, 9, also=(8,))
@pytest.mark.parametrize("table_type", TYPES)
def test_a_bulk_insert_writes_new_files_only(
    tmp_path: Path, spark: SparkSession, version: int, table_type: str
) -> None:
    case = insert_case(tmp_path, spark, table_type, "BULK_INSERT")
    ev.write_files(EVENTS, case.source, PER_FILE)
    case.run()
    assert found_rows(case.table) == as_rows(EVENTS)
    made = commits(case.table)
    assert [metadata.operation for metadata in made] == ["BULK_INSERT"] * 4
    stats = [stat for metadata in made for stats in metadata.stats.values() for stat in stats]
    assert {stat.prev_commit for stat in stats} == {"null"}
    assert len({stat.file_id for stat in stats}) == len(stats)
    wrong = validate(HoodieTable.open(str(case.table)))
    assert all(" occurs " in text for text in wrong), wrong


@pytest.mark.parametrize("mode", MODES)
def test_the_sort_mode_decides_the_order_of_rows(tmp_path: Path, spark: SparkSession, mode: str) -> None:
    conf = {"hoodie.bulkinsert.sort.mode": mode, "hoodie.bulkinsert.shuffle.parallelism": "3"}
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", {OPERATION: "BULK_INSERT", **conf})
    ev.write_files(EVENTS, case.source, PER_FILE)
    case.run("--source-limit", "1000000000")
    assert found_rows(case.table) == as_rows(EVENTS)
    (made,) = commits(case.table)
    files = [pq.read_table(case.table / stat.path) for stats in made.stats.values() for stat in stats]
    keys = {
        path: [file.column("_hoodie_record_key").to_pylist() for file in files if file["part"][0].as_py() == path]
        for path in made.stats
    }
    if mode in ("GLOBAL_SORT", "PARTITION_SORT"):
        assert all(each == sorted(each) for lists in keys.values() for each in lists)
    if mode == "GLOBAL_SORT":  # no two files of a partition overlap, and some partition has rows of two tasks
        for lists in keys.values():
            lists.sort()
            assert all(one[-1] <= other[0] for one, other in pairwise(lists))
        assert len(files) > len(keys)
    if mode.startswith("PARTITION_PATH"):
        assert len(files) == len(keys)
