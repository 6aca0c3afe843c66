"""Tables that a stream appended to, read and continued by real Hudi; and the small files that both choose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.commit_metadata import NO_PREVIOUS
from tests.interop.hudi_spark import HudiSpark
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.table_version import table_version

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark]
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
OPERATION = "hoodie.datasource.write.operation"


def events_of(first: int, count: int, partitions: int = 3) -> list[ev.Event]:
    """Events with a key each."""
    return [
        ev.Event(f"k{i:05d}", f"p{i % partitions}", i, name=f"n{i}", amount=i / 4) for i in range(first, first + count)
    ]


def is_right(hudi: HudiSpark, table: Path, events: list[ev.Event]) -> None:
    wrong = compare(ev.rows(events), hudi.read(table), ["id"])
    assert not wrong, f"Hudi {hudi.version}: {wrong}"


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("operation", ["INSERT", "BULK_INSERT"])
def test_hudi_reads_and_continues_a_table_of_appends(
    hudi: HudiSpark, spark: SparkSession, tmp_path: Path, operation: str, table_type: str
) -> None:
    case = StreamCase(tmp_path, spark, table_type, {OPERATION: operation})
    events = events_of(0, 300)
    ev.write_files(events, case.source, 100)
    case.run()
    is_right(hudi, case.table, events)
    newer = [replace(event, ordering=9_000 + (event.ordering or 0), name="by Hudi") for event in events[:40]]
    more = events_of(1_000, 10)
    hudi.write(HoodieTable.open(str(case.table)), ev.rows([*newer, *more]), hudi.index("BLOOM"))
    is_right(hudi, case.table, [*newer, *more, *events[40:]])
    appended = events_of(2_000, 90)
    ev.write_files(appended, case.source, 90, first=3)
    case.run()
    is_right(hudi, case.table, [*newer, *more, *events[40:], *appended])


def files_of(table: Path) -> list[tuple[int, int, int]]:
    """Of each write: files, those of new file groups, and inserted rows."""
    opened = HoodieTable.open(str(table))
    timeline = opened.timeline()
    found = []
    for instant in timeline.completed_writes:
        stats = timeline.metadata(opened.storage, instant).all_stats()
        new = sum(stat.prev_commit in (NO_PREVIOUS, "") for stat in stats)
        found.append((len(stats), new, sum(stat.num_inserts for stat in stats)))
    return found


SIZES = {
    "all rows fit into the first file": ({}, (40, 30, 20)),
    "no file takes more rows": ({"hoodie.parquet.small.file.limit": "0"}, (40, 30, 20)),
    "new files, and one that takes more": (
        {"hoodie.parquet.max.file.size": "50000", "hoodie.copyonwrite.record.size.estimate": "1000"},
        (120, 30),
    ),
}


@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("sizes", SIZES)
def test_an_insert_chooses_as_many_files_as_hudi(
    hudi: HudiSpark, spark: SparkSession, tmp_path: Path, sizes: str, table_type: str
) -> None:
    conf, batches = SIZES[sizes]
    case = StreamCase(tmp_path, spark, table_type, {OPERATION: "INSERT", **conf})
    theirs = {
        "hoodie.table.name": "theirs",
        OPERATION: "insert",
        "hoodie.datasource.write.table.type": table_type,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.index.type": "BLOOM",
        "hoodie.metadata.enable": "false",
        "hoodie.bloom.index.filter.type": "SIMPLE",
        "hoodie.index.bloom.num_entries": "1000",
        **({} if hudi.is_0x else {"hoodie.write.table.version": str(table_version())}),
        **conf,
    }
    first = 0
    for number, count in enumerate(batches):
        events = events_of(first, count, partitions=1)
        first += count
        ev.write_files(events, case.source, count, first=number)
        case.run()
        hudi.save(tmp_path / "theirs", ev.rows(events).cast(pa.schema(ev.ARROW_SCHEMA)), theirs)
    assert files_of(case.table) == files_of(tmp_path / "theirs")
