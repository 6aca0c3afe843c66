"""SIGKILL of the whole job at random moments of a run of many batches."""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path

import pytest

from tests.drills.stream_job import DEADLINE_S, StreamJob, chunks_of
from tests.support.events import Mix, generate
from tests.support.process import Process, wait_for

PER_BATCH = 100


@pytest.mark.parametrize(
    ("table_type", "kills"),
    [
        ("COPY_ON_WRITE", 3),
        pytest.param("MERGE_ON_READ", 20, marks=pytest.mark.drill),
        pytest.param("COPY_ON_WRITE", 20, marks=pytest.mark.drill),
    ],
)
def test_kills_at_random_times_lose_and_double_nothing(tmp_path: Path, table_type: str, kills: int) -> None:
    rng = random.Random(kills)
    batches = 3 * kills + 8
    job = StreamJob(
        tmp_path, table_type, chunks_of(list(generate(batches * PER_BATCH, Mix(keys=90), seed=11)), PER_BATCH)
    )
    job.write_input()
    hits = 0
    for _ in range(kills):
        job.check()
        with job.start() as process:
            # Wait for one more commit, so that the run as a whole moves on, then kill somewhere in the next batches.
            wait_for(partial(moved_on, job, process, len(job.commits())), DEADLINE_S, "a commit")
            time.sleep(rng.random() * 1.5)  # the moment of the kill is the point here, nothing is synchronised by it
            hits += process.returncode is None
            process.kill()
        job.check()
    job.finish()
    assert job.check() == batches
    assert hits == kills, f"only {hits} of {kills} kills met a running job"


def moved_on(job: StreamJob, process: Process, before: int) -> bool:
    """A batch more than before is committed, or the job has ended."""
    return len(job.commits()) > before or process.returncode is not None
