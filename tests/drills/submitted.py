"""A job on a store that ``spark-submit`` sends to a cluster, with everything that the cluster's hosts have to be given."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.drills.store_job import StoreJob
from tests.drills.stream_job import DEADLINE_S
from tests.support.cluster import Cluster
from tests.support.environment import NAME
from tests.support.machine import SPARK_HOME
from tests.support.process import Process
from tests.support.spark_processes import driver

# In the folder where a task runs: Spark unpacks the archive there.
PYTHON = "./environment/bin/python"
KEY_GROUPS = 8


@dataclass
class Submitted:
    """``shipped``: the folder of ``make dist`` and ``make environment``. The source's files are put there one by one."""

    cluster: Cluster
    job: StoreJob
    shipped: Path

    def __post_init__(self) -> None:
        self._files = 0
        self.job.conf |= {
            **self.cluster.conf(),
            "spark.driver.memory": "512m",
            # Two state partitions a core, of two key groups each.
            "spark.sql.shuffle.partitions": "4",
            "index.key.groups": str(KEY_GROUPS),
        }

    def start(self, *more: str) -> Process:
        """The driver, here; as the documentation says."""
        (project,) = self.shipped.glob("*.zip")
        submit = [Path(sys.executable).with_name("spark-submit"), "--master", self.cluster.master]
        submit += ["--driver-memory", "512m", "--py-files", project]
        submit += ["--archives", f"{self.shipped / NAME}#environment", "--conf", f"spark.pyspark.python={PYTHON}"]
        submit += ["--conf", f"spark.pyspark.driver.python={sys.executable}"]
        for key, value in self.cluster.conf().items():
            submit += ["--conf", f"{key}={value}"]
        env = {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
        return self.job.start(*more, program=[*submit, self.shipped / "run_stream.py"], **env)

    def batches(self, process: Process, count: int) -> None:
        """So many more batches, each committed."""
        for _ in range(count):
            self._next_file()
            self.taken(process)

    def begin_batch(self, process: Process) -> None:
        """One more batch, until its instant is pending: what is done next falls into it."""
        self._next_file()
        process.wait_for(self._under_way, DEADLINE_S, "the next batch")

    def taken(self, process: Process) -> None:
        """Wait until everything that is there is committed."""
        process.wait_for(self.job.all_taken, DEADLINE_S, "the batch")

    def end(self, process: Process) -> None:
        """Ask the job itself to end; ``spark-submit``, asked by a signal, would stop Spark first."""
        os.kill(driver(process.pid), signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0, process.output()[-4000:]
        assert "INFO TaskSetManager" not in process.output(), "Spark's own lines are kept to warnings"

    def labels(self, worker: int) -> set[str]:
        """The key groups that have a local store on a worker's machine."""
        there = self.cluster.machines[worker].at(self.job.local)
        return {store.parent.name for store in there.glob("*/*/*/store-0")}

    def _next_file(self) -> None:
        self.job.write_input(self._files, self._files + 1)
        self._files += 1

    def _under_way(self) -> bool:
        with self.job.reached_by():
            timeline = HoodieTable.open(self.job.table_url).timeline()
        return bool(timeline.pending_writes)
