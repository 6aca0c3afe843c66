"""A disk that is full while a batch is written: the job ends and says so; with room again, a restart loses nothing."""

from __future__ import annotations

from itertools import islice

import pytest

from tests.drills.conftest import NewDrill, NewJob
from tests.drills.stream_job import DEADLINE_S, error_line
from tests.support.events import Mix, generate
from tests.support.small_disk import SmallDisk

CHUNK = 400
LEFT = (0, 8 << 10, 24 << 10)  # bytes: it is full at the first write, or some steps later
FULL = ("a disk is full", "No space left on device")


@pytest.mark.drill
@pytest.mark.parametrize(
    ("table_type", "disk"),
    [
        ("MERGE_ON_READ", "table"),
        ("COPY_ON_WRITE", "table"),
        ("COPY_ON_WRITE", "checkpoint"),
        ("MERGE_ON_READ", "local"),
    ],
)
def test_a_full_disk_ends_the_job_and_loses_nothing(
    table_type: str, disk: str, new_drill: NewDrill, new_job: NewJob
) -> None:
    events = generate((1 + len(LEFT)) * CHUNK + len(LEFT) * 20, Mix(keys=900, partitions=40), seed=61)
    with new_drill(f"disk full: {disk}", table_type, len(LEFT)) as drill:
        job = new_job(table_type, 100_000)
        with SmallDisk(job.folder / disk) as small:
            job.produce(islice(events, CHUNK))
            job.finish()
            for left in LEFT:
                with job.start("--continuous", "--min-sync-interval-seconds", "0") as process:
                    job.produce(islice(events, 20))
                    process.wait_for(job.all_taken, DEADLINE_S, "a batch while there is room")
                    if disk == "local":  # a store that is there gets by with the room that old files leave
                        small.clear()
                    small.fill(left)
                    job.produce(islice(events, CHUNK))
                    drill.injected += 1
                    message = error_line(process, process.wait(DEADLINE_S))
                    assert any(text in message for text in FULL), message
                drill.compare(job)
                small.make_room()
                job.finish()
                assert job.all_taken()
                drill.compare(job)
