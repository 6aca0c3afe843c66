"""A real ZooKeeper 3.9.5 of one server on loopback, with its data in a folder. The jars come by Maven once."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tagstream.streaming.source.connector import CACHE_FOLDER, PROJECT, fetch_jars
from tests.support.kafka_broker import free_ports
from tests.support.process import Process

START_SECONDS = 120.0
TICK_MS = 500  # the shortest session is two ticks, the longest one twenty
LOOPBACK = "127.0.0.1"
JAVA = ("java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class ZookeeperServer:
    """One server. As a context manager: started, and killed at the end."""

    def __init__(self, folder: Path) -> None:
        """`folder`: its settings, log and data."""
        self.folder = folder.resolve()
        self.port = free_ports(1)[0]
        self._jars = fetch_jars(PROJECT / "conf" / "poms" / "zookeeper.xml", PROJECT / CACHE_FOLDER)[0].parent
        self._process: Process | None = None

    @property
    def hosts(self) -> str:
        """What `hoodie.write.lock.zookeeper.url` has to be."""
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        settings = {
            "tickTime": TICK_MS,
            "dataDir": data,
            "clientPort": self.port,
            "clientPortAddress": LOOPBACK,
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
        }
        config = self.folder / "zoo.cfg"
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        options = ["-Dzookeeper.4lw.commands.whitelist=ruok"]
        main = ["-cp", f"{self._jars}/*", "org.apache.zookeeper.server.ZooKeeperServerMain", str(config)]
        self._process = Process([*JAVA, *options, *main], self.folder / "zookeeper.log", cwd=self.folder)
        try:
            self._process.wait_for(self.answers, START_SECONDS, "an answer of ZooKeeper")
        except BaseException:
            self.kill()
            raise

    def answers(self) -> bool:
        """Whether it says that it serves."""
        with suppress(OSError), socket.create_connection((LOOPBACK, self.port), timeout=1) as connection:
            connection.sendall(b"ruok")
            return connection.recv(4) == b"imok"
        return False

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def __enter__(self) -> ZookeeperServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
