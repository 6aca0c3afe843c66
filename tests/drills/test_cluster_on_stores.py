"""A standalone cluster whose hosts share no folder: table, checkpoint and source on a store, everything else is shipped.

Each worker is on a machine of its own (:mod:`tests.support.machine`): there is no checkout there, no package, no folder of
the driver's or of another worker's. ``spark-submit`` brings the project (``--py-files``) and a Python with what it needs
(``--archives``). A local index of a host that is lost is lost with it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.drills.cluster_faults import kill_executor
from tests.drills.conftest import NewDrill, NewStoreJob
from tests.drills.report import Drill
from tests.drills.store_job import StoreJob
from tests.drills.stream_job import DEADLINE_S, chunks_of
from tests.drills.submitted import Submitted
from tests.support.cluster import Cluster
from tests.support.dist import build
from tests.support.environment import build_environment
from tests.support.events import Mix, generate
from tests.support.paths import ROOT
from tests.support.process import Process
from tests.support.spark_processes import executor_host

pytestmark = [pytest.mark.drill, pytest.mark.s3, pytest.mark.stores]
PER_BATCH = 120
CHUNKS = chunks_of(list(generate(16 * PER_BATCH, Mix(keys=400), seed=51)), PER_BATCH)
CONTINUOUS = ("--continuous", "--min-sync-interval-seconds", "0")
KEY_GROUPS = {str(label) for label in range(8)}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what ``spark-submit`` brings to the hosts."""
    folder = tmp_path_factory.mktemp("shipped")
    build(folder)
    build_environment(folder)
    return folder


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster", apart=True) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("store", "table_type"),
    [(store, kind) for store in ("s3", "hdfs") for kind in ("MERGE_ON_READ", "COPY_ON_WRITE")],
)
def test_executors_hosts_and_the_driver_are_lost(
    store: str, table_type: str, cluster: Cluster, shipped: Path, new_drill: NewDrill, new_store_job: NewStoreJob
) -> None:
    job = new_store_job(store, table_type, CHUNKS, source_too=True)
    run = Submitted(cluster, job, shipped)
    with new_drill(f"executors, hosts and driver lost, no shared folder, {store}", table_type, 6) as drill:
        with run.start(*CONTINUOUS) as process:
            run.batches(process, 2)
            share_nothing(cluster, job)
            drill.compare(job)
            for worker in (0, 1):
                run.begin_batch(process)
                kill_executor(cluster, process, worker)
                gone_on(run, process, drill)
            assert run.labels(0) | run.labels(1) == KEY_GROUPS

            run.begin_batch(process)
            cluster.lose(0)
            gone_on(run, process, drill)
            assert run.labels(1) == KEY_GROUPS, "each key group's index was restored on the host that is left"

            cluster.join()
            process.wait_for(lambda: bool(cluster.executors(2)), DEADLINE_S, "an executor on the new host")
            run.batches(process, 1)
            run.begin_batch(process)
            cluster.lose(1)
            gone_on(run, process, drill)
            assert run.labels(2) == KEY_GROUPS, "the new host has them all"

            run.begin_batch(process)
            process.kill()
            drill.injected += 1
        drill.compare(job)
        cluster.join()
        with run.start(*CONTINUOUS) as process:
            run.batches(process, 1)
            run.begin_batch(process)
            cluster.lose(2)
            gone_on(run, process, drill)
            assert run.labels(3) == KEY_GROUPS
            run.batches(process, 1)
            process.send(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0, process.output()[-4000:]
        assert job.all_taken()
        drill.compare(job)
        assert job.unnamed_files() == []


def gone_on(run: Submitted, process: Process, drill: Drill) -> None:
    """After a fault: the batch that it fell in is committed, and the table is right."""
    drill.injected += 1
    run.taken(process)
    drill.compare(run.job)


def share_nothing(cluster: Cluster, job: StoreJob) -> None:
    """The executors are on two hosts to Spark; no host has a folder of the driver's, of the store's or of the other."""
    executors = [cluster.executors(worker)[0] for worker in range(len(cluster.machines))]
    assert sorted(map(executor_host, executors)) == ["127.0.0.2", "127.0.0.3"]
    for machine in cluster.machines:
        assert machine.sees("/opt/spark/jars")
        for path in (ROOT, job.folder / "in", cluster.folder):
            assert path.exists()
            assert not machine.sees(path), f"{machine.root.name} has {path}"
        mark = machine.at("/tmp/mark")
        mark.touch()
        assert [other.sees("/tmp/mark") for other in cluster.machines] == [other is machine for other in cluster.machines]
        mark.unlink()
