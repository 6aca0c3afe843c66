"""Other writers at work while a batch is: pending at its commit, completed in between, or begun in the last moment."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tests.streaming.stream_case import StreamCase
from tests.streaming.test_kafka_stream import kafka_case, send
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.foreign_writer import ForeignWriter, HeldCommit
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker

pytestmark = pytest.mark.spark
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]
FIRST = [ev.Event(f"k{i}", "p0", 1, name="first") for i in range(4)]
OURS = [ev.Event("k0", "p0", 100, name="ours"), ev.Event("k1", "p0", 100, name="ours")]
THEIRS = [ev.Event("k2", "p0", 50, name="theirs")]


def is_oracles(case: StreamCase, events: list[ev.Event]) -> None:
    expected = ev.rows(ev.oracle(events).values())
    assert not (wrong := compare(expected, read_table(case.table, meta_columns=False), ["id"])), wrong
    assert validate(HoodieTable.open(str(case.table))) == []


def started(case: StreamCase) -> ForeignWriter:
    """The stream has committed the first rows; its second batch waits in the source."""
    ev.write_files(FIRST, case.source, 4)
    case.run()
    ev.write_files(OURS, case.source, 2, first=1)
    return ForeignWriter(case.table)


def completing(held: HeldCommit, tries: list[int]) -> Callable[[str, int], None]:
    """A hook that notes each try of a batch, and completes the other writer's commit after the first one."""

    def at(point: str, batch: int) -> None:
        if point == "files_written":
            tries.append(batch)
            if len(tries) == 1:
                threading.Timer(2.0, held.complete).start()

    return at


def commits(case: StreamCase) -> list[str]:
    return [i.time for i in HoodieTable.open(str(case.table)).timeline().completed_writes]


@pytest.mark.extended(
    "more steps and kinds of tables",
    first=("upsert-files_written-MERGE_ON_READ",),
)
@pytest.mark.parametrize("table_type", TYPES)
@pytest.mark.parametrize("step", ["inflight", "files_written", "manifest_durable"])
@pytest.mark.parametrize("what", ["upsert", "cluster"])
def test_a_write_that_is_pending_when_we_commit(
    tmp_path: Path, spark: SparkSession, table_type: str, step: str, what: str
) -> None:
    case = StreamCase(tmp_path, spark, table_type)
    writer = started(case)
    held: list[HeldCommit] = []

    def begin(point: str, batch: int) -> None:
        if (point, batch) == (step, 1) and not held:
            held.append(writer.hold_upsert(THEIRS) if what == "upsert" else writer.hold_cluster("p0"))
            threading.Timer(1.5, held[0].complete).start()

    case.run(at=begin)
    assert held
    theirs = THEIRS if what == "upsert" else []
    is_oracles(case, [*FIRST, *theirs, *OURS])
    assert case.run() == []


def test_the_batch_waits_for_a_pending_write_and_is_not_done_again_for_nothing(
    tmp_path: Path, spark: SparkSession
) -> None:
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE")
    ev.write_files([ev.Event("other", "p9", 1, name="first")], case.source, 1, first=9)
    case.run()
    writer = started(case)
    held: list[HeldCommit] = []
    tries: list[int] = []

    def begin(point: str, batch: int) -> None:
        if point == "files_written":
            tries.append(batch)
            if not held:
                held.append(writer.hold_upsert([ev.Event("other", "p9", 2, name="theirs")]))
                threading.Timer(1.0, held[0].complete).start()

    case.run(at=begin)
    assert len(tries) == 1
    assert held[0].instant in commits(case)
    # The next batch begins with the other writer's rows in the index.
    more = [ev.Event("other", "p8", 3, name="moved"), *THEIRS]
    ev.write_files(more, case.source, 2, first=5)
    (report,) = case.run()
    assert (report.moves, report.updates) == (1, 1)
    is_oracles(case, [ev.Event("other", "p9", 1), *FIRST, *OURS, *more])


@pytest.mark.extended("more kinds of tables", first=("COPY_ON_WRITE",))
@pytest.mark.parametrize("table_type", TYPES)
def test_a_new_key_that_both_write(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    case = StreamCase(tmp_path, spark, table_type)
    writer = started(case)
    ours = [ev.Event("new", "p1", 10, name="ours")]
    ev.write_files(ours, case.source, 1, first=2)
    done: list[str] = []

    def begin(point: str, batch: int) -> None:
        if (point, batch) == ("files_written", 2) and not done:
            done.append(writer.upsert([ev.Event("new", "p2", 9, name="theirs")]))

    case.run(at=begin)
    assert done
    is_oracles(case, [*FIRST, *OURS, *ours])


@pytest.mark.extended("more kinds of tables", first=("MERGE_ON_READ-cluster",))
@pytest.mark.parametrize(
    ("table_type", "what"), [("COPY_ON_WRITE", "upsert"), ("COPY_ON_WRITE", "cluster"), ("MERGE_ON_READ", "cluster")]
)
def test_rows_that_a_late_writer_took_away_are_read_again(
    tmp_path: Path,
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    caplog: pytest.LogCaptureFixture,
    table_type: str,
    what: str,
) -> None:
    topic = f"swallowed-{table_type.lower()}-{what}"
    kafka_broker.create_topic(topic, partitions=2)
    case = kafka_case(tmp_path, spark, kafka_broker, topic)
    case.table_type = table_type
    send(kafka_broker, topic, FIRST, 2)
    case.run()
    send(kafka_broker, topic, OURS, 2)
    writer = ForeignWriter(case.table)
    held = writer.hold_upsert(THEIRS, late=True) if what == "upsert" else writer.hold_cluster("p0", late=True)
    (report,) = case.run()
    assert report.instant is not None
    held.complete()  # it read the table before our commit and begins after it
    rows = {r["id"]: r["name"] for r in read_table(case.table).to_pylist()}
    assert rows["k0"] == "first", "nothing was lost: the test tests nothing"
    more = [ev.Event("k3", "p0", 7, name="later")]
    send(kafka_broker, topic, more, 2)
    with caplog.at_level(logging.WARNING, "tagstream"):
        reports = case.run()
    assert sum(r.records for r in reports) == len(OURS) + len(more)  # not the first batch again
    theirs = THEIRS if what == "upsert" else []
    is_oracles(case, [*FIRST, *theirs, *OURS, *more])
    (said,) = (r.message for r in caplog.records if "removed its rows from" in r.message)
    assert report.instant in said
    assert "p0" in said
    caplog.clear()
    with caplog.at_level(logging.WARNING, "tagstream"):
        assert case.run() == []
    assert not any("removed its rows from" in r.message for r in caplog.records)


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("table_type", TYPES)
def test_a_column_that_another_writer_adds_in_mid_run(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    case = StreamCase(tmp_path, spark, table_type)
    started(case)
    more = [ev.Event("k3", "p0", 100, name="ours"), ev.Event("k9", "p9", 1, name="ours")]
    ev.write_files(more, case.source, 2, first=2)
    done: list[str] = []

    def begin(point: str, batch: int) -> None:
        if (point, batch) == ("files_written", 1) and not done:
            noted = [ev.Event("k2", "p0", 50, name="noted"), ev.Event("theirs", "p5", 50, name="noted")]
            done.append(ForeignWriter(case.table, note=True).upsert(noted))

    case.run(at=begin)
    table = {r["id"]: r for r in read_table(case.table).to_pylist()}
    assert {key: row["note"] for key, row in table.items() if row["note"] is not None} == {
        "k2": "noted",
        "theirs": "noted",
    }
    assert {key: row["name"] for key, row in table.items()} == {
        "k0": "ours", "k1": "ours", "k2": "noted", "k3": "ours", "k9": "ours", "theirs": "noted",
    }  # fmt: skip
    assert case.run() == []


@pytest.mark.extended("the same decisions over another real stream")
@pytest.mark.parametrize("table_type", TYPES)
def test_a_planned_clustering_is_left_to_its_writer_and_waited_for(
    tmp_path: Path, spark: SparkSession, table_type: str, caplog: pytest.LogCaptureFixture
) -> None:
    case = StreamCase(tmp_path, spark, table_type)
    writer = started(case)
    held = writer.hold_cluster("p0")
    tries: list[int] = []
    with caplog.at_level(logging.WARNING, "tagstream"):
        case.run(at=completing(held, tries))
    assert any("another writer is clustering" in r.message for r in caplog.records)
    assert len(tries) == 2
    assert held.instant in commits(case)
    is_oracles(case, [*FIRST, *OURS])


@pytest.mark.extended("the same decisions over another real stream")
def test_a_batch_beside_a_planned_clustering_goes_on(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE")
    writer = started(case)
    case.run()
    held = writer.hold_cluster("p0")
    other = [ev.Event("x", "p7", 1, name="x"), ev.Event("k9", "p0", 1, name="new")]
    ev.write_files(other, case.source, 2, first=7)
    case.run()  # a new row of p0 does not go to the file group that is being clustered, small as it is
    assert held.instant not in commits(case)
    held.complete()
    is_oracles(case, [*FIRST, *OURS, *other])


def test_an_overwrite_waits_for_a_planned_clustering_of_what_it_replaces(tmp_path: Path, spark: SparkSession) -> None:
    """Hudi does not look whether a file group of its plan was replaced: its new file groups would have the old rows."""
    told = {"hoodie.datasource.write.operation": "INSERT_OVERWRITE", "hoodie.index.type": "SIMPLE"}
    case = StreamCase(tmp_path, spark, conf=told)
    held = started(case).hold_cluster("p0")
    tries: list[int] = []
    case.run(at=completing(held, tries))
    assert len(tries) == 2
    assert held.instant in commits(case)
    is_oracles(case, OURS)
