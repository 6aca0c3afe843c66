"""A real Kafka broker (KRaft, one node) on loopback: formatted, started, stopped, killed, started again.

The jars come by Maven once, into the project's cache. Ports are free ones, kept over a restart.
"""

from __future__ import annotations

import base64
import signal
import socket
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from tagstream.streaming.source.connector import CACHE_FOLDER, PROJECT, fetch_jars
from tests.support.kafka_listeners import PASSWORD, STORE_PASSWORD, USER, Listener, Stores, make_stores
from tests.support.process import Process, wait_for

START_SECONDS = 120.0
STOP_SECONDS = 60.0
JAVA = ("java", "-Xms128m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
# A cluster id is a base64 uuid; one broker a folder, so a constant serves.
CLUSTER_ID = base64.urlsafe_b64encode(b"tagstream-broker").decode().rstrip("=")

SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAIN",
    "num.partitions": "4",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # How long a killed broker blocks its own return.
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",
    "auto.create.topics.enable": "true",
}


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nothing uses now; all are held until all are known, so they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class KafkaBroker:
    """One broker with its folder. As a context manager: started, and stopped at the end. The folder stays."""

    def __init__(
        self,
        folder: Path,
        listeners: Sequence[str] = ("plain",),
        settings: dict[str, str] | None = None,
        port: int | None = None,
    ) -> None:
        """`listeners`: kinds of tests.support.kafka_listeners.LISTENERS; "plain" is always there.

        `settings` are added to server.properties, e.g. {"log.retention.ms": "1000"}. `port` is that of "plain", a free
        one by default. A folder that was formatted before keeps its messages.
        """
        self.folder = folder.resolve()
        self._jars = fetch_jars(PROJECT / "conf" / "poms" / "kafka-broker.xml", PROJECT / CACHE_FOLDER)[0].parent
        kinds = list(dict.fromkeys(["plain", *listeners]))
        *ports, self._controller_port = free_ports(len(kinds) + 1)
        ports[0] = port or ports[0]
        self._listeners = {kind: Listener(kind, port) for kind, port in zip(kinds, ports, strict=True)}
        self._stores: Stores | None = None
        self._settings = settings or {}
        self._process: Process | None = None
        self._format()

    def address(self, kind: str = "plain") -> str:
        """host:port of a listener."""
        return self._listeners[kind].address

    def java_client(self, kind: str = "plain") -> dict[str, str]:
        """Consumer keys for the job: bootstrap.servers, and security.protocol, sasl.*, ssl.* where needed."""
        return self._listeners[kind].java_client(self._stores)

    def python_client(self, kind: str = "plain") -> dict[str, Any]:
        """Arguments for kafka-python's clients."""
        return dict(self._listeners[kind].python_client(self._stores))

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return None if self._process is None else self._process.pid

    @property
    def log(self) -> Path:
        """What the broker wrote."""
        return self.folder / "broker.log"

    def start(self) -> None:
        """Start it and wait until it answers; on the same folder and ports when it ran before."""
        if self._process is not None:
            raise ValueError("the broker runs already")
        process = Process(self._java("kafka.Kafka", str(self.folder / "server.properties")), self.log)
        process.wait_until_up(self.answers, START_SECONDS, "the broker's answer")
        self._process = process

    def stop(self) -> None:
        """SIGTERM, then wait; nothing when it does not run."""
        if self._process is not None:
            self._process.send(signal.SIGTERM)
            self._process.wait(STOP_SECONDS)
            self._process = None

    def kill(self) -> None:
        """SIGKILL; nothing when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def answers(self) -> bool:
        """Whether it answers a request for its topics."""
        try:
            with socket.create_connection(("127.0.0.1", self._listeners["plain"].port), timeout=1):
                pass
            admin = KafkaAdminClient(**self.python_client(), request_timeout_ms=5000, bootstrap_timeout_ms=5000)
        except (KafkaError, OSError):
            return False
        try:
            admin.list_topics()
        except (KafkaError, OSError):
            return False
        finally:
            admin.close()
        return True

    def create_topic(self, topic: str, partitions: int = 4, configs: dict[str, str] | None = None) -> None:
        """Make a topic, `configs` as in {"retention.ms": "1000"}."""
        admin = KafkaAdminClient(**self.python_client())
        try:
            admin.create_topics(
                {topic: {"num_partitions": partitions, "replication_factor": 1, "configs": configs or {}}}
            )
        finally:
            admin.close()

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Let a topic grow to so many partitions."""
        admin = KafkaAdminClient(**self.python_client())
        try:
            admin.create_partitions({topic: partitions})
        finally:
            admin.close()

    def delete_topic(self, topic: str, missing_ok: bool = False) -> None:
        """Remove a topic with its records; returns when it is gone. ``missing_ok``: nothing where there is none."""
        admin = KafkaAdminClient(**self.python_client())
        try:
            if missing_ok and topic not in admin.list_topics():
                return
            admin.delete_topics([topic])
            wait_for(lambda: topic not in admin.list_topics(), STOP_SECONDS, f"the end of topic {topic}")
        finally:
            admin.close()

    def _format(self) -> None:
        formatted = (self.folder / "data" / "meta.properties").exists()
        self.folder.mkdir(parents=True, exist_ok=formatted)
        if any(listener.protocol.endswith("SSL") for listener in self._listeners.values()):
            self._stores = make_stores(self.folder)
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._server_settings().items()))
        if formatted:
            return
        arguments = ["format", "--cluster-id", CLUSTER_ID, "--config", str(properties)]
        if "sasl_scram" in self._listeners:
            arguments += ["--add-scram", f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"]
        done = Process(self._java("kafka.tools.StorageTool", *arguments), self.folder / "format.log")
        with done:
            if done.wait(START_SECONDS) != 0:
                raise RuntimeError(f"formatting the broker's folder failed: {done.output()}")

    def _server_settings(self) -> dict[str, str]:
        every = list(self._listeners.values())
        where = ",".join(f"{each.name}://{each.address}" for each in every)
        settings = SETTINGS | {
            "log.dirs": str(self.folder / "data"),
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "listeners": f"{where},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": where,
            "listener.security.protocol.map": ",".join(
                ["CONTROLLER:PLAINTEXT", *(f"{each.name}:{each.protocol}" for each in every)]
            ),
        }
        for each in every:
            settings |= each.broker_settings()
        if self._stores is not None:
            settings |= {
                "ssl.keystore.location": str(self._stores.key_store),
                "ssl.keystore.password": STORE_PASSWORD,
                "ssl.key.password": STORE_PASSWORD,
                "ssl.keystore.type": "PKCS12",
            }
        return settings | self._settings

    def _java(self, main: str, *arguments: str) -> list[str]:
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return [*JAVA, quiet, "-cp", f"{self._jars}/*", main, *arguments]

    def __enter__(self) -> KafkaBroker:
        if self._process is None:
            self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.stop()
        finally:
            self.kill()
