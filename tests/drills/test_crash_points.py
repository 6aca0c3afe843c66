"""SIGKILL at every named step of the commit protocol; after each, and at the end, the table is the oracle's."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming.crash import CRASH_POINTS
from tests.drills.stream_job import DEADLINE_S, StreamJob, chunks_of
from tests.support.events import Mix, generate

PER_BATCH = 150


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", pytest.param("COPY_ON_WRITE", marks=pytest.mark.drill)])
def test_a_kill_at_every_step_loses_and_doubles_nothing(tmp_path: Path, table_type: str) -> None:
    count = len(CRASH_POINTS) + 2
    events = list(generate(count * PER_BATCH, Mix(keys=120), seed=7))
    job = StreamJob(tmp_path, table_type, chunks_of(events, PER_BATCH))
    job.write_input()
    for batch, point in enumerate(CRASH_POINTS, start=1):
        with job.start(crash=f"{point}@{batch}") as process:
            code = process.wait(DEADLINE_S)
            assert code == -9, f"{point}: ended with {code}\n{process.output()[-4000:]}"
        done = job.check()
        committed = CRASH_POINTS.index(point) >= CRASH_POINTS.index("completed")
        assert done == batch + committed, f"{point}: {done} batches committed"
    job.finish()
    assert job.check() == count
