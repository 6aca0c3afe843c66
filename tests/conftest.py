"""Fixtures shared by all tests: one Spark session, one HBase and at most one broker of each kind a process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tagstream.table.storage.settings import keep_settings
from tests.support import budget, tiers, tools
from tests.support.class_archive import use_class_archive
from tests.support.kafka_listeners import LISTENERS
from tests.support.table_version import using, versions_of

if TYPE_CHECKING:  # a test run that needs neither pays for neither
    from pyspark.sql import SparkSession

    from tests.support.hbase import HbaseServer
    from tests.support.hdfs import HdfsServer
    from tests.support.http_proxy import HttpProxy
    from tests.support.kafka_broker import KafkaBroker
    from tests.support.s3_server import S3Server

_numbers = count()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of a run: which tests, and until when."""
    budget.add_option(parser)
    tiers.add_option(parser)
    tools.add_option(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Before the first JVM: what makes it start quickly."""
    use_class_archive()
    # The same examples in every run, whatever the machine's speed: a failure is one that everybody sees.
    settings.register_profile(
        "tagstream", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "tagstream"))
    config.pluginmanager.register(tiers.SlowTests(config))
    config.pluginmanager.register(budget.Budget())
    tools.configure(config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The tests that were not run for want of a program or of time: never without a word."""
    if left := tools.not_run(terminalreporter):
        terminalreporter.section(f"not run: {len(left)} tests need programs that are not installed")
        for line in left:
            terminalreporter.line(line)
    if late := budget.not_started(terminalreporter):
        terminalreporter.section(f"not run: {len(late)} tests, for which there was no time left")
        for line in late:
            terminalreporter.line(line)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The tests of the tier that is asked for."""
    tiers.choose(config, items)
    budget.rotate(config, items)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with the mark ``table_versions`` runs on tables of each version that it names.

    A run that asks for one version gets that one of every test which has it between its least and its greatest, or among
    its ``also``.
    """
    mark = metafunc.definition.get_closest_marker("table_versions")
    if mark is not None:
        if "version" not in metafunc.fixturenames:
            metafunc.fixturenames.append("version")
        versions = versions_of(mark.args, **mark.kwargs)
        between = pytest.mark.between
        shown = [
            pytest.param(each, marks=between if each not in (versions[0], versions[-1]) else ()) for each in versions
        ]
        metafunc.parametrize("version", shown, indirect=True, ids=[f"v{each}" for each in versions])


@pytest.fixture
def version(request: pytest.FixtureRequest) -> Iterator[int]:
    """The version of the tables that the test makes."""
    with using(request.param) as chosen:
        yield chosen


@pytest.fixture(autouse=True)
def _of_version(request: pytest.FixtureRequest) -> None:
    """A test that has the mark and does not ask for ``version`` gets it all the same: pytest alone would leave it out."""
    if request.node.get_closest_marker("table_versions") is not None:
        request.getfixturevalue("version")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Local session on two threads, with the Kafka connector; its files go to a temporary folder."""
    from tagstream.streaming.job.session import start_session
    from tagstream.streaming.source.connector import connector_jars

    folder = tmp_path_factory.mktemp("spark")
    conf = {
        "spark.master": "local[2,4]",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": "1g",
    }
    session = start_session("tests", jars=[str(jar) for jar in connector_jars()], conf=conf, env=os.environ)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A running broker with every kind of listener. Tests share it: use a topic of your own."""
    from tests.support.kafka_broker import KafkaBroker

    with KafkaBroker(tmp_path_factory.mktemp("kafka") / "broker", LISTENERS) as broker:
        yield broker


@pytest.fixture
def items_topic(kafka_broker: KafkaBroker) -> Iterator[str]:
    """The topic of the captured ``shop.items``, empty, with two partitions: records and registry know it by this name."""
    # A consumer that Spark keeps from an earlier test asks for it again minutes later, and the broker makes it anew.
    kafka_broker.delete_topic("shop.items", missing_ok=True)
    kafka_broker.create_topic("shop.items", partitions=2)
    yield "shop.items"
    kafka_broker.delete_topic("shop.items")


@pytest.fixture
def own_kafka_broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    """A running plaintext broker of the test's own, to stop and kill."""
    from tests.support.kafka_broker import KafkaBroker

    with KafkaBroker(tmp_path / "broker") as broker:
        yield broker


@pytest.fixture(scope="session")
def hbase_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HbaseServer]:
    """A running HBase. Tests share it: use a table of your own, and leave it running."""
    from tests.support.hbase import HbaseServer

    with HbaseServer(tmp_path_factory.mktemp("hbase") / "server") as server:
        yield server


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A running S3 server. Tests share it: use a folder of your own, and leave it running."""
    from tests.support.s3_server import S3Server

    with S3Server(tmp_path_factory.mktemp("s3") / "server") as server:
        yield server


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[HttpProxy]:
    """A proxy before the S3 server, to count and to go wrong."""
    from tests.support.http_proxy import HttpProxy

    with HttpProxy(s3_server.port) as running:
        yield running


@pytest.fixture
def s3_folder(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty folder on it; this process and those it starts know how to reach it."""
    keep_settings(s3_server.settings(), environment := {})
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return f"s3a://{s3_server.bucket}/{next(_numbers)}"


@pytest.fixture(scope="session")
def hdfs_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """A running HDFS. Tests share it: use a folder of your own, and leave it running."""
    from tests.support.hdfs import HdfsServer

    with HdfsServer(tmp_path_factory.mktemp("hdfs") / "server") as server:
        yield server


@pytest.fixture
def hdfs_folder(hdfs_server: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty folder on it; this process and those it starts know how to reach it."""
    keep_settings(hdfs_server.settings(), environment := {})
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return f"{hdfs_server.url}/{next(_numbers)}"
