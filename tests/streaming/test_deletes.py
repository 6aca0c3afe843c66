"""DELETE: every record deletes the row of its key, with each kind of index. The oracle is the input without these keys."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.streaming.stream_case import StreamCase
from tests.streaming.test_inserts import OPERATION, as_rows, commits, found_rows
from tests.support import events as ev

pytestmark = pytest.mark.spark
TYPES = ("COPY_ON_WRITE", "MERGE_ON_READ")
COUNT = 300


def make_table(folder: Path, spark: SparkSession, table_type: str, **conf: str) -> tuple[StreamCase, list[ev.Event]]:
    """A table with a row of each of ``COUNT`` keys."""
    case = StreamCase(folder, spark, table_type, {name.replace("_", "."): value for name, value in conf.items()})
    events = [ev.Event(f"k{i}", f"p{i % 3}", 1_000 + i, name=f"n{i}") for i in range(COUNT)]
    ev.write_files(events, case.source, COUNT // 2)
    case.run()
    return case, events


def write_keys(folder: Path, keys: Iterable[str], *, per_file: int = 40, **more: object) -> None:
    """Files of records that have only a key, and what ``more`` gives."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps({"id": key, **more}) + "\n" for key in keys]
    for number, start in enumerate(range(0, len(lines), per_file)):
        text = "".join(lines[start : start + per_file])
        ev.write_event_file(folder, number, text, modified=1_600_000_000 + number)


@pytest.mark.extended(
    "more kinds of tables and settings",
    first=(
        "v6-MERGE_ON_READ-STATE",
        "v9-COPY_ON_WRITE-GLOBAL_SIMPLE",
    ),
)
@pytest.mark.table_versions(6, 9, also=(8,))
@pytest.mark.parametrize("index", ["STATE", "GLOBAL_SIMPLE"])
@pytest.mark.parametrize("table_type", TYPES)
def test_each_record_deletes_its_key(
    tmp_path: Path, spark: SparkSession, version: int, table_type: str, index: str
) -> None:
    """The records have no partition and no ordering value; some keys have no row."""
    made, events = make_table(tmp_path, spark, table_type)
    case = StreamCase(
        tmp_path / "deletes", spark, conf={OPERATION: "DELETE", "hoodie.index.type": index}, existing=made.table
    )
    gone = {f"k{i}" for i in range(0, COUNT + 100, 3)}
    write_keys(case.source, sorted(gone))
    reports = case.run()
    left = [event for event in events if event.key not in gone]
    assert found_rows(made.table) == as_rows(left)
    assert sum(report.deletes for report in reports) == COUNT - len(left)
    assert {metadata.operation for metadata in commits(made.table)[2:]} - {"COMPACT"} == {"DELETE"}
    table = HoodieTable.open(str(made.table))
    assert validate(table) == []
    assert validate_metadata(table) == []


@pytest.mark.extended(
    "more kinds of tables and settings",
    first=(
        "STATE-MERGE_ON_READ",
        "BUCKET-COPY_ON_WRITE",
    ),
)
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("index", ["STATE", "BLOOM", "BUCKET"])
def test_the_ordering_value_does_not_matter(tmp_path: Path, spark: SparkSession, table_type: str, index: str) -> None:
    """An index that needs the partition gets it from the record. Its ordering value is less than that of the row."""
    conf = {"hoodie_index_type": index} if index == "BUCKET" else {}
    made, events = make_table(tmp_path, spark, table_type, **conf)
    own = {OPERATION: "DELETE", "hoodie.index.type": index}
    case = StreamCase(tmp_path / "deletes", spark, conf=own, existing=made.table)
    gone = [event for event in events if event.partition == "p1"]
    write_keys(case.source, [event.key for event in gone], part="p1", ts=1)
    case.run()
    assert found_rows(made.table) == as_rows(event for event in events if event not in gone)


def test_the_stream_that_wrote_the_table_knows_of_the_deletes(tmp_path: Path, spark: SparkSession) -> None:
    made, events = make_table(tmp_path, spark, "MERGE_ON_READ")
    case = StreamCase(tmp_path / "deletes", spark, conf={OPERATION: "DELETE"}, existing=made.table)
    write_keys(case.source, [f"k{i}" for i in range(100)])
    case.run()
    again = [ev.Event(f"k{i}", "p2", 5_000, name="again") for i in range(50, 150)]
    ev.write_files(again, made.source, 100, first=2)
    made.run()
    assert found_rows(made.table) == as_rows([*again, *events[150:]])
    assert validate(HoodieTable.open(str(made.table))) == []


def test_files_need_no_ordering_field_to_delete(tmp_path: Path, spark: SparkSession) -> None:
    made, events = make_table(tmp_path, spark, "COPY_ON_WRITE")
    case = StreamCase(tmp_path / "deletes", spark, conf={OPERATION: "DELETE"}, existing=made.table)
    write_keys(case.source, ["k1", "k1", "k2"])
    (report,) = case.run()
    assert (report.records, report.deletes, report.superseded) == (3, 2, 1)
    assert found_rows(made.table) == as_rows([events[0], *events[3:]])
