"""The steps of a stream without Spark: its table is right, and its batches are those of the workload."""

from __future__ import annotations

import cProfile
from pathlib import Path

import pytest

from bench.inputs.workload import Workload
from bench.steps import measure
from bench.writers.verdict import judge
from tests.bench.comparing import case_of


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_the_steps_give_the_rows_of_the_workload(table_type: str, tmp_path: Path) -> None:
    case = case_of(tmp_path, Workload("mixed", 2_000, 300, 7, 3, 5), "tagstream:STATE", table_type)
    profile = cProfile.Profile()
    laps = measure(case, profile)
    assert len(laps.cpu) == len(laps.seconds) == 7
    assert all(cpu > 0 for cpu in laps.cpu)
    assert judge(case, 120).right
    profile.create_stats()
    assert any(name == "tag_records" for _, _, name in profile.stats)  # type: ignore[attr-defined]
