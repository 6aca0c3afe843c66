"""Fixtures of the drills: a broker for all, the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
from rich.console import Console

from tests.drills.kafka_job import KafkaJob
from tests.drills.report import Drill, table_of, total_faults, write_json
from tests.drills.store_job import StoreJob
from tests.support.events import Event
from tests.support.kafka_broker import KafkaBroker

DRILLS = pytest.StashKey[list[Drill]]()
BEGAN = pytest.StashKey[float]()
PROPERTY = "drill"

NewDrill = Callable[[str, str, int], Drill]
NewJob = Callable[..., KafkaJob]
NewStoreJob = Callable[..., StoreJob]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("drills")
    group.addoption("--drill-report", metavar="FILE", help="write the drills' table here, as JSON")
    group.addoption("--least-faults", metavar="N", help="fail when the drills injected fewer faults than this in all")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[DRILLS], config.stash[BEGAN] = [], time.monotonic()
    if not is_worker(config):
        config.pluginmanager.register(Collector(config))


def is_worker(config: pytest.Config) -> bool:
    """Whether this process runs tests for another one, which collects their reports and prints them."""
    return hasattr(config, "workerinput")


class Collector:
    """Takes the drills out of the tests' reports, from wherever the tests ran, and prints each one's line."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return
        drills = [Drill(**value) for name, value in report.user_properties if name == PROPERTY]  # type: ignore[arg-type]
        self._config.stash[DRILLS] += drills
        if drills:
            self._config.pluginmanager.getplugin("terminalreporter").write_line(
                "\n" + "\n".join(drill.line() for drill in drills)
            )


@pytest.fixture
def new_drill(request: pytest.FixtureRequest) -> Iterator[NewDrill]:
    """``new_drill(fault, table type, faults meant)``; :class:`Collector` prints the drill's line when the test is over."""
    here: list[Drill] = []

    def make(fault: str, table_type: str, meant: int) -> Drill:
        here.append(Drill(fault, table_type, meant))
        return here[-1]

    yield make
    # A report carries the properties from the process that ran the test to the one that prints.
    request.node.user_properties += [(PROPERTY, asdict(drill)) for drill in here]


@pytest.fixture
def new_job(tmp_path: Path, drill_broker: KafkaBroker, request: pytest.FixtureRequest) -> NewJob:
    """``new_job(table type, per_batch)``: a job on a topic and in folders of its own."""
    count = 0

    def make(table_type: str, per_batch: int, *, broker: KafkaBroker = drill_broker, **more: object) -> KafkaJob:
        nonlocal count
        count += 1
        folder = tmp_path / f"job-{count}"
        topic = f"{tmp_path.name}-{count}".replace("_", "-")
        return KafkaJob(folder, table_type, broker, topic, per_batch, **more)  # type: ignore[arg-type]

    return make


@pytest.fixture
def new_store_job(tmp_path: Path, request: pytest.FixtureRequest) -> NewStoreJob:
    """``new_store_job(store, table type, chunks)``: a job whose table and checkpoint lie on ``s3`` or ``hdfs``."""

    def make(store: str, table_type: str, chunks: Sequence[Sequence[Event]], **more: object) -> StoreJob:
        server, url = request.getfixturevalue(f"{store}_server"), request.getfixturevalue(f"{store}_folder")
        return StoreJob.at(server, url, tmp_path / "job", table_type, chunks, **more)

    return make


@pytest.fixture(scope="session")
def drill_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A running broker. Drills share it: use a topic of your own."""
    with KafkaBroker(tmp_path_factory.mktemp("drills") / "broker") as broker:
        yield broker


def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    if is_worker(config):
        return
    least = int(config.getoption("least_faults", None) or 0)
    if session.exitstatus == 0 and total_faults(config.stash[DRILLS]) < least:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if config.getoption("drill_report", None):
        path, seconds = Path(config.getoption("drill_report")), time.monotonic() - config.stash[BEGAN]
        write_json(config.stash[DRILLS], seconds, path)


def pytest_terminal_summary(config: pytest.Config) -> None:
    drills, seconds = config.stash[DRILLS], time.monotonic() - config.stash[BEGAN]
    if not drills:
        return
    Console(width=140).print(table_of(drills, seconds))
    least = int(config.getoption("least_faults", None) or 0)
    if total_faults(drills) < least:
        print(f"only {total_faults(drills)} faults, {least} are asked for")
