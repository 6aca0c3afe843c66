"""A real HBase on loopback: master, region server and ZooKeeper in one process, its Thrift server in another.

The jars come by Maven once, into the project's cache. Ports are free ones, kept over a restart of either process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from xml.sax.saxutils import escape

import happybase
from Hbase_thrift import IOError as HbaseIOError
from thriftpy2.thrift import TException

from tagstream.streaming.source.connector import CACHE_FOLDER, PROJECT, fetch_jars
from tests.support.kafka_broker import free_ports
from tests.support.process import Process

START_SECONDS = 120.0
JAVA = (
    "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
    "--add-opens=java.base/java.nio=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED",
)  # fmt: skip
LOGGING = """log4j.rootLogger=WARN,out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d %p %c: %m%n
"""
LOOPBACK = "127.0.0.1"


class HbaseServer:
    """One server with its folder. As a context manager: started, and killed at the end."""

    def __init__(self, folder: Path) -> None:
        """`folder`: its settings, logs and tables, which a restart finds again."""
        self.folder = folder.resolve()
        self.zookeeper_port, self._master_port, self._region_port, self.thrift_port = free_ports(4)
        self._jars = fetch_jars(PROJECT / "conf" / "poms" / "hbase.xml", PROJECT / CACHE_FOLDER)[0].parent
        conf = self.folder / "conf"
        conf.mkdir(parents=True)
        (conf / "hbase-site.xml").write_text(_site(self._settings()))
        (conf / "log4j.properties").write_text(LOGGING)
        self._master: Process | None = None
        self._thrift: Process | None = None

    def start(self) -> None:
        """Start both and wait until a table can be made: an open port does not mean that yet."""
        self._master = self._java("-Xmx512m", "org.apache.hadoop.hbase.master.HMaster", "start")
        self.start_thrift()

    def start_thrift(self) -> None:
        """Start the Thrift server, and wait until it answers from the region server."""
        at = ("-p", str(self.thrift_port), "-b", LOOPBACK)
        self._thrift = self._java("-Xmx256m", "org.apache.hadoop.hbase.thrift.ThriftServer", *at, "start")
        try:
            self._thrift.wait_for(self.answers, START_SECONDS, "an answer through the Thrift server")
        except BaseException:
            self.kill()
            raise

    def kill_thrift(self) -> None:
        """SIGKILL of the Thrift server alone."""
        if self._thrift is not None:
            self._thrift.kill()
            self._thrift = None

    def kill(self) -> None:
        """SIGKILL of both."""
        self.kill_thrift()
        if self._master is not None:
            self._master.kill()
            self._master = None

    def answers(self) -> bool:
        """Whether it lists its tables."""
        try:
            with self.connect(5.0) as connection:
                connection.tables()
        except (HbaseIOError, TException, OSError, EOFError):
            return False
        return True

    @contextmanager
    def connect(self, seconds: float = 60.0) -> Iterator[happybase.Connection]:
        """A client of the test's own."""
        connection = happybase.Connection(LOOPBACK, self.thrift_port, timeout=int(seconds * 1000))
        try:
            yield connection
        finally:
            with suppress(TException, OSError):
                connection.close()

    def make_table(self, name: str, versions: int = 1, family: str = "_s") -> None:
        """A table with one column family."""
        with self.connect() as connection:
            connection.create_table(name, {family: {"max_versions": versions}})

    def _java(self, heap: str, main: str, *arguments: str) -> Process:
        path = f"{self.folder / 'conf'}:{self._jars}/*"
        log = self.folder / f"{main.rpartition('.')[2]}.log"
        return Process([*JAVA, heap, "-cp", path, main, *arguments], log, cwd=self.folder)

    def _settings(self) -> dict[str, str]:
        return {
            "hbase.cluster.distributed": "false",
            "hbase.rootdir": f"file://{self.folder}/root",
            "hbase.tmp.dir": f"{self.folder}/tmp",
            "hbase.zookeeper.property.dataDir": f"{self.folder}/zookeeper",
            "hbase.zookeeper.quorum": LOOPBACK,
            "hbase.zookeeper.property.clientPort": str(self.zookeeper_port),
            "hbase.unsafe.stream.capability.enforce": "false",  # a local folder has no hflush
            "hbase.wal.provider": "filesystem",
            "hbase.procedure.store.wal.use.hsync": "false",
            "hbase.master.hostname": "localhost",
            "hbase.regionserver.hostname": "localhost",
            "hbase.unsafe.regionserver.hostname": "localhost",
            "hbase.master.ipc.address": LOOPBACK,
            "hbase.regionserver.ipc.address": LOOPBACK,
            "hbase.master.port": str(self._master_port),
            "hbase.regionserver.port": str(self._region_port),
            "hbase.master.info.port": "-1",
            "hbase.regionserver.info.port": "-1",
            "hbase.thrift.info.port": "-1",
            "hbase.regionserver.thrift.ipaddress": LOOPBACK,
            "hbase.regionserver.handler.count": "6",
            # How long they wait for one another at the start: seconds by default, for clusters.
            "hbase.server.thread.wakefrequency": "200",
            "hbase.regionserver.msginterval": "200",
            "hbase.master.wait.on.regionservers.interval": "100",
            "hbase.master.wait.on.regionservers.timeout": "500",
        }

    def __enter__(self) -> HbaseServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()


def _site(settings: dict[str, str]) -> str:
    rows = (f"<property><name>{escape(k)}</name><value>{escape(v)}</value></property>" for k, v in settings.items())
    return "\n".join(["<configuration>", *rows, "</configuration>", ""])
