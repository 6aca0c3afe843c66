"""A standalone Spark cluster on loopback: a master, and workers on 127.0.0.1, 127.0.0.2, ..., each a host to Spark.

Or with workers on machines of their own, which share no folder with one another nor with the driver.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

from tagstream.streaming.source.connector import PROJECT
from tests.support.class_archive import QUICK
from tests.support.environment import bare_environment
from tests.support.kafka_broker import free_ports
from tests.support.machine import SPARK, SPARK_HOME, Machine
from tests.support.process import Process
from tests.support.spark_processes import executors, python_processes

START_SECONDS = 120.0


class Cluster:
    """A master and ``workers`` of one core each. As a context manager: started, and killed at the end.

    ``installed``: this project is on the executors' path, or the copy of it in the folder that is named; else a job must
    ship it. ``apart``: each worker is on a machine of its own, none of them on the master's host.
    """

    def __init__(self, folder: Path, *, workers: int = 2, installed: bool | Path = True, apart: bool = False) -> None:
        self.folder = folder
        self.machines: list[Machine] = []
        self._count = workers
        self._path = None if apart or installed is False else PROJECT if installed is True else installed
        self._apart = apart
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
            for _ in range(self._count):
                self.join()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def join(self) -> None:
        """One more worker, on a host that was not there before."""
        host = f"127.0.0.{len(self.workers) + (2 if self._apart else 1)}"
        if self._apart:
            self.machines.append(Machine(self.folder / "machines" / host))
        size = ["--cores", "1", "--memory", "1g", *([] if self._apart else ["--work-dir", self._own("work", host)])]
        worker = self._start(host, host, "Worker", self.master, "--host", host, "--webui-port", "0", *size)
        worker.wait_for(lambda: "Successfully registered with master" in worker.output(), START_SECONDS, "the worker")

    def lose(self, worker: int) -> None:
        """A machine is gone: every process on it, and its disk."""
        self.workers[worker].kill()
        self.machines[worker].lose()

    def _start(self, name: str, host: str, what: str, *arguments: str) -> Process:
        command: list[str | Path] = ["bin/spark-class", f"org.apache.spark.deploy.{what.lower()}.{what}", *arguments]
        env = {"SPARK_LOCAL_IP": host, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": QUICK}
        if what == "Worker" and self._apart:
            machine = self.machines[-1]
            command = machine.command([f"{SPARK}/{command[0]}", *command[1:]])
            env |= machine.environment()
        else:
            command[0] = SPARK_HOME / command[0]
            ours = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHONPATH", "PYSPARK_", "SPARK_"))}
            env |= ours | {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_DIRS": self._own("local", host)}
            if self._path is not None:
                env["PYTHONPATH"] = str(self._path)
        process = Process(command, self.folder / f"{name}.log", cwd=self.folder, env=env)
        self._processes.append(process)
        return process

    def _own(self, kind: str, host: str) -> str:
        """A folder of a host."""
        folder = self.folder / kind / host
        folder.mkdir(parents=True, exist_ok=True)
        return str(folder)

    def _end(self) -> None:
        for process in reversed(self._processes):
            process.kill()


def bare_python(folder: Path) -> Path:
    """An interpreter with the dependencies of this project and without the project itself."""
    packages = bare_environment(folder)
    # A .pth file adds the folder, and not what other .pth files (an editable install) would add.
    (packages / "dependencies.pth").write_text(f"{SPARK_HOME.parent}\n")
    return folder / "bin" / "python"
