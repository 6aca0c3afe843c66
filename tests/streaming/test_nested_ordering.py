"""Streams into tables whose ordering field is inside a struct, of one field and of two, whatever the table and index."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.streaming.job.frame_case import FrameCase
from tests.streaming.stream_case import StreamCase
from tests.streaming.test_bad_records import quarantined
from tests.support import events as ev
from tests.support import nested_orderings as nested
from tests.support import two_orderings as two
from tests.support.compare import compare
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
FILES, PER_FILE = 3, 120
MIX = ev.Mix(keys=50, partitions=3, late=0.2, late_deletes=0.1)
MOR, COW = "MERGE_ON_READ", "COPY_ON_WRITE"


def case_of(folder: Path, spark: SparkSession, kind: str, table_type: str, version: int, **conf: str) -> StreamCase:
    settings = {name.replace("_", "."): value for name, value in conf.items()}
    own = {**nested.conf(version), "tagstream.inserts.to.base.files": "false"}
    return StreamCase(folder, spark, table_type, {**own, **settings}, nested.avro_schema(two.KINDS[kind]))


def rows_of(case: StreamCase, kind: str, version: int) -> list[dict[str, Any]]:
    rows = nested.rows(ev.generate(2 * FILES * PER_FILE, MIX, seed=31), two.KINDS[kind], version)
    asked = case.conf.get("hoodie.index.type", "STATE") != "STATE"
    return two.without_late_after_deletes(rows) if asked else rows


def check(case: StreamCase, rows: list[dict[str, Any]], kind: str) -> None:
    table = HoodieTable.open(str(case.table))
    wrong = compare(two.oracle(rows, two.KINDS[kind]), nested.flat(read_snapshot(table)), ["id"])
    assert not wrong, wrong
    assert validate(table) == [] and validate_metadata(table) == []


@pytest.mark.extended("more kinds of tables", first=("long-MERGE_ON_READ-9-STATE",))
@pytest.mark.parametrize(
    ("kind", "table_type", "version", "index"),
    [
        ("long", MOR, 9, "STATE"),
        ("long", MOR, 6, "STATE"),
        ("text", MOR, 9, "STATE"),
        ("timestamp", COW, 9, "STATE"),
        ("date", MOR, 8, "RECORD_INDEX"),
        ("double", COW, 6, "GLOBAL_BLOOM"),
        ("timestamp", COW, 8, "GLOBAL_SIMPLE"),
    ],
)
def test_the_greatest_value_wins(
    tmp_path: Path, spark: SparkSession, kind: str, table_type: str, version: int, index: str
) -> None:
    """Moves, late events and deletes; compaction merges by the values, too; a lost index is loaded with them."""
    services = {"hoodie_compact_inline": "true", "hoodie_compact_inline_max_delta_commits": "2"}
    case = case_of(
        tmp_path, spark, kind, table_type, version, hoodie_index_type=index, **(services if table_type == MOR else {})
    )
    rows = rows_of(case, kind, version)
    reports, files = [], [rows[at : at + PER_FILE] for at in range(0, len(rows), PER_FILE)]
    for number, part in enumerate(files):
        nested.write_rows(part, case.source, number)
        if number in (FILES - 1, len(files) - 1):
            reports += case.run()
            check(case, rows[: (number + 1) * PER_FILE], kind)
    assert min(sum(getattr(report, name) for report in reports) for name in ("deletes", "updates")) > 0
    if index != "STATE":
        return
    for folder in (case.checkpoint, case.folder / "local", case.source):
        shutil.rmtree(folder)
    alive = set(two.oracle(rows, two.KINDS[kind])["id"].to_pylist())
    again = [fields for fields in rows if fields["id"] in alive and not fields["_hoodie_is_deleted"]]
    nested.write_rows(again[::3], case.source, 0)
    assert sum(report.late for report in case.run()) > 0
    check(case, [*rows, *again[::3]], kind)


@pytest.mark.extended("more kinds of tables", first=(MOR,))
@pytest.mark.parametrize("table_type", [COW, MOR])
def test_hudi_rs_reads_it(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    case = case_of(tmp_path, spark, "long", table_type, 6)
    rows = rows_of(case, "long", 6)[: 2 * PER_FILE]
    for number in range(2):
        nested.write_rows(rows[number * PER_FILE : (number + 1) * PER_FILE], case.source, number)
    case.run()
    wrong = compare(two.oracle(rows, two.KINDS["long"]), nested.flat(read_table(case.table)), ["id"])
    assert not wrong, wrong


@pytest.mark.extended("more kinds of tables", first=(MOR,))
@pytest.mark.parametrize("table_type", [MOR, COW])
def test_a_record_without_a_value_is_quarantined(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    """A null, and a struct that is null as a whole; a delete without one takes the order of the row."""
    case = case_of(tmp_path, spark, "long", table_type, 9)
    first, other = (two.row(ev.Event(key, "p", 5), two.KINDS["long"]) for key in "ab")
    nested.write_rows([first, other], case.source, 0)
    lacking = nested.line({**first, "step": None})
    nothing = {**nested.line(first), "meta": None}
    gone = {**nested.line(other), "meta": None, "_hoodie_is_deleted": True}
    two.write_rows([lacking, nothing, gone], case.source, 1)
    reports = case.run("--commit-on-errors")
    assert [(r.quarantined, r.deletes) for r in reports] == [(0, 0), (2, 1)]
    reasons = sorted(note["reason"] for note in quarantined(case))
    assert reasons == ["ordering field meta.order.epoch is null", "ordering field meta.order.step is null"]
    check(case, [first], "long")


def test_the_struct_gets_a_field_and_the_order_keeps_its_type(tmp_path: Path, spark: SparkSession) -> None:
    """A new field next to the ordering field is taken; another type of the ordering field is refused."""
    kind = two.KINDS["long"]
    case = case_of(tmp_path, spark, "long", MOR, 9)
    rows = rows_of(case, "long", 9)[:PER_FILE]
    nested.write_rows(rows, case.source, 0)
    case.run()
    more = StreamCase(tmp_path, spark, MOR, case.conf, nested.avro_schema(kind, source=["null", "string"]))
    newer = [{**rows[0], "epoch": 99_999, "_hoodie_is_deleted": False}]
    nested.write_rows(newer, case.source, 1)
    more.run()
    table = HoodieTable.open(str(case.table))
    assert pa.types.is_string(read_snapshot(table).schema.field("meta").type.field("source").type)
    check(more, [*rows, *newer], "long")


@pytest.mark.extended("more sources of typed rows")
def test_a_dataframe(tmp_path: Path, spark: SparkSession) -> None:
    kind = two.KINDS["long"]
    case = FrameCase(tmp_path, spark, {**nested.conf(9), "hoodie.write.table.version": "9", "--table-type": MOR})
    rows = nested.rows(ev.generate(200, MIX, seed=29), kind, 9)
    for number in (0, 1):
        nested.write_rows(rows[number * 100 : (number + 1) * 100], case.source, number)
    columns = (
        "id string, part string, meta struct<order struct<epoch long, step long>, by string>, name string, amount double, "
        "_hoodie_is_deleted boolean"
    )
    case.run(spark.readStream.schema(columns).option("maxFilesPerTrigger", 1).json(str(case.source)))
    expected = two.oracle(rows, kind).drop_columns(["_hoodie_is_deleted"])
    wrong = compare(expected, nested.flat(read_snapshot(HoodieTable.open(str(case.table)))), ["id"])
    assert not wrong, wrong
