"""SIGKILL of the whole job at random moments of a run of many batches."""

from __future__ import annotations

import random
import time

import pytest

from tests.drills.conftest import NewDrill, NewJob
from tests.drills.kafka_job import KafkaJob
from tests.drills.stream_job import DEADLINE_S
from tests.support.events import Mix, generate
from tests.support.process import Process, wait_for

PER_BATCH = 100


@pytest.mark.extended("processes that are killed, paused or ended; a minute of starts")
@pytest.mark.parametrize(
    ("table_type", "kills"),
    [
        pytest.param("MERGE_ON_READ", 10, marks=pytest.mark.drill),
        pytest.param("COPY_ON_WRITE", 10, marks=pytest.mark.drill),
    ],
)
def test_kills_at_random_times_lose_and_double_nothing(
    table_type: str, kills: int, new_drill: NewDrill, new_job: NewJob
) -> None:
    rng = random.Random(kills)
    with new_drill("SIGKILL of the driver at random", table_type, kills) as drill:
        job = new_job(table_type, PER_BATCH)
        job.produce(generate((4 * kills + 8) * PER_BATCH, Mix(keys=400, tombstones=0.02), seed=11))
        while drill.injected < kills:
            before = job.batches()
            with job.start() as process:
                # Wait for one more commit, so that the run as a whole moves on, then kill somewhere in the next batches.
                wait_for(lambda: moved_on(job, process, before), DEADLINE_S, "a commit")  # noqa: B023
                time.sleep(
                    rng.random() * 1.5
                )  # the moment of the kill is the point here, nothing is synchronised by it
                assert process.returncode is None, f"no batch was left to kill after {drill.injected} kills"
                process.kill()
            drill.injected += 1
            job.committed()
            drill.compare(job)
        job.finish()
        assert job.all_taken()
        drill.compare(job)


def moved_on(job: KafkaJob, process: Process, before: int) -> bool:
    """A batch more than before is committed, or the job has ended."""
    return job.batches() > before or process.returncode is not None
