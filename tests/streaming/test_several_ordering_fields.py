"""Streams into tables with two ordering fields: the first that differs decides, whatever the table, index and types."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tagstream.table.errors import ConfigError, TableConfigMismatchError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tests.streaming.job.frame_case import FrameCase
from tests.streaming.stream_case import StreamCase
from tests.streaming.test_bad_records import quarantined
from tests.support import events as ev
from tests.support import two_orderings as two
from tests.support.compare import compare

pytestmark = pytest.mark.spark
FILES, PER_FILE = 3, 120
MIX = ev.Mix(keys=50, partitions=3, late=0.2, late_deletes=0.1)
MOR, COW = "MERGE_ON_READ", "COPY_ON_WRITE"


def case_of(folder: Path, spark: SparkSession, kind: str, table_type: str, version: int = 9, **conf: str) -> StreamCase:
    settings = {name.replace("_", "."): value for name, value in conf.items()}
    logs = {"tagstream.inserts.to.base.files": "false"}
    all_conf = {**two.CONF, **logs, "hoodie.write.table.version": str(version), **settings}
    return StreamCase(folder, spark, table_type, all_conf, two.avro_schema(two.KINDS[kind]))


def send(case: StreamCase, kind: str, first: int = 0) -> list[dict[str, Any]]:
    """``FILES`` files of events from the ``first`` on; all the events up to there."""
    events = ev.generate(3 * FILES * PER_FILE, MIX, seed=23)
    rows = [two.row(event, two.KINDS[kind]) for event in events]
    if case.conf.get("hoodie.index.type", "STATE") != "STATE":
        rows = two.without_late_after_deletes(rows)
    rows = rows[: (first + FILES) * PER_FILE]
    for number in range(first, first + FILES):
        two.write_rows(rows[number * PER_FILE : (number + 1) * PER_FILE], case.source, number)
    return rows


def check(case: StreamCase, rows: Sequence[dict[str, Any]], kind: str) -> None:
    found = read_snapshot(HoodieTable.open(str(case.table)))
    wrong = compare(two.oracle(rows, two.KINDS[kind]), found, ["id"])
    assert not wrong, wrong


@pytest.mark.extended("more kinds of tables", first=("long-MERGE_ON_READ-9-STATE",))
@pytest.mark.parametrize(
    ("kind", "table_type", "version", "index"),
    [
        ("long", MOR, 9, "STATE"),
        ("text", MOR, 8, "STATE"),
        ("double", COW, 9, "STATE"),
        ("timestamp", MOR, 9, "GLOBAL_SIMPLE"),
        ("text", COW, 9, "GLOBAL_BLOOM"),
        ("long", COW, 8, "RECORD_INDEX"),
        ("double", MOR, 9, "RECORD_INDEX"),
    ],
)
def test_rows_are_those_of_the_greatest_pairs(
    tmp_path: Path, spark: SparkSession, kind: str, table_type: str, version: int, index: str
) -> None:
    """Moves, late events and deletes; a second run goes on, and compaction merges by the pairs, too."""
    services = {"hoodie_compact_inline": "true", "hoodie_compact_inline_max_delta_commits": "2"}
    case = case_of(
        tmp_path, spark, kind, table_type, version, hoodie_index_type=index, **(services if table_type == MOR else {})
    )
    rows = send(case, kind)
    reports = case.run()
    check(case, rows, kind)
    rows = send(case, kind, FILES)
    reports += case.run()
    assert min(sum(getattr(r, name) for r in reports) for name in ("deletes", "updates")) > 0
    check(case, rows, kind)
    done = {i.action for i in HoodieTable.open(str(case.table)).timeline().instants if i.is_completed}
    if table_type == MOR and index != "GLOBAL_SIMPLE":  # which cannot see logs, so inserts go to base files
        assert {"commit", "deltacommit"} <= done, "the logs were compacted"


@pytest.mark.extended("the same decisions over another real stream")
def test_a_lost_index_is_loaded_with_the_pairs(tmp_path: Path, spark: SparkSession) -> None:
    """Late events lose against the rows that a new checkpoint knows from the table alone."""
    case = case_of(tmp_path, spark, "text", MOR)
    rows = send(case, "text")
    case.run()
    shutil.rmtree(case.checkpoint)
    shutil.rmtree(case.folder / "local")
    for path in case.source.iterdir():
        path.unlink()
    alive = set(two.oracle(rows, two.KINDS["text"])["id"].to_pylist())
    late = [fields for fields in rows if fields["id"] in alive and not fields["_hoodie_is_deleted"]][::3]
    two.write_rows(late, case.source, FILES)
    two.write_rows([{**late[0], "epoch": "e99999", "step": ""}], case.source, FILES + 1)
    assert sum(report.late for report in case.run()) > 0
    check(case, [*rows, *late, {**late[0], "epoch": "e99999", "step": ""}], "text")


@pytest.mark.parametrize("table_type", [MOR, COW])
def test_a_record_that_lacks_a_field_is_quarantined(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    """But for a delete, which then takes the order of the row, as with one field."""
    case = case_of(tmp_path, spark, "long", table_type)
    first = two.row(ev.Event("a", "p", 5), two.KINDS["long"])
    other = {**first, "id": "b"}
    two.write_rows([first, other], case.source, 0)
    bad = [{**first, "step": None}, {**first, "epoch": None}]
    two.write_rows([*bad, {**other, "step": None, "_hoodie_is_deleted": True}], case.source, 1)
    reports = case.run("--commit-on-errors")
    assert [(r.quarantined, r.deletes) for r in reports] == [(0, 0), (2, 1)]
    reasons = [note["reason"] for note in quarantined(case)]
    assert sorted(reasons) == ["ordering field epoch is null", "ordering field step is null"]
    check(case, [first], "long")


@pytest.mark.extended("the same decisions over another real stream")
def test_a_dataframe_with_two_ordering_fields(tmp_path: Path, spark: SparkSession) -> None:
    kind = two.KINDS["timestamp"]
    conf = {**two.CONF, "hoodie.write.table.version": "9", "--table-type": MOR}
    case = FrameCase(tmp_path, spark, conf)
    rows = [two.row(event, kind) for event in ev.generate(200, MIX, seed=29)]
    for number in (0, 1):
        two.write_rows(rows[number * 100 : (number + 1) * 100], case.source, number)
    columns = "id string, part string, epoch long, step long, name string, amount double, _hoodie_is_deleted boolean"
    frame = spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).json(str(case.source))
    case.run(frame.withColumn("epoch", F.timestamp_micros("epoch")))
    expected = two.oracle(rows, kind).drop_columns(["_hoodie_is_deleted"])
    wrong = compare(expected, read_snapshot(HoodieTable.open(str(case.table))), ["id"])
    assert not wrong, wrong


def test_a_table_of_version_6_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    case = case_of(tmp_path, spark, "long", MOR, 6)
    with pytest.raises(
        ConfigError, match=r"\(epoch, step, .*\), which tables of version 6 do not support: .*version=8 or 9"
    ):
        case.run()
    assert not case.table.exists()


def test_other_fields_than_the_tables_are_refused(tmp_path: Path, spark: SparkSession) -> None:
    case = case_of(tmp_path, spark, "long", COW)
    send(case, "long")
    case.run()
    other = replace(case, conf={**case.conf, "hoodie.table.ordering.fields": "step,epoch"})
    with pytest.raises(TableConfigMismatchError, match=r"ordering.fields=epoch,step, but the job has step,epoch"):
        other.run()
