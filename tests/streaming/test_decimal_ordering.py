"""Decimal ordering fields on merge-on-read: a delete block holds a decimal(30,15), a column may hold more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tests.streaming.stream_case import StreamCase
from tests.streaming.test_bad_records import quarantined
from tests.support.events import write_event_file
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
MICROS = 1_767_225_600_000_000  # 16 digits


def case_of(tmp_path: Path, spark: SparkSession, table_type: str, precision: int, scale: int) -> StreamCase:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    fields = [
        {"name": "id", "type": "string"},
        {"name": "part", "type": ["null", "string"], "default": None},
        {"name": "ts", "type": ["null", decimal], "default": None},
        {"name": "_hoodie_is_deleted", "type": "boolean", "default": False},
    ]
    return StreamCase(tmp_path, spark, table_type, schema={"type": "record", "name": "event", "fields": fields})


def send(case: StreamCase, number: int, *rows: dict) -> None:
    case.source.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    write_event_file(case.source, number, text, modified=1_600_000_000 + number)


def live(case: StreamCase) -> dict[str, tuple[str, int]]:
    rows = read_snapshot(HoodieTable.open(str(case.table))).to_pylist()
    return {row["id"]: (row["part"], int(row["ts"])) for row in rows}


def test_values_beyond_a_delete_block_are_quarantined_and_the_stream_goes_on(
    tmp_path: Path, spark: SparkSession
) -> None:
    case = case_of(tmp_path, spark, "MERGE_ON_READ", 18, 0)
    send(case, 0, *({"id": f"k{i}", "part": "a", "ts": 10} for i in range(4)))
    send(
        case,
        1,
        {"id": "k0", "part": "b", "ts": MICROS},  # a move
        {"id": "k1", "ts": MICROS, "_hoodie_is_deleted": True},
        {"id": "k2", "part": "b", "ts": 10**15 - 1},
        {"id": "k3", "ts": 20, "_hoodie_is_deleted": True},
        {"id": "k4", "part": "a", "ts": -MICROS},
    )
    reports = case.run("--commit-on-errors")
    assert [(r.batch_id, r.quarantined, r.moves, r.deletes) for r in reports] == [(0, 0, 0, 0), (1, 3, 1, 1)]
    assert {"more than 15 digits before the point" in r["reason"] for r in quarantined(case)} == {True}
    assert live(case) == {"k0": ("a", 10), "k1": ("a", 10), "k2": ("b", 10**15 - 1)}
    assert sorted(read_table(case.table)["id"].to_pylist()) == ["k0", "k1", "k2"]


def test_a_copy_on_write_table_takes_them(tmp_path: Path, spark: SparkSession) -> None:
    case = case_of(tmp_path, spark, "COPY_ON_WRITE", 18, 0)
    send(case, 0, *({"id": f"k{i}", "part": "a", "ts": MICROS} for i in range(2)))
    send(case, 1, {"id": "k0", "part": "b", "ts": MICROS + 1}, {"id": "k1", "ts": MICROS, "_hoodie_is_deleted": True})
    assert [r.quarantined for r in case.run()] == [0, 0]
    assert live(case) == {"k0": ("b", MICROS + 1)}


def test_a_type_that_no_delete_block_can_hold_is_refused_at_the_start(tmp_path: Path, spark: SparkSession) -> None:
    case = case_of(tmp_path, spark, "MERGE_ON_READ", 18, 16)
    with pytest.raises(ConfigError, match=r"ordering field 'ts' is decimal.*\(18, 16\).*at most 15 digits after"):
        case.run()
    assert not case.table.exists()
