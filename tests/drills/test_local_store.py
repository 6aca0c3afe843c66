"""The local stores are a cache: wiped, cut or locked by another process, between runs and between batches."""

from __future__ import annotations

import random
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from tests.drills.conftest import NewDrill, NewJob
from tests.drills.kafka_job import KafkaJob
from tests.drills.stream_job import DEADLINE_S, PROJECT
from tests.support.events import Mix, generate
from tests.support.process import Process

CHUNK = 150
HOLDER = """
import sys, signal
from tagstream.state.rocks_store import RocksStore
store = RocksStore(sys.argv[1])
print("held", flush=True)
signal.pause()
"""


def wipe(job: KafkaJob, rng: random.Random) -> None:
    """Everything gone."""
    shutil.rmtree(job.local)


def cut(job: KafkaJob, rng: random.Random) -> None:
    """Every file of every store cut somewhere."""
    for path in stores(job):
        for file in (p for p in path.iterdir() if p.is_file() and p.name != "LOCK"):
            with file.open("r+b") as f:
                f.truncate(rng.randrange(file.stat().st_size + 1))


def scramble(job: KafkaJob, rng: random.Random) -> None:
    """A block of zeros in the middle of every table file."""
    for path in stores(job):
        for file in path.glob("*.sst"):
            with file.open("r+b") as f:
                f.seek(file.stat().st_size // 3)
                f.write(bytes(file.stat().st_size // 3))


def stores(job: KafkaJob) -> list[Path]:
    """The folders of the local stores."""
    found = sorted(path.parent for path in job.local.rglob("CURRENT"))
    assert found, f"no store under {job.local}"
    return found


@pytest.mark.drill
@pytest.mark.parametrize(
    ("table_type", "harms"),
    [
        ("MERGE_ON_READ", (wipe, cut, scramble)),
        ("COPY_ON_WRITE", (wipe, cut, scramble)),
    ],
)
def test_a_damaged_local_store_is_built_again(
    table_type: str, harms: tuple[Callable[[KafkaJob, random.Random], None], ...], new_drill: NewDrill, new_job: NewJob
) -> None:
    rng = random.Random(5)
    events = generate((1 + 2 * len(harms)) * CHUNK, Mix(keys=200, tombstones=0.02), seed=51)
    with new_drill("local stores wiped, cut, scrambled", table_type, 2 * len(harms)) as drill:
        job = new_job(table_type, 100_000)
        job.produce(islice(events, CHUNK))
        job.finish()
        with job.start("--continuous", "--min-sync-interval-seconds", "0") as process:
            for harm in harms:  # between batches
                harm(job, rng)
                drill.injected += 1
                job.produce(islice(events, CHUNK))
                process.wait_for(job.all_taken, DEADLINE_S, f"the batch after {harm.__name__}")
                drill.compare(job)
            process.send(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0, process.output()[-4000:]
        for harm in harms:  # between runs
            harm(job, rng)
            drill.injected += 1
            job.produce(islice(events, CHUNK))
            job.finish()
            assert job.all_taken()
            drill.compare(job)


@pytest.mark.drill
def test_a_locked_local_store_is_left_alone(new_drill: NewDrill, new_job: NewJob) -> None:
    table_type = "COPY_ON_WRITE"
    events = generate(4 * CHUNK, Mix(keys=200, tombstones=0.02), seed=53)
    with new_drill("local store locked by a live process", table_type, 2) as drill:
        job = new_job(table_type, 100_000)
        job.produce(islice(events, CHUNK))
        job.finish()
        for _ in range(2):
            first = stores(job)[0]
            command = [sys.executable, "-c", HOLDER, str(first)]
            with Process(command, job.folder / "log" / "holder.log", cwd=PROJECT) as holder:
                holder.wait_for(lambda: holder.output().endswith("held\n"), 60, "the lock")
                drill.injected += 1
                job.produce(islice(events, CHUNK))
                job.finish()
                assert holder.returncode is None
                assert job.all_taken()
                drill.compare(job)
            (job.folder / "log" / "holder.log").unlink()
        job.produce(islice(events, CHUNK))
        job.finish()
        assert job.all_taken()
        drill.compare(job)
