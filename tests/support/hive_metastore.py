"""A real Hive Metastore on loopback, with its database in a folder: it finds its tables again after a restart.

The jars come by Maven once, into the project's cache. As a program it runs until it is killed:
``python -m tests.support.hive_metastore --folder F --port PORT [--version 4.0.1]``.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from xml.sax.saxutils import escape

from tagstream.catalog.catalog import CatalogError
from tagstream.catalog.hive_metastore import HiveMetastore
from tagstream.catalog.opened import tls_context
from tagstream.streaming.source.connector import CACHE_FOLDER, PROJECT, fetch_jars
from tests.support.kafka_broker import free_ports
from tests.support.process import Process

VERSIONS = ("3.1.3", "4.0.1")
START_SECONDS = 240.0
_OPENED = ("java.lang", "java.net", "java.util", "java.util.concurrent", "java.io", "java.nio", "sun.nio.ch")
JAVA = (
    "java", "-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
    *(f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED),
)  # fmt: skip
LOOPBACK = "127.0.0.1"
_PASSWORD = "password"  # of the test's key store


class MetastoreServer:
    """One metastore. As a context manager: started, and killed at the end."""

    def __init__(self, folder: Path, version: str = VERSIONS[0], port: int | None = None, *, tls: bool = False) -> None:
        """`folder`: its settings, log and database, which a restart finds again. `tls`: with a certificate of its own."""
        self.folder, self.version, self.tls = folder.resolve(), version, tls
        self.port = port if port is not None else free_ports(1)[0]
        pom = PROJECT / "conf" / "poms" / f"hive-metastore-{version}.xml"
        self._jars = fetch_jars(pom, PROJECT / CACHE_FOLDER)[0].parent
        (self.folder / "conf").mkdir(parents=True, exist_ok=True)
        (self.folder / "conf" / "metastore-site.xml").write_text(_site(self._settings()))
        self._process: Process | None = None
        if tls and not self.ca_file.exists():
            self._make_certificate()

    @property
    def ca_file(self) -> Path:
        """The certificate, as PEM."""
        return self.folder / "metastore.pem"

    @property
    def uri(self) -> str:
        """What `hoodie.datasource.hive_sync.metastore.uris` has to be."""
        return f"thrift://{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        path = f"{self.folder / 'conf'}:{self._jars}/*"
        main = ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(self.port)]
        derby = f"-Dderby.stream.error.file={self.folder / 'derby.log'}"
        self._process = Process([*JAVA, derby, "-cp", path, *main], self.folder / "metastore.log", cwd=self.folder)
        try:
            self._process.wait_for(self.answers, START_SECONDS, "an answer of the metastore")
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def answers(self) -> bool:
        """Whether it has its default database."""
        client = self.client()
        try:
            return client.has_database("default")
        except CatalogError:
            return False
        finally:
            client.close()

    def client(self) -> HiveMetastore:
        """A connection of the test's own."""
        return HiveMetastore([self.uri], "tester", tls=tls_context(str(self.ca_file)) if self.tls else None)

    def _make_certificate(self) -> None:
        store = ["-alias", "metastore", "-keystore", str(self._keystore), "-storepass", _PASSWORD]
        made = [
            "-genkeypair",
            "-keyalg",
            "RSA",
            "-validity",
            "30",
            "-dname",
            "CN=metastore",
            "-ext",
            f"SAN=ip:{LOOPBACK}",
        ]
        subprocess.run(
            ["keytool", *made, *store, "-storetype", "JKS", "-keypass", _PASSWORD], check=True, capture_output=True
        )
        found = subprocess.run(["keytool", "-exportcert", "-rfc", *store], check=True, capture_output=True)
        self.ca_file.write_bytes(found.stdout)

    @property
    def _keystore(self) -> Path:
        return self.folder / "metastore.jks"

    def _settings(self) -> dict[str, str]:
        return {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={self.folder}/db;create=true",
            "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
            "datanucleus.schema.autoCreateAll": "true",
            "metastore.schema.verification": "false",
            "hive.metastore.schema.verification": "false",
            "metastore.thrift.uris": self.uri,
            "metastore.thrift.bind.host": LOOPBACK,
            "metastore.warehouse.dir": f"file://{self.folder}/warehouse",
            "metastore.event.db.notification.api.auth": "false",
            "metastore.task.threads.always": "org.apache.hadoop.hive.metastore.events.EventCleanerTask",
            "metastore.expression.proxy": "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy",
            "metastore.compactor.initiator.on": "false",
            "metastore.stats.autogather": "false",
            **(
                {
                    "metastore.use.SSL": "true",
                    "metastore.keystore.path": str(self._keystore),
                    "metastore.keystore.password": _PASSWORD,
                }
                if self.tls
                else {}
            ),
        }

    def __enter__(self) -> MetastoreServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()


def _site(settings: dict[str, str]) -> str:
    rows = (f"<property><name>{escape(k)}</name><value>{escape(v)}</value></property>" for k, v in settings.items())
    return "\n".join(["<configuration>", *rows, "</configuration>", ""])


def main() -> None:
    """Run a metastore until a signal ends this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--port", type=int)
    parser.add_argument("--version", choices=VERSIONS, default=VERSIONS[0])
    arguments = parser.parse_args()
    with MetastoreServer(arguments.folder, arguments.version, arguments.port) as server:
        print(server.uri, flush=True)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
