"""A real YARN on loopback: a ResourceManager, and a NodeManager on a host that has nothing of the one that submits.

The jars come by Maven once (80 MB), into the project's cache. The NodeManager, and so every process of an application, runs
as a user without rights in a container of Java, Python and Spark. The two hosts share one folder, in place of the store
that applications are staged on.
"""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
import zipfile
from pathlib import Path
from types import TracebackType

import py4j
import pyspark

from tagstream.streaming.source.connector import CACHE_FOLDER, PROJECT, fetch_jars
from tests.support.container import Container
from tests.support.hdfs import JAVA, LOGGING, START_SECONDS, site_xml
from tests.support.kafka_broker import free_ports
from tests.support.machine import SPARK_HOME
from tests.support.process import Process

USER, UID = "lake", 64002
SPARK = "/opt/spark"
STAGING = "/staging"
_YARN = "org.apache.hadoop.yarn.server"
_HADOOP = "/opt/hadoop"


class Yarn:
    """A cluster of one host. As a context manager: started, and killed at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._jars = fetch_jars(PROJECT / "conf" / "poms" / "yarn-server.xml", PROJECT / CACHE_FOLDER)[0].parent
        self._web, *self._ports = free_ports(7)
        self._processes: list[Process] = []
        self.conf = self.folder / "conf"
        self.conf.mkdir(parents=True)
        (self.conf / "core-site.xml").write_text(site_xml({"fs.defaultFS": "file:///", "hadoop.tmp.dir": "/tmp"}))
        (self.conf / "yarn-site.xml").write_text(site_xml(self._settings()))
        (self.conf / "log4j.properties").write_text(LOGGING)
        (self.folder / "staging").mkdir()

    def host(self, name: str, files: dict[str, Path]) -> Container:
        """A host of the cluster's user: Spark, the cluster's settings, the shared folder, and ``files``."""
        volumes = {"/tmp": self.folder / name / "tmp", "/data": self.folder / name / "data"}
        volumes[STAGING] = self.folder / "staging"
        there = {SPARK: SPARK_HOME, f"{_HADOOP}/conf": self.conf, f"{_HADOOP}/jars": self._jars, **files}
        out = Container(self.folder / name / "root", there, volumes, uid=UID, gid=UID)
        with (self.folder / name / "root" / "etc" / "passwd").open("a") as names:
            names.write(f"{USER}:x:{UID}:{UID}::/nonexistent:/usr/sbin/nologin\n")
        return out

    def environment(self) -> dict[str, str]:
        """Of a process on such a host; no home."""
        java = shutil.which("java")
        assert java is not None
        return {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "JAVA_HOME": str(Path(java).resolve().parents[1]),
            "HADOOP_CONF_DIR": f"{_HADOOP}/conf",
            "SPARK_HOME": SPARK,
        }

    def archives(self, folder: Path) -> list[Path]:
        """Spark's Python code as a Spark distribution has it below ``python/lib``, and PySpark of pip has not."""
        made = []
        for module in (pyspark, py4j):
            source = Path(str(module.__file__)).parent
            made.append(folder / f"{source.name}.zip")
            with zipfile.ZipFile(made[-1], "w") as out:
                for path in sorted(path for path in source.rglob("*") if path.suffix in (".py", ".json")):
                    out.write(path, path.relative_to(source.parent))
        return made

    def logs(self) -> str:
        """What the processes of applications have written."""
        files = sorted((self.folder / "worker" / "data" / "logs").rglob("std*"))
        return "\n".join(f"{path.name}:\n{path.read_text('utf-8', errors='replace')}" for path in files)

    def __enter__(self) -> Yarn:
        try:
            path = f"{_HADOOP}/conf:{_HADOOP}/jars/*"
            for name, what in (("master", "resourcemanager.ResourceManager"), ("worker", "nodemanager.NodeManager")):
                command = self.host(name, {}).command([*JAVA, "-cp", path, f"{_YARN}.{what}"], folder="/tmp")
                self._processes.append(
                    Process(command, self.folder / f"{name}.log", cwd=self.folder, env=self.environment())
                )
            self._processes[1].wait_for(self._has_a_host, START_SECONDS, "YARN to have a host")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        for process in reversed(self._processes):
            process.kill()

    def _has_a_host(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._web}/ws/v1/cluster/metrics", timeout=5) as answer:
                return bool(json.load(answer)["clusterMetrics"]["activeNodes"] == 1)
        except (urllib.error.URLError, OSError, ValueError):
            return False

    def _settings(self) -> dict[str, str]:
        names = [f"resourcemanager{part}" for part in ("", ".scheduler", ".resource-tracker", ".admin")]
        names += ["nodemanager", "nodemanager.localizer"]
        addresses = {f"yarn.{n}.address": f"127.0.0.1:{port}" for n, port in zip(names, self._ports, strict=True)}
        return addresses | {
            "yarn.resourcemanager.webapp.address": f"127.0.0.1:{self._web}",
            "yarn.nodemanager.webapp.address": "127.0.0.1:0",
            "yarn.resourcemanager.scheduler.class": f"{_YARN}.resourcemanager.scheduler.fifo.FifoScheduler",
            "yarn.resourcemanager.am.max-attempts": "1",
            "yarn.scheduler.minimum-allocation-mb": "128",
            "yarn.nodemanager.local-dirs": "/data/local",
            "yarn.nodemanager.log-dirs": "/data/logs",
            "yarn.nodemanager.resource.memory-mb": "6144",
            "yarn.nodemanager.resource.cpu-vcores": "4",
            "yarn.nodemanager.pmem-check-enabled": "false",
            "yarn.nodemanager.vmem-check-enabled": "false",
            "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
        }
