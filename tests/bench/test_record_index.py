"""Making a record index beside real Hudi: what is counted, and a small run."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.inputs.lines import read_lines
from bench.record_index import main, making_seconds


def test_here_the_start_is_counted_and_of_hudi_what_its_first_batch_takes_longer() -> None:
    batches = [{"seconds": 30.0}, {"seconds": 5.0}]
    assert making_seconds([*batches, {"writer": "tagstream", "bootstrap_seconds": 12.5}]) == 12.5
    assert making_seconds([*batches, {"writer": "hudi-spark", "bootstrap_seconds": None}]) == 25.0


@pytest.mark.hudi_jar
@pytest.mark.spark
def test_both_make_one_and_go_on_with_it(tmp_path: Path) -> None:
    assert main(["--out", str(tmp_path), "--keys", "20000", "--runs", "1", "--partitions", "3"]) == 0
    machine, ours, theirs = read_lines(tmp_path / "record_index.jsonl")
    assert machine["kind"] == "machine"
    assert (ours["writer"], theirs["writer"]) == ("tagstream", "hudi-spark")
    for line in (ours, theirs):
        assert line["right"] is True
        assert line["index_bytes"] > 100_000
