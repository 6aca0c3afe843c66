"""The index of a table with two ordering fields: shown, exported, carried over and gone on with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tagstream.state.ordering import encode_ordering
from tagstream.table.fields import ordering_column
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tests.cli.running import run, run_json
from tests.cli.stream import STREAM
from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support import two_orderings as two
from tests.support.compare import compare

pytestmark = pytest.mark.spark
KIND = two.KINDS["text"]
ROWS = [two.row(event, KIND) for event in ev.generate(600, ev.Mix(keys=60, late=0.2), seed=61)]


def test_what_the_index_keeps_of_pairs(tmp_path: Path, spark: SparkSession) -> None:
    conf = {**two.CONF, **STREAM, "hoodie.write.table.version": "9"}
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", conf, two.avro_schema(KIND))
    two.write_rows(ROWS[:300], case.source, 0)
    case.run()
    table = read_snapshot(HoodieTable.open(str(case.table)))
    kept = ordering_column(table, two.FIELDS)
    codes = dict(zip(table["id"].to_pylist(), encode_ordering(kept).tolist(), strict=True))
    at = ("--checkpoint-dir", case.checkpoint)
    key, code = next(iter(codes.items()))
    assert run_json("index", "get", key, *at)["ordering"] == code.hex()
    assert run_json("index", "stats", *at)["ordering_kind"] == "tuple"
    to = ("--target-base-path", case.table)
    assert run_json("index", "verify", *at, *to)["equal"]

    run("index", "export", "--all", *at, "--out", tmp_path / "all.parquet")
    rows = pq.read_table(tmp_path / "all.parquet")
    live = rows.filter(rows["file_id"].is_valid())
    assert dict(zip(live["record_key"].to_pylist(), live["ordering"].to_pylist(), strict=True)) == codes
    new = tmp_path / "new"
    sizes = ("--to-checkpoint-dir", new, "--key-groups", 3, "--shuffle-partitions", 3)
    assert run_json("index", "import", "--from", tmp_path / "all.parquet", *to, *sizes)["keys"] == len(codes)

    mine = replace(
        case,
        folder=tmp_path / "job",
        existing=case.table,
        place=new,
        conf={**STREAM, "spark.sql.shuffle.partitions": "3"},
    )
    two.write_rows(ROWS[300:], mine.source, 10)
    assert sum(report.late for report in mine.run()) > 0
    wrong = compare(two.oracle(ROWS, KIND), read_snapshot(HoodieTable.open(str(case.table))), ["id"])
    assert not wrong, wrong
