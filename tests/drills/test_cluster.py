"""A standalone cluster with two workers: executors die, map outputs are lost, a task stands still beside its copy."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

import pytest

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tests.drills.cluster_faults import kill_executors
from tests.drills.conftest import NewDrill, NewJob
from tests.drills.kafka_job import KafkaJob
from tests.drills.stream_job import DEADLINE_S, PROJECT, error_line
from tests.support.cluster import Cluster, bare_python
from tests.support.dist import build
from tests.support.events import Mix, generate
from tests.support.table_version import timeline_of

PER_BATCH = 1000
MIX = Mix(keys=1500, tombstones=0.02)
CONTINUOUS = ("--continuous", "--min-sync-interval-seconds", "0")

pytestmark = pytest.mark.drill


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path / "cluster") as cluster:
        yield cluster


def on(cluster: Cluster, job: KafkaJob, **more: str) -> KafkaJob:
    """The job, to be run on the cluster with four state partitions: two for each core."""
    job.conf |= {**cluster.conf(), "spark.sql.shuffle.partitions": "4", "spark.master": cluster.master, **more}
    job.conf["hoodie.parquet.max.file.size"] = "4194304"
    return job


def sound(job: KafkaJob) -> None:
    """No file of the table that no commit names, so one a file group and batch whatever was tried twice."""
    assert validate(HoodieTable.open(str(job.table))) == []


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_executors_are_killed(table_type: str, cluster: Cluster, new_drill: NewDrill, new_job: NewJob) -> None:
    kills = 5
    with new_drill("SIGKILL of executors, two workers", table_type, kills) as drill:
        job = on(cluster, new_job(table_type, PER_BATCH))
        job.produce(generate((2 * kills + 6) * PER_BATCH, MIX, seed=91))
        with job.start() as process:
            for _ in kill_executors(cluster, job, process, kills, random.Random(1)):
                drill.injected += 1
            assert process.wait(2 * DEADLINE_S) == 0, process.output()[-4000:]
        assert job.all_taken()
        drill.compare(job)
        sound(job)


def test_an_executor_is_killed_under_spark_submit(tmp_path: Path, new_drill: NewDrill, new_job: NewJob) -> None:
    with (
        new_drill("SIGKILL of executors, spark-submit ships the code", "MERGE_ON_READ", 2) as drill,
        Cluster(tmp_path / "cluster", installed=False) as cluster,
    ):
        job = on(cluster, new_job("MERGE_ON_READ", PER_BATCH))
        job.java = ""  # the driver's JVM is spark-submit's
        job.produce(generate(9 * PER_BATCH, MIX, seed=93))
        submit = [Path(sys.executable).with_name("spark-submit"), "--master", cluster.master, "--driver-memory", "512m"]
        submit += ["--py-files", build(tmp_path / "dist")[1]]
        for key, value in cluster.conf().items():
            submit += ["--conf", f"{key}={value}"]
        env = {
            "PYSPARK_PYTHON": str(bare_python(tmp_path / "bare")),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        with job.start(program=[*submit, PROJECT / "run_stream.py"], **env) as process:
            for _ in kill_executors(cluster, job, process, 2, random.Random(2)):
                drill.injected += 1
            assert process.wait(2 * DEADLINE_S) == 0, process.output()[-4000:]
        assert job.all_taken()
        drill.compare(job)
        sound(job)


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_map_outputs_are_lost(table_type: str, cluster: Cluster, new_drill: NewDrill, new_job: NewJob) -> None:
    """The tag step runs again for what was lost, or, where a write task is done already, Spark gives the batch up."""
    events = generate(8 * PER_BATCH, MIX, seed=95)
    with new_drill("map outputs deleted between tag and write", table_type, 3) as drill:
        job = on(cluster, new_job(table_type, PER_BATCH))
        job.produce(islice(events, PER_BATCH))
        job.finish()
        for _ in range(3):
            job.produce(islice(events, 2 * PER_BATCH))
            with job.start(crash=f"state_committed@{job.batches()}:pause") as process:
                process.wait_for(lambda p=process: p.stopped, DEADLINE_S, "the first write tasks of the batch")
                files = cluster.shuffle_files()
                assert files
                for file in files:
                    file.unlink(missing_ok=True)
                drill.injected += 1
                process.resume()
                for pid in cluster.python(0) + cluster.python(1):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                if code := process.wait(DEADLINE_S):
                    assert "the batch was not committed, and a restart processes it again" in error_line(process, code)
                assert "FetchFailed" in process.output()
            drill.compare(job)
            job.finish()
            assert job.all_taken()
            drill.compare(job)
        job.produce(events)
        job.finish()
        assert job.all_taken()
        drill.compare(job)
        sound(job)


@pytest.mark.parametrize("table_type", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_a_straggler_and_its_copy(table_type: str, cluster: Cluster, new_drill: NewDrill, new_job: NewJob) -> None:
    rounds = 3
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.multiplier": "1.2",
        "spark.speculation.minTaskRuntime": "200ms",
        # A batch may begin with one partition of the topic: by this alone Spark copies the only task of a stage.
        "spark.speculation.task.duration.threshold": "3s",
    }
    events = generate((2 + 2 * rounds) * PER_BATCH, MIX, seed=97)
    with new_drill("Python workers stopped, tasks speculated", table_type, rounds) as drill:
        job = on(cluster, new_job(table_type, PER_BATCH), **speculation)
        job.produce(islice(events, PER_BATCH))
        with job.start(*CONTINUOUS) as process:
            process.wait_for(job.all_taken, DEADLINE_S, "the first batch")
            for number in range(rounds):
                worker, inflight = number % 2, len(pending(job))
                job.produce(islice(events, PER_BATCH))
                process.wait_for(lambda n=inflight: len(pending(job)) > n, DEADLINE_S, "the next batch's tasks")
                stopped = cluster.python(worker)
                assert stopped
                for pid in stopped:
                    os.kill(pid, signal.SIGSTOP)
                drill.injected += 1
                # The batch can only end because copies of its tasks run at the other worker.
                process.wait_for(job.all_taken, DEADLINE_S, "the batch without the worker that stands still")
                for pid in stopped:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                drill.compare(job)
                job.produce(islice(events, PER_BATCH))
                process.wait_for(job.all_taken, DEADLINE_S, "a batch after it")
                drill.compare(job)
            process.send(signal.SIGTERM)
            assert process.wait(DEADLINE_S) == 0, process.output()[-4000:]
        job.produce(events)
        job.finish()  # sweeps what a late attempt has left
        assert job.all_taken()
        drill.compare(job)
        sound(job)


def pending(job: KafkaJob) -> list[Path]:
    """Instants that have begun, completed or not."""
    return list(timeline_of(job.table).glob("*.inflight"))
