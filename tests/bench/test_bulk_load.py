"""A first load and the stream after it, with our writer alone; the sums that the tables are checked by."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from bench import bulk_load
from bench.bulk_load import US, Input, as_table, continue_stream, load, make_input
from bench.writers.case import BenchError
from tests.support.hudi_rs import read_table

ROWS, RECORDS, BATCHES = 3_000, 200, 3


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Input:
    monkeypatch.setattr(bulk_load, "_ROWS_PER_FILE", 1_000)
    return make_input(tmp_path / "input", ROWS, 4, BATCHES, RECORDS)


def test_the_sums_are_those_of_the_files(given: Input) -> None:
    rows = pq.read_table(given.folder / "load")
    assert (rows.num_rows, pc.count_distinct(rows["id"]).as_py()) == (ROWS, ROWS)
    assert pc.sum(rows["ts"]).as_py() == given.ts_sum
    newest = dict(zip(rows["id"].to_pylist(), rows["ts"].to_pylist(), strict=True))
    for file in sorted((given.folder / "updates").iterdir()):
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        assert len({line["id"] for line in lines}) == RECORDS
        newest |= {line["id"]: line["ts"] for line in lines}
    assert sum(newest.values()) == given.ts_sum_after


@pytest.mark.extended("two jobs as processes")
def test_our_load_and_the_stream_after_it(given: Input, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def check(place: Path, rows: int, ts_sum: int, _timeout_s: float) -> None:
        found = read_table(place / "table")
        if (found.num_rows, pc.sum(found["ts"]).as_py()) != (rows, ts_sum):
            raise BenchError(f"{found.num_rows} rows")

    monkeypatch.setattr(bulk_load, "check", check)
    args = argparse.Namespace(table_type="MERGE_ON_READ", timeout=240.0, records=RECORDS)
    figures = load(US, given, tmp_path / "place", args)
    assert figures["files"] >= 4 and figures["rows_per_second"] > 0
    assert len(as_table([figures]).rows) == 1
    after = continue_stream(given, tmp_path / "place", args)
    assert after["index_seconds"] > 0 and after["median_seconds"] > 0
