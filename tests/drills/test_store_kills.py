"""SIGKILL at every named step of a commit to a table on S3 and on HDFS, alone and in pairs.

As in :mod:`tests.drills.test_crash_points`, with table and checkpoint on a real server. At the end there is no data file
that no commit names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.drills.conftest import NewDrill, NewStoreJob
from tests.drills.report import Drill
from tests.drills.steps import PLAIN, batches_of, conf, kill_at_each, kill_in_turn, pair_circuit, points
from tests.drills.store_job import StoreJob
from tests.drills.stream_job import CountedJob, chunks_of
from tests.support.events import Mix, generate

pytestmark = [pytest.mark.drill, pytest.mark.s3, pytest.mark.stores]
PER_BATCH = 80
MIX = Mix(keys=300)


def killed(
    drill: Drill, job: StoreJob, points: Sequence[str], kill: Callable[[Sequence[str], Drill, CountedJob], None]
) -> None:
    job.write_input()
    kill(points, drill, job)
    assert job.unnamed_files() == []


@pytest.mark.parametrize(
    ("version", "store", "table_type"),
    [
        (6, "s3", "COPY_ON_WRITE"),
        (9, "s3", "MERGE_ON_READ"),
        (6, "hdfs", "MERGE_ON_READ"),
        (9, "hdfs", "COPY_ON_WRITE"),
    ],
    indirect=["version"],
)
def test_a_kill_at_every_step(
    version: int, store: str, table_type: str, new_drill: NewDrill, new_store_job: NewStoreJob
) -> None:
    at = points()
    events = list(generate((len(at) + 2) * PER_BATCH, MIX, seed=7))
    with new_drill(f"SIGKILL at each step of a commit, {store}, version {version}", table_type, len(at)) as drill:
        job = new_store_job(store, table_type, chunks_of(events, PER_BATCH), conf=conf())
        killed(drill, job, at, kill_at_each)


@pytest.mark.matrix
@pytest.mark.parametrize(("store", "table_type"), [("s3", "MERGE_ON_READ"), ("hdfs", "COPY_ON_WRITE")])
def test_a_second_kill_in_the_recovery(
    store: str, table_type: str, new_drill: NewDrill, new_store_job: NewStoreJob
) -> None:
    circuit = pair_circuit(PLAIN)
    events = list(generate(batches_of(circuit) * PER_BATCH, MIX, seed=23))
    what = f"SIGKILL at each pair of steps, the second in the recovery, {store}"
    with new_drill(what, table_type, len(circuit)) as drill:
        job = new_store_job(store, table_type, chunks_of(events, PER_BATCH), conf=conf())
        killed(drill, job, circuit, kill_in_turn)
