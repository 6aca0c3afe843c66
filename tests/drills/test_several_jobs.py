"""Several jobs write to one table with the same keys, and are killed at random: the rows are those of all their events.

Each job has its own source, checkpoint and process. Each key's events are spread over the jobs at random. The ordering
field decides which one is the newest, so the result does not depend on which job was faster.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.drills.conftest import NewDrill
from tests.drills.stream_job import DEADLINE_S, Outcome, StreamJob
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table
from tests.support.process import Process

LOCK = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "FileSystemBasedLockProvider",
    "hoodie.write.lock.filesystem.expire": "1",  # a killed holder leaves the file behind
    "hoodie.write.lock.wait_time_ms": "1",
    "hoodie.write.lock.client.num_retries": "2000",
    "hoodie.write.lock.client.wait_time_ms_between_retry": "50",
}
V9 = {"hoodie.write.table.version": "9", "hoodie.metadata.enable": "true"}
PER_FILE = 25
MIX = ev.Mix(keys=150, partitions=4, equal_ordering=0.0, deletes=0.1, late_deletes=0.05)


@dataclass
class OneOfSeveral(StreamJob):
    """A job whose table is in the folder of all jobs."""

    @property
    def table(self) -> Path:
        return self.folder.parent / "table"


def jobs_of(
    folder: Path, table_type: str, conf: dict[str, str], events: Sequence[ev.Event], count: int
) -> list[StreamJob]:
    """``count`` jobs with all of their input. Each event is in the source of one of them."""
    rng = random.Random(count)
    parts: list[list[ev.Event]] = [[] for _ in range(count)]
    for event in events:
        parts[rng.randrange(count)].append(event)
    jobs: list[StreamJob] = []
    for number, part in enumerate(parts):
        chunks = [part[at : at + PER_FILE] for at in range(0, len(part), PER_FILE)]
        own = {**LOCK, **conf, "hoodie.datasource.write.streaming.checkpoint.identifier": f"job {number}"}
        job = OneOfSeveral(folder / f"job-{number}", table_type, conf=own, chunks=chunks)
        job.write_input()
        jobs.append(job)
    return jobs


def compared(table: Path, events: Sequence[ev.Event]) -> Outcome:
    """The table, read by hudi-rs, and the oracle of all events."""
    expected = ev.rows(ev.oracle(sorted(events, key=lambda event: event.ordering or 0)).values())
    found = read_table(table, meta_columns=False)
    opened = HoodieTable.open(str(table))
    assert not (wrong := validate(opened)), wrong
    if opened.config.metadata_partitions:
        assert not (wrong := validate_metadata(opened)), wrong
    return Outcome(expected.num_rows, found.num_rows, compare(expected, found, ["id"]))


def _has_committed(process: Process) -> bool:
    """Whether this run has committed a batch."""
    return "INFO tagstream: batch " in process.output()


@pytest.mark.drill
@pytest.mark.parametrize(
    ("table_type", "conf", "count", "kills"),
    [
        ("COPY_ON_WRITE", {}, 2, 10),
        ("MERGE_ON_READ", {}, 2, 10),
        ("MERGE_ON_READ", V9, 4, 10),
        ("COPY_ON_WRITE", V9, 4, 10),
    ],
    ids=["two-cow-6", "two-mor-6", "four-mor-9", "four-cow-9"],
)
def test_kills_of_jobs_that_share_keys(
    tmp_path: Path, new_drill: NewDrill, table_type: str, conf: dict[str, str], count: int, kills: int
) -> None:
    rng = random.Random(kills)
    events = list(ev.generate(4 * kills * PER_FILE * 2, MIX, seed=count))
    with new_drill(f"SIGKILL of one of {count} jobs that share keys", table_type, kills) as drill:
        jobs = jobs_of(tmp_path, table_type, conf, events, count)
        running: dict[int, Process] = {}
        ended: set[int] = set()
        kill_at: float | None = None
        victim = 0
        try:
            until = time.monotonic() + DEADLINE_S * 5
            while len(ended) < count:
                assert time.monotonic() < until, "the jobs do not come to their end"
                for number, job in enumerate(jobs):
                    if number not in running and number not in ended:
                        running[number] = job.start().__enter__()
                for number, process in list(running.items()):
                    if (code := process.returncode) is not None:
                        assert code == 0, process.output()[-6000:]
                        running.pop(number).__exit__(None, None, None)
                        ended.add(number)
                if drill.injected < kills and kill_at is None:
                    ready = [number for number, process in running.items() if _has_committed(process)]
                    if ready:
                        victim, kill_at = rng.choice(ready), time.monotonic() + rng.random() * 3
                if kill_at is not None and time.monotonic() >= kill_at:
                    kill_at = None
                    if victim in running:
                        process = running.pop(victim)
                        process.kill()
                        process.__exit__(None, None, None)
                        drill.injected += 1
                time.sleep(0.05)  # a poll; the moment of a kill is random anyway
        finally:
            for process in running.values():
                process.kill()
                process.__exit__(None, None, None)
        drill.count(compared(jobs[0].table, events))
