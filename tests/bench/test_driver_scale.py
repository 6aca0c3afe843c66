"""The driver's steps over a simulated table: the table is one, every step is measured, nothing is left changed."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from bench import driver_scale
from bench.inputs.driver_table import SMALL_BYTES, log_block, make_table
from tagstream.table.file_group.log_file import scan_log_file
from tests.support.stored import stored

GROUPS, LOGS, BATCHES = 50, 2, 5


def files(folder: Path) -> set[str]:
    return {os.path.join(at, name) for at, _, names in os.walk(folder) for name in names}


def test_the_simulated_table_has_the_slices_and_commits_asked_for(tmp_path: Path) -> None:
    made = make_table(tmp_path / "t", GROUPS, 5, LOGS, instants=4, small_share=0.2, batches=BATCHES)
    view = made.table.view()
    slices = [s for p in view.partitions() for s in view.latest_merged_slices(p)]
    assert len(slices) == len({s.file_id for s in slices}) == GROUPS
    assert all(s.base_file is not None and len(s.log_files) == LOGS for s in slices)
    assert sum(s.base_file is not None and s.base_file.size == SMALL_BYTES for s in slices) == GROUPS // 5
    assert [i.time for i in view.timeline.completed_writes] == made.instants
    (tmp_path / "x.log").write_bytes(log_block(made.instants[-1]))
    assert [b.instant for b in scan_log_file(*stored(tmp_path / "x.log"))] == [made.instants[-1]]


@pytest.mark.extended("runs the benchmarks' programs")
def test_every_step_is_measured_and_the_table_stays_as_it_was(tmp_path: Path) -> None:
    args = argparse.Namespace(per_partition=10, logs=LOGS, small=0.1, touched=[7, 10 * GROUPS], runs=2)
    lines = driver_scale.measure_table(tmp_path, GROUPS, 4, 3, args)
    assert {line["run"] for line in lines} == {1, 2}
    assert {line["file_groups"] for line in lines} == {GROUPS}
    assert {line.get("touched") for line in lines} == {None, 7}  # a batch cannot touch more than there are
    steps = {(line["when"], line["step"]): line for line in lines}
    assert len(steps) == 26
    assert all(line["seconds"] > 0 for line in lines)
    for line in lines:
        if line["step"] == "pin the write profile":
            assert line["small_file_groups"] in (GROUPS // 10, GROUPS)
            assert 300 < line["bytes"] < 8_000
    assert steps["batch", "write commit metadata as JSON"]["bytes"] > 7 * 500
    names = files(tmp_path / "table")
    assert len([n for n in names if ".log." in n]) == GROUPS * LOGS
    assert not [n for n in names if n.endswith((".marker.APPEND", ".staged"))]
    assert len([n for n in names if n.endswith(".deltacommit")]) == 3
    assert driver_scale.as_table(lines).row_count == len(
        {(x["step"], x["when"], x.get("touched"), x.get("small_file_groups")) for x in lines}
    )


def test_one_size_grows_at_a_time() -> None:
    assert list(driver_scale.sizes([1, 2], [8, 16], [30, 60])) == [(1, 8, 30), (2, 8, 30), (1, 16, 30), (1, 8, 60)]
