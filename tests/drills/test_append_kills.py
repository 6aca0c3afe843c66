"""SIGKILL of jobs that append (INSERT, BULK_INSERT) at the steps of a commit: a replay makes no second row.

Keys are unique, so that every record that is lost or appended twice is a difference between the table and the input.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.drills.conftest import NewDrill
from tests.drills.steps import conf, kill_with_all_input, points
from tests.drills.stream_job import StreamJob, chunks_of
from tests.support import events as ev

OPERATIONS = ("INSERT", "BULK_INSERT")
TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")
PER_FILE = 120
FEW = ("state_committed", "files_published", "completed", "commit_log")
# Each event has a key of its own; a delete appends nothing.
MIX = ev.Mix(keys=1_000_000_000, partitions=3)
# Rows that are sorted stay in files of the tasks.
SORTED = {("BULK_INSERT", "COPY_ON_WRITE"): {"hoodie.bulkinsert.sort.mode": "GLOBAL_SORT"}}
# A file of a partition is full after two batches, so that small files and new ones get rows.
SIZES = {"hoodie.parquet.max.file.size": "20000", "hoodie.copyonwrite.record.size.estimate": "250"}


def new_job(folder: Path, operation: str, table_type: str, files: int, more: dict[str, str]) -> StreamJob:
    events = list(ev.generate(files * PER_FILE, MIX, seed=31))
    assert len({event.key for event in events}) == len(events)
    own = {"hoodie.datasource.write.operation": operation, **SIZES, **SORTED.get((operation, table_type), {}), **more}
    return StreamJob(folder, table_type, chunks_of(events, PER_FILE), conf=own)


def kill_at(steps: Sequence[str], job: StreamJob, new_drill: NewDrill) -> None:
    operation = job.conf["hoodie.datasource.write.operation"]
    with new_drill(f"SIGKILL at steps of a commit, {operation}", job.table_type, len(steps)) as drill:
        kill_with_all_input(steps, drill, job)
        assert drill.expected > len(steps) * PER_FILE // 2


@pytest.mark.extended("processes that are killed, a minute of starts")
@pytest.mark.parametrize(("operation", "table_type"), list(zip(OPERATIONS, TYPES, strict=True)))
def test_a_kill_at_four_steps(operation: str, table_type: str, tmp_path: Path, new_drill: NewDrill) -> None:
    kill_at(FEW, new_job(tmp_path, operation, table_type, len(FEW) + 2, {}), new_drill)


@pytest.mark.drill
@pytest.mark.table_versions(6, 9, also=(8,))
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_kill_at_every_step(
    version: int, operation: str, table_type: str, tmp_path: Path, new_drill: NewDrill
) -> None:
    steps = [point for point in points() if point != "delta_durable"]  # which is the stateful step's
    kill_at(steps, new_job(tmp_path, operation, table_type, len(steps) + 2, conf()), new_drill)
