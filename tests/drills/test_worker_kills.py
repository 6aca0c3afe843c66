"""SIGKILL of Python workers in the middle of batches: Spark tries their tasks again, and nothing is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from table.hoodie_table import HoodieTable
from table.validate import validate
from tests.drills.stream_job import DEADLINE_S, StreamJob, chunks_of
from tests.support.events import Mix, generate
from tests.support.process import session_members

PER_BATCH = 3000
KILLS = 6


def workers(session: int) -> list[int]:
    """Python workers of a job: the forks of Spark's daemon (same command line, the daemon as parent)."""
    found = {}
    for pid in session_members(session):
        with suppress(OSError):
            if b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return [pid for pid, parent in found.items() if parent in found]


@pytest.mark.drill
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_killed_workers_are_replaced_and_their_tasks_done_once(tmp_path: Path, table_type: str) -> None:
    rng = random.Random(3)
    events = list(generate(14 * PER_BATCH, Mix(keys=2000), seed=17))
    job = StreamJob(tmp_path, table_type, chunks_of(events, PER_BATCH))
    job.write_input()
    kills = 0
    with job.start() as process:
        process.wait_for(lambda: bool(workers(process.pid)), DEADLINE_S, "a worker")
        while process.returncode is None:
            if kills < KILLS and (alive := workers(process.pid)):
                with suppress(ProcessLookupError):
                    os.kill(rng.choice(alive), signal.SIGKILL)
                    kills += 1
            time.sleep(rng.uniform(0.5, 2.5))  # random moments; a task may fail three times, not four
        assert process.returncode == 0, process.output()[-4000:]
    assert kills == KILLS
    assert job.check() == 14
    assert validate(HoodieTable.open(str(job.table))) == []
