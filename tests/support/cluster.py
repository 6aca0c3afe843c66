"""A standalone Spark cluster on loopback: a master, and workers on 127.0.0.1, 127.0.0.2, ..., each a host to Spark."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType

import pyspark

from tagstream.streaming.source.connector import PROJECT
from tests.support.class_archive import QUICK
from tests.support.kafka_broker import free_ports
from tests.support.process import Process
from tests.support.spark_processes import executors, python_processes

START_SECONDS = 120.0
_SPARK_HOME = Path(pyspark.__file__).parent


class Cluster:
    """A master and ``workers`` of one core each. As a context manager: started, and killed at the end.

    ``installed``: this project is on the executors' path; else a job must ship it.
    """

    def __init__(self, folder: Path, *, workers: int = 2, installed: bool = True) -> None:
        self.folder = folder
        self._count = workers
        self._installed = installed
        self._port, self._web = free_ports(2)
        self._processes: list[Process] = []

    @property
    def master(self) -> str:
        """The address that jobs are sent to."""
        return f"spark://127.0.0.1:{self._port}"

    @property
    def workers(self) -> list[Process]:
        """The workers; their executors and the Python workers of these are in the same session each."""
        return self._processes[1:]

    def conf(self) -> dict[str, str]:
        """Keys of a small job here: one executor a worker."""
        return {
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.cores.max": str(self._count),
            "spark.executor.extraJavaOptions": QUICK,
        }

    def executors(self, worker: int) -> list[int]:
        """Process ids of a worker's executors."""
        return executors(self.workers[worker].pid)

    def python(self, worker: int) -> list[int]:
        """Process ids of a worker's Python daemons and workers."""
        return python_processes(self.workers[worker].pid)

    def shuffle_files(self) -> list[Path]:
        """Map outputs that lie on the workers' disks now."""
        return [path for path in (self.folder / "local").rglob("shuffle_*") if path.is_file()]

    def __enter__(self) -> Cluster:
        try:
            at = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._web)]
            self._start("master", "127.0.0.1", "Master", *at)
            for n in range(1, self._count + 1):
                host = f"127.0.0.{n}"
                size = ["--cores", "1", "--memory", "768m", "--work-dir", str(self.folder / "work" / host)]
                worker = self._start(host, host, "Worker", self.master, "--host", host, "--webui-port", "0", *size)
                worker.wait_for(
                    lambda w=worker: "Successfully registered with master" in w.output(), START_SECONDS, "the worker"
                )
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def _start(self, name: str, host: str, what: str, *arguments: str) -> Process:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHONPATH", "PYSPARK_", "SPARK_"))}
        env |= {
            "SPARK_HOME": str(_SPARK_HOME),
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "SPARK_LOCAL_DIRS": str(self.folder / "local" / host),
        }
        if self._installed:
            env["PYTHONPATH"] = str(PROJECT)
        (self.folder / "local" / host).mkdir(parents=True, exist_ok=True)
        command = [_SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{what.lower()}.{what}", *arguments]
        process = Process(command, self.folder / f"{name}.log", cwd=self.folder, env=env)
        self._processes.append(process)
        return process

    def _end(self) -> None:
        for process in reversed(self._processes):
            process.kill()


def bare_python(folder: Path) -> Path:
    """An interpreter with the dependencies of this project and without the project itself."""
    done = Process([sys.executable, "-m", "venv", "--without-pip", folder], folder.with_suffix(".log"))
    with done:
        assert done.wait(60) == 0, done.output()
    # A .pth file adds the folder, and not what other .pth files (an editable install) would add.
    site = Path(pyspark.__file__).parents[1]
    (folder / "lib" / f"python3.{sys.version_info.minor}" / "site-packages" / "dependencies.pth").write_text(
        f"{site}\n"
    )
    return folder / "bin" / "python"
