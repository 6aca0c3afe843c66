"""The clock jumps back, between runs and between batches: instants still rise, and no event is lost."""

from __future__ import annotations

import signal
from itertools import islice, pairwise
from pathlib import Path

import pytest

from tests.drills.conftest import NewDrill, NewJob
from tests.drills.stream_job import DEADLINE_S
from tests.support.events import Mix, generate

CHUNK = 100
HOUR_MS = 3_600_000
OFFSETS_MS = (0, -1, -HOUR_MS, 5 * HOUR_MS, 4 * HOUR_MS, -30 * 24 * HOUR_MS, -40 * 24 * HOUR_MS)


def set_clock(file: Path, offset_ms: int) -> None:
    """Whole or not at all: the job reads the file at any time."""
    new = file.with_suffix(".new")
    new.write_text(str(offset_ms))
    new.replace(file)


@pytest.mark.drill
def test_a_clock_that_is_set_back_changes_nothing(new_drill: NewDrill, new_job: NewJob) -> None:
    table_type = "COPY_ON_WRITE"
    events = generate(2 * len(OFFSETS_MS) * CHUNK, Mix(keys=200), seed=41)
    back = sum(later < earlier for earlier, later in pairwise(OFFSETS_MS))
    with new_drill("clock set back between batches and runs", table_type, 2 * back) as drill:
        job = new_job(table_type, CHUNK)
        clock = job.folder / "offset"
        set_clock(clock, 0)
        # Between batches of one run ...
        with job.start(
            "--continuous", "--min-sync-interval-seconds", "0", TAGSTREAM_CLOCK_OFFSET_MS=str(clock)
        ) as process:
            for before, offset in zip((0, *OFFSETS_MS), OFFSETS_MS, strict=False):
                set_clock(clock, offset)
                drill.injected += offset < before
                job.produce(islice(events, CHUNK))
                process.wait_for(job.all_taken, DEADLINE_S, f"the batch with the clock at {offset} ms")
                drill.compare(job)
            process.send(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0, process.output()[-4000:]
        # ... and from run to run.
        previous = OFFSETS_MS[-1]
        for offset in OFFSETS_MS:
            job.produce(islice(events, CHUNK))
            job.finish(TAGSTREAM_CLOCK_OFFSET_MS=str(offset))
            drill.injected += offset < previous
            previous = offset
            assert job.all_taken()
            drill.compare(job)
        order = [commit["end_offsets"][job.topic] for commit in job.commits()]  # in the order of the instants
        reached = [sum(offsets.values()) for offsets in order]
        assert reached == sorted(reached)
