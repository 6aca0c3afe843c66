"""INSERT: every record becomes a row, without a look-up. The rows are compared with the records of the input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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
    assert not list(case.table.rglob(".*.log.*")), "rows go to base files"
