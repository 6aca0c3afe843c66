"""A driver that stands still in a batch on S3 or HDFS, another that takes over and commits, and the first one wakes up.

At the named steps of a commit on both stores; and on S3 with each single change on its way: the request has left the job,
the network holds it, the whole job is stopped, and the server gets it when another job has long committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.drills.conftest import NewDrill, NewStoreJob
from tests.drills.report import Drill
from tests.drills.steps import PLAIN
from tests.drills.store_job import StoreJob
from tests.drills.stream_job import DEADLINE_S, chunks_of
from tests.drills.succession import LEASE_MS, WITHOUT_DELETES, is_told
from tests.support.events import generate
from tests.support.http_proxy import CHANGES, HOLD, PASS, HttpProxy, Request
from tests.support.s3_server import S3Server

pytestmark = [pytest.mark.drill, pytest.mark.s3, pytest.mark.stores]
CHUNK = 60
MIX = replace(WITHOUT_DELETES, keys=200, partitions=4)
STEPS = tuple(point for point in PLAIN if point not in ("completed", "commit_log"))
AHEAD = {"TAGSTREAM_CLOCK_OFFSET_MS": str(LEASE_MS + 1000)}
MOST_CHANGES = 400


@pytest.mark.parametrize(
    ("store", "table_type"),
    [("s3", "MERGE_ON_READ"), ("s3", "COPY_ON_WRITE"), ("hdfs", "MERGE_ON_READ"), ("hdfs", "COPY_ON_WRITE")],
)
def test_a_paused_driver_comes_back_too_late(
    store: str, table_type: str, new_drill: NewDrill, new_store_job: NewStoreJob
) -> None:
    chunks = chunks_of(list(generate((1 + 2 * len(STEPS)) * CHUNK, MIX, seed=33)), CHUNK)
    with new_drill(f"driver paused, succeeded, woken, {store}", table_type, len(STEPS)) as drill:
        job = new_store_job(store, table_type, chunks)
        job.write_input(0, 1)
        job.finish()
        for number, step in enumerate(STEPS):
            job.write_input(1 + 2 * number, 2 + 2 * number)
            with job.start(crash=f"{step}@{job.batches()}:pause") as old:
                old.wait_for(lambda old=old: old.stopped, DEADLINE_S, f"the stop at {step}")
                old.pause()
                job.finish(**AHEAD)
                old.resume()
                drill.injected += 1
                is_told(old)
            goes_on(job, drill, 2 + 2 * number)


@pytest.mark.parametrize(
    ("table_type", "begin", "step"),
    [
        ("MERGE_ON_READ", 3, 9),
        ("COPY_ON_WRITE", 6, 9),
        pytest.param("MERGE_ON_READ", 1, 2, marks=pytest.mark.matrix),
        pytest.param("COPY_ON_WRITE", 2, 2, marks=pytest.mark.matrix),
    ],
)
def test_a_change_that_reaches_the_store_long_after(
    table_type: str,
    begin: int,
    step: int,
    new_drill: NewDrill,
    new_store_job: NewStoreJob,
    proxy: HttpProxy,
    s3_server: S3Server,
) -> None:
    """The ``begin``th change of a run, the ``step``th after it and so on, until a run has no more."""
    events = generate((2 + 2 * MOST_CHANGES // step) * CHUNK, MIX, seed=34)
    with new_drill("a change held on its way to S3, the job stopped, succeeded, woken", table_type, 5) as drill:
        job = new_store_job("s3", table_type, chunks_of(list(events), CHUNK))
        direct = dict(job.settings)
        job.write_input(0, 1)
        job.finish()
        for number, change in enumerate(range(begin, MOST_CHANGES, step)):
            job.write_input(1 + 2 * number, 2 + 2 * number)
            proxy.reset()
            proxy.rule = nth_change(change)
            job.settings = s3_server.settings(proxy.url)
            with job.start() as old:
                old.wait_for(
                    lambda old=old: proxy.holds.is_set() or old.returncode == 0, DEADLINE_S, f"change {change}"
                )
                if not proxy.holds.is_set():
                    break
                old.pause()
                job.settings = direct
                job.finish(**AHEAD)
                proxy.let_go()
                old.resume()
                drill.injected += 1
                if old.wait(DEADLINE_S) != 0:  # held behind the end of its batch, it had nothing more to do
                    is_told(old)
            goes_on(job, drill, 2 + 2 * number)
        assert change < MOST_CHANGES - step, "a run has more changes than this drill tries"


def nth_change(number: int) -> Callable[[Request], str]:
    """Hold one change, by whichever client, and let all else pass."""
    changes = [0]

    def rule(request: Request) -> str:
        changes[0] += request.kind in CHANGES
        return HOLD if request.kind in CHANGES and changes[0] == number else PASS

    return rule


def goes_on(job: StoreJob, drill: Drill, file: int) -> None:
    """The table is right, and still so after one file more, from a checkpoint that both drivers wrote to."""
    drill.compare(job)
    job.write_input(file, file + 1)
    job.finish()
    assert job.all_taken()
    drill.compare(job)
    assert job.unnamed_files() == []
