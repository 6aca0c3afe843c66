"""A short soak, start to end: a topic fed at a steady rate, the job beside it, the table right at the end."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bench.soak import soak


@pytest.mark.drill
@pytest.mark.spark
@pytest.mark.kafka
def test_a_short_soak_ends_with_the_right_rows(tmp_path: Path) -> None:
    args = argparse.Namespace(
        minutes=0.2, rate=2_000.0, keys=5_000, partitions=4, table_type="MERGE_ON_READ", master="local[2,4]",
        every=2.0, seed=7, run=1, conf=[],
    )  # fmt: skip
    *samples, end = soak(args, tmp_path)
    assert end["right"], end
    assert end["records"] == samples[-1]["produced"] or end["records"] > samples[-1]["produced"]
    assert all(s["lag"] >= 0 and s["mib"]["jvm"] > 50 and s["mib"]["workers"] > 10 for s in samples)
    assert end["batches"] >= 1
