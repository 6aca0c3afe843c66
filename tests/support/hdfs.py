"""A real HDFS on loopback: a NameNode and DataNodes, each a process of Hadoop's own jars.

The jars come by Maven once (63 MB), into the project's cache. Two DataNodes, each with every block: with one alone each
close of a file waits half a second for its report. Ports are free ones, kept over a restart.
"""

from __future__ import annotations

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from xml.sax.saxutils import escape

from tagstream.streaming.source.connector import CACHE_FOLDER, PROJECT, fetch_jars
from tests.support.kafka_broker import free_ports
from tests.support.process import Process

START_SECONDS = 180.0
JAVA = (
    "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
    "--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED",
)  # fmt: skip
LOGGING = """log4j.rootLogger=WARN,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c: %m%n
"""
NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"


class HdfsServer:
    """One cluster with its folder. As a context manager: started, and killed at the end.

    ``site``: settings of its own ``hdfs-site.xml`` that differ from Hadoop's.
    """

    def __init__(self, folder: Path, data_nodes: int = 2, site: Mapping[str, str] | None = None) -> None:
        self.folder = folder.resolve()
        self.data_nodes = data_nodes
        self.port, self._http, *self._data_ports = free_ports(2 + 3 * data_nodes)
        self._jars = fetch_jars(PROJECT / "conf" / "poms" / "hdfs-server.xml", PROJECT / CACHE_FOLDER)[0].parent
        self._processes: dict[str, Process] = {}
        conf = self.folder / "conf"
        for web in ("hdfs", "datanode", "static"):  # pages that the jars lack
            (conf / "webapps" / web).mkdir(parents=True)
        (conf / "core-site.xml").write_text(
            site_xml({"fs.defaultFS": self.url, "hadoop.tmp.dir": f"{self.folder}/tmp"})
        )
        (conf / "hdfs-site.xml").write_text(site_xml(self._settings() | dict(site or {})))
        (conf / "log4j.properties").write_text(LOGGING)

    @property
    def url(self) -> str:
        """Its URL."""
        return f"hdfs://127.0.0.1:{self.port}"

    def settings(self) -> dict[str, str]:
        """Hadoop's settings for a client."""
        return {"dfs.replication": str(min(2, self.data_nodes))}

    @property
    def reader(self) -> dict[str, str]:
        """What hudi-rs is told: nothing, it does not read this URL."""
        return {}

    def start(self) -> None:
        """Start what is not running, on the data that is there, and wait until it takes files."""
        if not (self.folder / "name" / "current").exists():
            with self._java("format", NAME_NODE, "-format", "-nonInteractive") as process:
                assert process.wait(START_SECONDS) == 0, process.output()[-4000:]
        try:
            self.start_name_node()
            for number in range(1, self.data_nodes + 1):
                self.start_data_node(number)
            self._processes["namenode"].wait_for(self.takes_files, START_SECONDS, "HDFS to take files")
        except BaseException:
            self.kill_all()
            raise

    def start_name_node(self) -> None:
        """Start the NameNode."""
        if "namenode" not in self._processes:
            self._processes["namenode"] = self._java("namenode", NAME_NODE)

    def start_data_node(self, number: int) -> None:
        """Start one DataNode, from 1 on."""
        data, web, ipc = (f"127.0.0.1:{port}" for port in self._data_ports[3 * number - 3 : 3 * number])
        name = f"datanode{number}"
        own = {
            "data.dir": f"file://{self.folder}/data{number}",
            "address": data,
            "http.address": web,
            "ipc.address": ipc,
        }
        arguments = [part for key, value in own.items() for part in ("-D", f"dfs.datanode.{key}={value}")]
        if name not in self._processes:
            self._processes[name] = self._java(name, DATA_NODE, *arguments)

    def kill(self, name: str) -> None:
        """SIGKILL of ``namenode``, ``datanode1``, ...; its data stays."""
        self._processes.pop(name).kill()

    def kill_all(self) -> None:
        """SIGKILL of all."""
        for name in list(self._processes):
            self.kill(name)

    def takes_files(self) -> bool:
        """Whether the NameNode has left its safe mode and knows of the DataNodes that run."""
        try:
            url = f"http://127.0.0.1:{self._http}/jmx?qry=Hadoop:service=NameNode,name=*"
            with urllib.request.urlopen(url, timeout=5) as answer:
                beans: list[dict[str, Any]] = json.load(answer)["beans"]
        except (urllib.error.URLError, OSError, ValueError):
            return False
        state = {name: value for bean in beans for name, value in bean.items()}
        running = len(self._processes) - 1
        return state.get("NumLiveDataNodes", 0) >= running and state.get("Safemode") == ""

    def _java(self, name: str, *command: str) -> Process:
        path = f"{self.folder / 'conf'}:{self._jars}/*"
        return Process([*JAVA, "-cp", path, *command], self.folder / f"{name}.log", cwd=self.folder)

    def _settings(self) -> dict[str, str]:
        return {
            "dfs.namenode.name.dir": f"file://{self.folder}/name",
            "dfs.replication": str(min(2, self.data_nodes)),
            "dfs.namenode.http-address": f"127.0.0.1:{self._http}",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.permissions.enabled": "false",
            "dfs.namenode.safemode.extension": "0",
            "dfs.client.block.write.replace-datanode-on-failure.enable": "false",
        }

    def __enter__(self) -> HdfsServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill_all()
        shutil.rmtree(self.folder, ignore_errors=True)  # blocks are preallocated: larger than what is in them


def site_xml(settings: dict[str, str]) -> str:
    rows = (f"<property><name>{k}</name><value>{escape(v)}</value></property>" for k, v in settings.items())
    return f"<configuration>{''.join(rows)}</configuration>"
