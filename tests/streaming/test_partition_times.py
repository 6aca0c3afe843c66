"""A stream into partitions that are the times of a field: rows are in the partition of their time, and move with it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
DAY = 86_400
TIMES = {
    "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
}
TIMESTAMP = {
    "hoodie.datasource.write.keygenerator.type": "TIMESTAMP",
    "hoodie.datasource.write.partitionpath.field": "ts",
}
CUSTOM = {
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.CustomKeyGenerator",
    "hoodie.datasource.write.partitionpath.field": "part:SIMPLE,ts:TIMESTAMP",
}


def path_of(event: ev.Event, custom: bool) -> str:
    assert event.ordering is not None
    day = datetime.fromtimestamp(event.ordering, UTC).strftime("%Y/%m/%d")
    return f"{event.partition}/{day}" if custom else day


@pytest.mark.extended("more kinds of tables", first=("False-MERGE_ON_READ-9",))
@pytest.mark.parametrize(("table_type", "version"), [("MERGE_ON_READ", "9"), ("COPY_ON_WRITE", "6")])
@pytest.mark.parametrize("custom", [False, True])
def test_rows_are_where_their_time_is(
    tmp_path: Path, spark: SparkSession, custom: bool, table_type: str, version: str
) -> None:
    conf = TIMES | (CUSTOM if custom else TIMESTAMP) | {"hoodie.write.table.version": version}
    case = StreamCase(tmp_path, spark, table_type, conf)
    first = [ev.Event(f"k{n}", f"p{n % 2}", n * DAY // 4) for n in range(20)]
    later = [ev.Event(f"k{n}", f"p{n % 2}", (n + 9) * DAY) for n in range(0, 20, 3)]  # each in another partition
    ev.write_files(first, case.source, 10)
    case.run()
    ev.write_files(later, case.source, 10, first=2)
    case.run()
    wanted = {e.key: path_of(e, custom) for e in [*first, *later]}
    if (
        custom and version == "9"
    ):  # hudi-rs takes the kinds behind the fields, which Hudi wants there, for parts of the names
        rows = read_snapshot(HoodieTable.open(str(case.table))).to_pylist()
    else:
        rows = read_table(case.table).to_pylist()
    assert {r["_hoodie_record_key"]: r["_hoodie_partition_path"] for r in rows} == wanted
    assert len(rows) == len(wanted)
    config = HoodieTable.open(str(case.table)).config
    assert config.times is not None
    assert config.partition_fields == (("part", "ts") if custom else ("ts",))


def test_a_text_that_is_no_time_is_quarantined(tmp_path: Path, spark: SparkSession) -> None:
    conf = TIMESTAMP | {
        "hoodie.datasource.write.partitionpath.field": "name",
        "hoodie.keygen.timebased.timestamp.type": "DATE_STRING",
        "hoodie.keygen.timebased.input.dateformat": "yyyy-MM-dd",
        "hoodie.keygen.timebased.output.dateformat": "yyyy-MM",
    }
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", conf)
    events = [ev.Event("a", "p", 1, name="2026-11-23"), ev.Event("b", "p", 1, name="tomorrow")]
    ev.write_files(events, case.source, 10)
    case.run("--commit-on-errors")
    rows = read_table(case.table).to_pylist()
    assert [(r["id"], r["_hoodie_partition_path"]) for r in rows] == [("a", "2026-11")]
    folder = case.checkpoint / "tagstream" / "quarantine"
    (bad,) = [line for file in folder.glob("batch=*/*.jsonl") for line in file.read_text().splitlines()]
    assert "tomorrow is not a time of the pattern yyyy-MM-dd" in json.loads(bad)["reason"]
