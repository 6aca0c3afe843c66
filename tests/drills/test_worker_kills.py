"""SIGKILL of Python workers in the middle of batches: Spark tries their tasks again, and nothing is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tests.drills.conftest import NewDrill, NewJob
from tests.drills.stream_job import DEADLINE_S
from tests.support.events import Mix, generate
from tests.support.spark_processes import python_workers

PER_BATCH = 3000
KILLS = 10


@pytest.mark.drill
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_killed_workers_are_replaced_and_their_tasks_done_once(
    table_type: str, new_drill: NewDrill, new_job: NewJob
) -> None:
    rng = random.Random(3)
    with new_drill("SIGKILL of Python workers", table_type, KILLS) as drill:
        job = new_job(table_type, PER_BATCH)
        job.produce(generate(20 * PER_BATCH, Mix(keys=2000, tombstones=0.02), seed=17))
        job.conf["hoodie.parquet.max.file.size"] = "4194304"  # the usual few files: many rows here
        with job.start() as process:
            process.wait_for(lambda: bool(python_workers(process.pid)), DEADLINE_S, "a worker")
            killed_at = -1
            while process.returncode is None:
                # One kill a batch: a task may fail three times, not four.
                if drill.injected < KILLS and job.batches() > killed_at and (alive := python_workers(process.pid)):
                    time.sleep(rng.uniform(0, 1.0))  # a random moment of the batch
                    with suppress(ProcessLookupError):
                        os.kill(rng.choice(alive), signal.SIGKILL)
                        drill.injected += 1
                        killed_at = job.batches()
                time.sleep(0.02)
            assert process.returncode == 0, process.output()[-4000:]
        assert job.all_taken()
        drill.compare(job)
        assert validate(HoodieTable.open(str(job.table))) == []
