"""SIGKILL at every named step of ``tagstream services run``: beside a stream, two such processes at once, and alone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.compaction_worker import STALE_MS
from tagstream.table.steps import SERVICE_STEPS, WORKER_STEPS
from tagstream.table.timeline.instant import COMMIT
from tests.drills import test_service_kills as kills
from tests.drills.conftest import NewDrill, NewJob
from tests.drills.kafka_job import KafkaJob
from tests.drills.stream_job import DEADLINE_S
from tests.drills.test_service_kills import RECORD_INDEX, WITHOUT, check_healthy
from tests.support.events import Event, Mix, generate
from tests.support.process import DeadlineError, Process, wait_for

pytestmark = [pytest.mark.drill, pytest.mark.matrix]
PER_BATCH = 60
MIX = Mix(keys=150, tombstones=0.03)
CASES = {"version 6": ("6", WITHOUT), "version 9, metadata table": ("9", RECORD_INDEX)}
SMALL = kills.SMALL | {
    "hoodie.parquet.small.file.limit": "0"
}  # updates make logs, so that there is something to compact
ONLY_PLANS = SMALL | {"hoodie.compact.schedule.inline": "true"}
NONE = {
    "hoodie.parquet.small.file.limit": "0",
    "hoodie.compact.inline": "false",
    "hoodie.datasource.compaction.async.enable": "false",
    "hoodie.clean.automatic": "false",
    "hoodie.archive.automatic": "false",
}
# A dead process's place is free only then.
TAKEN_UP_S = STALE_MS / 1000 + DEADLINE_S


def services(job: KafkaJob, name: str, *more: str, crash: str = "") -> Process:
    """``tagstream services run`` on the job's table; ``crash``: the step it dies at."""
    log = job.folder / "log" / f"services-{name}.log"
    environment = {**os.environ, "TAGSTREAM_CRASH": crash, "TAGSTREAM_CRASH_NOTE": str(log.with_suffix(".note"))}
    program = [Path(sys.executable).with_name("tagstream"), "services", "run", "--target-base-path", str(job.table)]
    conf = [text for key, value in SMALL.items() for text in ("--hoodie-conf", f"{key}={value}")]
    flags = ["--poll-seconds", "0.2", "--processes", "1", *conf, *more]
    return Process([*program, *flags], log, cwd=job.folder, env=environment)


def dies(process: Process, point: str) -> None:
    """Wait until the process has died at its step."""
    code = process.wait(TAKEN_UP_S)
    assert code == -9, f"{point}: ended with {code}\n{process.output()[-4000:]}"
    assert process.log.with_suffix(".note").read_text() == f"{point}@*\n"


def feed_until_it_dies(job: KafkaJob, stream: Process, events: Iterator[Event]) -> None:
    """The stream plans after a batch: another one comes until it has come to its step."""
    for _ in range(12):
        try:
            assert stream.wait(30) == -9, stream.output()[-4000:]
        except DeadlineError:
            job.produce(islice(events, PER_BATCH))
        else:
            return
    raise AssertionError(stream.output()[-4000:])


def complete_plans(job: KafkaJob, version: str, name: str) -> None:
    """On version 6 hudi-rs passes over logs that came between a compaction's plan and its commit: it reads after that."""
    if version == "6":
        ends(services(job, name, "--once"))


def ends(process: Process) -> None:
    """Wait until the process has done what there is to do."""
    with process:
        assert process.wait(TAKEN_UP_S) == 0, process.output()[-4000:]


def compactions(job: KafkaJob) -> int:
    """The newest completed compaction's instant, as a number; 0 where there is none."""
    timeline = HoodieTable.open(str(job.table)).timeline()
    return max((int(i.time) for i in timeline.instants if i.is_completed and i.action == COMMIT), default=0)


@pytest.mark.parametrize("name", CASES)
def test_beside_a_stream_that_only_plans(name: str, new_drill: NewDrill, new_job: NewJob) -> None:
    version, more = CASES[name]
    with new_drill(f"services in a process of their own, beside a stream, {name}", "MERGE_ON_READ", 6) as drill:
        conf = ONLY_PLANS | more | {"hoodie.write.table.version": version}
        job = new_job("MERGE_ON_READ", PER_BATCH, conf=conf)
        events = generate(40 * PER_BATCH, MIX, seed=37)
        job.produce(islice(events, 2 * PER_BATCH))
        job.finish()  # a plan is on the timeline
        for number, point in enumerate(WORKER_STEPS):
            with job.start("--continuous") as stream:
                job.produce(islice(events, PER_BATCH))
                wait_for(job.all_taken, DEADLINE_S, "the stream")  # it holds the lease, and has planned
                with services(job, f"{number}-first", crash=f"{point}@*") as first:
                    dies(first, point)
                drill.injected += 1
                before = compactions(job)
                # Two others; one of them takes the dead one's place, and the stream goes on meanwhile.
                with services(job, f"{number}-second") as second, services(job, f"{number}-third") as third:
                    job.produce(islice(events, 2 * PER_BATCH))
                    wait_for(job.all_taken, DEADLINE_S, "the stream")
                    wait_for(lambda before=before: compactions(job) > before, TAKEN_UP_S, "the next compaction")
                    for process in (stream, second, third):
                        assert process.returncode is None, process.output()[-4000:]
            complete_plans(job, version, f"after {point}")  # the stream has planned once more, and may have gone on
            drill.compare(job)
        for point in ("compaction_inflight", "compaction_files", "compaction_published"):
            job.produce(islice(events, 2 * PER_BATCH))
            with job.start("--continuous", crash=f"{point}@*") as stream:
                # It may come to the step before its first batch, with what the process has handed in before.
                wait_for(lambda s=stream: job.all_taken() or s.returncode is not None, DEADLINE_S, "the stream")
                with services(job, f"while the job dies at {point}") as process:
                    feed_until_it_dies(job, stream, events)
                    assert process.returncode is None, process.output()[-4000:]
            drill.injected += 1
            complete_plans(job, version, f"after the job's death at {point}")
            drill.compare(job)
        end(job, drill)


@pytest.mark.parametrize("name", CASES)
def test_while_no_job_runs(name: str, new_drill: NewDrill, new_job: NewJob) -> None:
    version, more = CASES[name]
    points = [p for p in SERVICE_STEPS if not p.startswith("clustering_")]
    points = [p for p in points if "_metadata" not in p or more is RECORD_INDEX]
    with new_drill(f"services in a process of their own, alone, {name}", "MERGE_ON_READ", len(points)) as drill:
        job = new_job("MERGE_ON_READ", PER_BATCH, conf=NONE | more | {"hoodie.write.table.version": version})
        events = generate(4 * len(points) * PER_BATCH, MIX, seed=41)
        for point in points:
            job.produce(islice(events, 3 * PER_BATCH))
            job.finish()
            with services(job, point, "--once", crash=f"{point}@*") as process:
                dies(process, point)
            drill.injected += 1
            complete_plans(job, version, f"after {point}")
            drill.compare(job)
        end(job, drill)


def end(job: KafkaJob, drill: object) -> None:
    """The job takes what is left, one more process does what is due, and nothing is left of anything that was killed."""
    job.finish()
    ends(services(job, "last", "--once"))
    assert job.all_taken()
    drill.compare(job)  # type: ignore[attr-defined]
    check_healthy(job)
