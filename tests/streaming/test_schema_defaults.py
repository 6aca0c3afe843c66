"""Avro's defaults are part of the table: a start without the schema file decodes as one with it, and readers read on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.schema.record_schema import default_of
from tests.cli.running import run_json
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
FIELDS: list[dict[str, Any]] = [
    {"name": "n", "type": "int", "default": 5},
    {"name": "maybe", "type": ["long", "null"], "default": 7},
    {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
    {"name": "pair", "type": {"type": "record", "name": "Pair", "fields": [
        {"name": "a", "type": "int", "default": 1}, {"name": "b", "type": "string"}]},
     "default": {"a": 2, "b": "x"}},
]  # fmt: skip
SCHEMA = {**ev.AVRO_SCHEMA, "fields": [*ev.AVRO_SCHEMA["fields"], *FIELDS]}
SCHEMA_KEY = "hoodie.streamer.schemaprovider.source.schema.file"


def put(case: StreamCase, number: int, *rows: dict[str, Any]) -> None:
    case.source.mkdir(exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    ev.write_event_file(case.source, number, text, modified=1_700_000_000 + number)


@pytest.mark.extended("more kinds of tables", first=("MERGE",))
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_a_start_without_the_schema_file(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    case = StreamCase(tmp_path, spark, table_type, schema=SCHEMA)
    put(case, 0, {"id": "k1", "part": "p", "ts": 1}, {"id": "k2", "part": "p", "ts": 1, "n": 9, "maybe": None})
    assert len(case.run()) == 1
    put(case, 1, {"id": "k3", "part": "p", "ts": 1}, {"id": "k2", "part": "p", "ts": 2})
    case.conf = {SCHEMA_KEY: ""}  # given empty: taken out
    (report,) = case.run()
    assert (report.records, report.quarantined) == (2, 0)

    found = {row["id"]: row for row in read_table(case.table).to_pylist()}
    default = {"n": 5, "maybe": 7, "tags": [], "pair": {"a": 2, "b": "x"}, "_hoodie_is_deleted": False}
    for key in ("k1", "k2", "k3"):
        assert {name: found[key][name] for name in default} == default, key

    schema = json.loads(HoodieTable.open(str(case.table)).schema_json() or "")
    kept = {f["name"]: default_of(f) for f in schema["fields"] if default_of(f) is not None}
    assert kept == {**{f["name"]: f["default"] for f in FIELDS}, "_hoodie_is_deleted": False}
    advice = run_json("index", "advise", "--target-base-path", case.table, "--sample", case.source)
    assert advice["bad"] == 0
