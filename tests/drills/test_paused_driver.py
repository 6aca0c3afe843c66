"""A driver that stands still in the middle of a batch, a second one that takes over, and the first one that wakes up."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Sequence
from itertools import islice

import pytest

from tests.drills.conftest import NewDrill, NewJob
from tests.drills.kafka_job import KafkaJob
from tests.drills.stream_job import DEADLINE_S
from tests.drills.succession import LEASE_MS, MIX, WITHOUT_DELETES, is_told
from tests.support.events import Event, generate
from tests.support.process import wait_for

CHUNK = 150
STEPS = ("files_written", "files_published", "manifest_durable")
BEFORE_FILES = ("profile_pinned", "requested", "inflight", "delta_durable", "state_committed")


@pytest.mark.drill
@pytest.mark.parametrize(
    ("table_type", "steps", "in_real_time"),
    [
        ("MERGE_ON_READ", STEPS * 2, True),
        ("COPY_ON_WRITE", STEPS, False),
    ],
)
def test_a_paused_driver_comes_back_too_late(
    table_type: str, steps: Sequence[str], in_real_time: bool, new_drill: NewDrill, new_job: NewJob
) -> None:
    events = generate((2 + len(steps)) * CHUNK + 2 * len(steps), MIX, seed=31)
    with new_drill("driver paused, succeeded, woken", table_type, len(steps)) as drill:
        job = new_job(table_type, 100_000)
        job.produce(islice(events, CHUNK))
        job.finish()
        for number, step in enumerate(steps):
            # One event each after the batch that both drivers run: most key groups keep what that one left behind.
            chunks = [list(islice(events, size)) for size in (CHUNK, 1, 1)]
            succeed(job, step, chunks, wait_out=in_real_time and number == 0)
            drill.injected += 1
            drill.compare(job)
        job.produce(islice(events, CHUNK))
        job.finish()  # from what the checkpoint holds after both drivers wrote to it
        assert job.all_taken()
        drill.compare(job)


@pytest.mark.drill
@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_a_driver_that_stood_still_before_its_files_wakes_up_alone(
    table_type: str, new_drill: NewDrill, new_job: NewJob
) -> None:
    """The next start reads Spark's state from the files of the checkpoint, which both drivers may have written."""
    events = generate((2 + len(BEFORE_FILES)) * CHUNK + 3 * len(BEFORE_FILES), WITHOUT_DELETES, seed=32)
    with new_drill("driver paused, succeeded, woken when all was over", table_type, len(BEFORE_FILES)) as drill:
        job = new_job(table_type, 100_000)
        job.produce(islice(events, CHUNK))
        job.finish()
        for step in BEFORE_FILES:
            chunks = [list(islice(events, size)) for size in (CHUNK, 1, 2)]
            succeed(job, step, chunks, wait_out=False, alone=True)
            drill.injected += 1
            job.finish()
            assert job.all_taken()
            drill.compare(job)
        job.produce(islice(events, CHUNK))
        job.finish()
        assert job.all_taken()
        drill.compare(job)


def succeed(job: KafkaJob, step: str, chunks: list[list[Event]], *, wait_out: bool, alone: bool = False) -> None:
    """Pause a driver at a step, let another one take over and go on, wake the first one up while the other works.

    ``wait_out``: the lease runs out in real time; else the successor's clock is ahead by its time to live. ``alone``: the
    successor ends before the first one wakes up, and the last chunk is left for a third.
    """
    job.produce(chunks[0])
    batch = job.batches()
    with job.start(crash=f"{step}@{batch}:pause") as old:
        old.wait_for(lambda: old.stopped, DEADLINE_S, f"the stop at {step}@{batch}")
        old.pause()
        ahead = 0 if wait_out else LEASE_MS + 1000
        if wait_out:
            refused = job.fails()
            assert "is being written by process" in refused and str(old.pid) in refused
            wait_for(lambda: lease_expiry(job) < time.time() * 1000, 2 * LEASE_MS / 1000, "the end of the lease")
        with job.start("--continuous", "--min-sync-interval-seconds", "0", TAGSTREAM_CLOCK_OFFSET_MS=str(ahead)) as new:
            new.wait_for(job.all_taken, DEADLINE_S, "the batch of the paused driver")
            job.produce(chunks[1])
            new.wait_for(job.all_taken, DEADLINE_S, "a batch of the successor's own")
            if not alone:
                old.resume()
                job.produce(chunks[2])
                new.wait_for(job.all_taken, DEADLINE_S, "a batch while the old driver is awake")
                is_told(old)
            new.send(signal.SIGTERM)
            assert new.wait(DEADLINE_S) == 0, new.output()[-4000:]
        if alone:
            old.resume()
            is_told(old)
            job.produce(chunks[2])


def lease_expiry(job: KafkaJob) -> int:
    """When the newest lease of the table runs out, epoch milliseconds."""
    paths = (job.table / ".hoodie").glob(".tagstream_lease.*")
    newest = max((p for p in paths if p.suffix[1:].isdigit()), key=lambda p: int(p.suffix[1:]))
    return int(json.loads(newest.read_text())["expires_ms"])
