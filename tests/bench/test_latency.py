"""The steps of a batch out of Spark's event log and what the batch's progress says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench.latency import as_table, read_stages, steps_of


def job(batch: int | None, *stages: int) -> str:
    properties = {} if batch is None else {"streaming.sql.batchId": str(batch)}
    return json.dumps({"Event": "SparkListenerJobStart", "Stage IDs": stages, "Properties": properties})


def stage(number: int, began: int, ended: int) -> str:
    info = {"Stage ID": number, "Submission Time": began, "Completion Time": ended}
    return json.dumps({"Event": "SparkListenerStageCompleted", "Stage Info": info})


LOG = [
    job(None, 1), stage(1, 0, 5000),  # the load of the index is no batch's
    job(0, 2, 3, 4), stage(2, 6000, 6100), stage(3, 6110, 6310), stage(4, 6320, 6400),
    json.dumps({"Event": "SparkListenerTaskEnd"}),
    job(1, 5, 6, 7), stage(5, 8000, 8020), stage(6, 8030, 8040),
    job(2, 8), stage(8, 9000, 9010),
]  # fmt: skip
AROUND = "around the stages (plan, schedule, collect, writing in the driver)"
BATCH: dict[str, Any] = {
    "batch": 0, "seconds": 1.0, "keys": 5, "table_type": "MERGE_ON_READ",
    "phases": {"latestOffset": 0.02, "walCommit": 0.03, "getBatch": 0.01, "queryPlanning": 0.04, "check": 0.01,
               "prepare": 0.02, "tasks": 0.5, "commit": 0.05, "addBatch, the rest": 0.1, "commitOffsets": 0.06},
}  # fmt: skip


def test_stages_belong_to_the_batch_whose_job_ran_them() -> None:
    found = read_stages(LOG)
    assert sorted(found) == [0, 1, 2]
    assert (found[0].began, found[0].ended) == ([6000, 6110, 6320], [6100, 6310, 6400])


def test_steps_add_up_to_the_batch() -> None:
    steps = steps_of(BATCH, read_stages(LOG)[0])
    assert sum(steps.values()) == pytest.approx(1.0)
    assert steps["plan the batch"] == pytest.approx(0.05)
    assert steps["stage: tag"] == pytest.approx(0.2)
    assert steps[AROUND] == pytest.approx(0.12)
    assert steps["the rest of the trigger"] == pytest.approx(0.16)
    assert len(as_table([BATCH | {"steps": steps}]).rows) == len(steps)


def test_the_driver_writes_a_small_batch_itself() -> None:
    steps = steps_of(BATCH | {"batch": 1}, read_stages(LOG)[1])
    assert "stage: write" not in steps
    assert steps[AROUND] == pytest.approx(0.47)
    assert sum(steps.values()) == pytest.approx(1.0)


def test_a_batch_with_other_stages_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="ran 1 stages"):
        steps_of(BATCH | {"batch": 2}, read_stages(LOG)[2])
