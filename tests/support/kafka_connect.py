"""A real Kafka Connect with Debezium's connector of PostgreSQL, in one process beside a broker.

The jars come by Maven once (50 MB), into the project's cache.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from tagstream.streaming.source.connector import CACHE_FOLDER, PROJECT, fetch_jars
from tests.support.kafka_broker import JAVA, KafkaBroker, free_ports
from tests.support.postgres import USER, Postgres
from tests.support.process import Process, wait_for

START_SECONDS = 180.0
CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


class KafkaConnect:
    """One worker with its folder. As a context manager: started, and killed at the end."""

    def __init__(self, folder: Path, broker: KafkaBroker) -> None:
        self.folder = folder
        self._jars = fetch_jars(PROJECT / "conf" / "poms" / "kafka-connect.xml", PROJECT / CACHE_FOLDER)[0].parent
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        self._process: Process | None = None
        folder.mkdir(parents=True)
        settings = {
            "bootstrap.servers": broker.address(),
            "listeners": self.url,
            "offset.storage.file.filename": str(folder / "offsets"),
            "offset.flush.interval.ms": "1000",
            "key.converter": CONVERTER,
            "value.converter": CONVERTER,
        }
        (folder / "worker.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def __enter__(self) -> KafkaConnect:
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        command = [*JAVA, "-cp", f"{self._jars}/*", main, str(self.folder / "worker.properties")]
        self._process = Process(command, self.folder / "connect.log", cwd=self.folder)
        self._process.wait_until_up(
            lambda: self._ask("GET", "/connectors") == [], START_SECONDS, "Kafka Connect's answer"
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            self._process.kill()

    def read(self, database: Postgres, name: str, publication: str, **more: str) -> None:
        """Start a connector: the publication's tables go to the topics ``NAME.SCHEMA.TABLE``, as JSON with its schema.

        The topics have two partitions. Returns when the connector reads the log, its snapshot may still be under way.
        """
        settings = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "database.hostname": "127.0.0.1",
            "database.port": str(database.port),
            "database.user": USER,
            "database.password": "none",
            "database.dbname": "postgres",
            "plugin.name": "pgoutput",
            "publication.name": publication,
            "slot.name": name,
            "topic.prefix": name,
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "2",
            # A record is on the broker before one that was read later, in whatever topic: a mark tells that all is there.
            "producer.override.max.in.flight.requests.per.connection": "1",
            **more,
        }
        self._ask("PUT", f"/connectors/{name}/config", settings)
        with database.connect() as db:

            def active() -> bool:
                self.check(name)
                row = db.execute("select active from pg_replication_slots where slot_name = %s", (name,)).fetchone()
                return row is not None and bool(row[0])

            wait_for(active, START_SECONDS, f"connector {name} to read the log")

    def check(self, name: str) -> None:
        """AssertionError with the trace of a task that has failed."""
        status = self._ask("GET", f"/connectors/{name}/status") or {"tasks": []}
        for task in status["tasks"]:
            assert task["state"] != "FAILED", task["trace"][:4000]

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer; None where there is none."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            if method != "GET":
                raise RuntimeError(f"Kafka Connect refused {path}: {error.read().decode()[:2000]}") from error
            return None
        except OSError:
            return None
