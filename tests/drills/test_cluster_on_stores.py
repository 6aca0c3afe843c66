"""A standalone cluster whose hosts share no folder: table, checkpoint and source on a store, everything else is shipped.

Each worker is on a machine of its own (:mod:`tests.support.machine`): there is no checkout there, no package, no folder of
the driver's or of another worker's. ``spark-submit`` brings the project (``--py-files``) and a Python with what it needs
(``--archives``). A local index of a host that is lost is lost with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from getpass import getuser
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hdfs_native import Client

from tagstream.table.storage.opening import open_storage
from tests.drills.cluster_faults import kill_executor
from tests.drills.conftest import NewDrill, NewStoreJob
from tests.drills.report import Drill
from tests.drills.store_job import StoreJob
from tests.drills.stream_job import DEADLINE_S, chunks_of, error_line
from tests.drills.submitted import KEY_GROUPS, Submitted
from tests.support.cluster import Cluster
from tests.support.dist import build
from tests.support.environment import build_environment
from tests.support.events import Mix, generate
from tests.support.hudi_rs import read_table
from tests.support.paths import ROOT
from tests.support.process import Process
from tests.support.spark_processes import executor_host
from tests.support.stored import copy_down
from tests.test_readme import blocks, clone, run

__all__ = ["clone"]  # the fixture

pytestmark = [pytest.mark.drill, pytest.mark.s3, pytest.mark.stores]
PER_BATCH = 120
CHUNKS = chunks_of(list(generate(16 * PER_BATCH, Mix(keys=400), seed=51)), PER_BATCH)
USER = "lake"
CONTINUOUS = ("--continuous", "--min-sync-interval-seconds", "0")


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


@pytest.fixture(scope="module")
def unharmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster that tests share which break nothing of it."""
    with Cluster(tmp_path_factory.mktemp("unharmed") / "cluster", apart=True) as cluster:
        yield cluster


@pytest.mark.parametrize(
    ("store", "table_type"),
    [(store, kind) for store in ("s3", "hdfs") for kind in ("MERGE_ON_READ", "COPY_ON_WRITE")],
)
def test_executors_hosts_and_the_driver_are_lost(
    store: str,
    table_type: str,
    cluster: Cluster,
    shipped: Path,
    new_drill: NewDrill,
    new_store_job: NewStoreJob,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a copy-on-write table the driver's environment alone has the keys, or the user, for the store."""
    job = new_store_job(store, table_type, CHUNKS, source_too=True)
    if table_type == "COPY_ON_WRITE":
        keys_of_the_environment(job, monkeypatch)
    submitted = Submitted(cluster, job, shipped)
    with new_drill(f"executors, hosts and driver lost, no shared folder, {store}", table_type, 6) as drill:
        with submitted.start(*CONTINUOUS) as process:
            submitted.batches(process, 2)
            share_nothing(cluster, job)
            drill.compare(job)
            for worker in (0, 1):
                submitted.begin_batch(process)
                kill_executor(cluster, process, worker)
                gone_on(submitted, process, drill)
            groups = submitted.labels(0) | submitted.labels(1)
            assert len(groups) == KEY_GROUPS

            submitted.begin_batch(process)
            cluster.lose(0)
            gone_on(submitted, process, drill)
            assert submitted.labels(1) == groups, "each key group's index was restored on the host that is left"

            cluster.join()
            process.wait_for(lambda: bool(cluster.executors(2)), DEADLINE_S, "an executor on the new host")
            submitted.batches(process, 1)
            submitted.begin_batch(process)
            cluster.lose(1)
            gone_on(submitted, process, drill)
            assert submitted.labels(2) == groups, "the new host has them all"

            submitted.begin_batch(process)
            process.kill()
            drill.injected += 1
        drill.compare(job)
        cluster.join()
        with submitted.start(*CONTINUOUS) as process:
            submitted.batches(process, 1)
            submitted.begin_batch(process)
            cluster.lose(2)
            gone_on(submitted, process, drill)
            assert submitted.labels(3) == groups
            submitted.batches(process, 1)
            submitted.end(process)
        assert job.all_taken()
        drill.compare(job)
        assert job.unnamed_files() == []
    if store == "hdfs":
        expected = USER if table_type == "COPY_ON_WRITE" else getuser()
        assert owners(job.table_url) | owners(f"{job.url}/checkpoint") == {expected}


def keys_of_the_environment(job: StoreJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave keys and user to the environment of the driver, which is this process's; no host of the cluster has them."""
    monkeypatch.setenv("HADOOP_USER_NAME", USER)
    for name, variable in (("access", "AWS_ACCESS_KEY_ID"), ("secret", "AWS_SECRET_ACCESS_KEY")):
        if value := job.settings.pop(f"fs.s3a.{name}.key", None):
            monkeypatch.setenv(variable, value)


def owners(url: str) -> set[str]:
    """Who made the files of a folder on HDFS: tasks in Python and in Java, and the driver."""
    parts = urlsplit(url)
    there = Client(f"{parts.scheme}://{parts.netloc}").list_status(parts.path, recursive=True)
    return {each.owner for each in there if not each.isdir}


def gone_on(submitted: Submitted, process: Process, drill: Drill) -> None:
    """After a fault: the batch that it fell in is committed, and the table is right."""
    drill.injected += 1
    submitted.taken(process)
    drill.compare(submitted.job)


def share_nothing(cluster: Cluster, job: StoreJob) -> None:
    """The executors are on two hosts to Spark; no host has a folder of the driver's, of the store's or of the other."""
    executors = [cluster.executors(worker)[0] for worker in range(len(cluster.machines))]
    assert sorted(map(executor_host, executors)) == ["127.0.0.2", "127.0.0.3"]
    roots = [Path("/proc", str(executor), "root") for executor in executors]  # what the executor itself sees as /
    for machine, root in zip(cluster.machines, roots, strict=True):
        assert (root / "opt/spark/jars").is_dir()
        for path in (ROOT, job.folder / "in", cluster.folder):
            assert path.exists()
            assert not (root / str(path).lstrip("/")).exists(), f"{machine.root.name} has {path}"
        machine.at("/tmp/mark").touch()
        assert [(other / "tmp/mark").exists() for other in roots] == [other is root for other in roots]
        machine.at("/tmp/mark").unlink()


def test_the_command_of_the_page(
    unharmed: Cluster, shipped: Path, hdfs_folder: str, clone: Path, tmp_path: Path
) -> None:
    """As printed, but for the addresses of master and store."""
    run(blocks()[1].split(".venv/bin/python run_stream.py")[0], clone, "source")
    there = open_storage(f"{hdfs_folder}/orders-in")
    for path in sorted((clone / "out" / "orders-in").iterdir()):
        there.put(path.name, str(path))
    (clone / "dist").symlink_to(shipped)
    (block,) = (b for b in blocks("docs/operations/operations.md") if "STORE=hdfs" in b)
    command = block.replace("spark://127.0.0.1:7077", unharmed.master)
    said = run(command.replace("hdfs://namenode:8020/lake", hdfs_folder), clone, "cluster")
    assert "end of run: batches 1, records 6" in said
    rows = read_table(copy_down(open_storage(f"{hdfs_folder}/orders"), tmp_path / "copy"), meta_columns=False)
    assert sorted(rows["id"].to_pylist()) == ["o-1", "o-3"]


@pytest.mark.parametrize("what", ["table", "checkpoint", "source"])
def test_a_folder_of_the_driver_is_missed(
    what: str, unharmed: Cluster, shipped: Path, new_store_job: NewStoreJob, tmp_path: Path
) -> None:
    """What the hosts do not share does not work here: the other drills would fail if they relied on it."""
    job = new_store_job("hdfs", "MERGE_ON_READ", CHUNKS, source_too=what != "source")
    submitted = Submitted(unharmed, job, shipped)
    flag = {"table": "--target-base-path", "checkpoint": "--checkpoint-dir", "source": ""}[what]
    job.write_input(0, 1)
    with submitted.start(*([flag, str(tmp_path / "mine")] if flag else [])) as process:
        said = error_line(process, process.wait(DEADLINE_S))
    assert str(tmp_path) in said
    assert what == "source" or "must lie where all" in said or "must be accessible to all" in said
