"""A new checkpoint over a table with rows: the index is loaded from the table, and the stream goes on exactly."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.bootstrap.errors import IndexCoverageError
from tagstream.streaming.errors import CheckpointError, SourceError
from tagstream.streaming.recovery.takeover import QueryIndexLoad, read_query_index_load, write_query_index_load
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tagstream.table.storage.posix import PosixStorage
from tests.streaming.stream_case import StreamCase
from tests.streaming.test_guards import foreign_commit
from tests.streaming.test_kafka_stream import kafka_case, send
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker
from tests.support.table_version import timeline_of

pytestmark = pytest.mark.spark


def is_oracles(case: StreamCase, events: list[ev.Event]) -> None:
    expected = ev.rows(ev.oracle(events).values())
    assert not (wrong := compare(expected, read_table(case.table, meta_columns=False), ["id"])), wrong
    assert validate(HoodieTable.open(str(case.table))) == []


@pytest.mark.platform("a lost checkpoint")
@pytest.mark.extended("more kinds of tables", first=("MERGE_ON_READ",))
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_i_lost_my_checkpoint(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    # Deletes leave no trace in a copy-on-write table, so events older than a delete stay out of this stream.
    mix = ev.Mix(keys=80, late=0.0, late_deletes=0.0, duplicates=0.0, equal_ordering=0.0)
    events = list(ev.generate(900, mix, seed=31))
    case = StreamCase(tmp_path, spark, table_type)
    ev.write_files(events[:600], case.source, 200)
    case.run()
    shutil.rmtree(case.checkpoint)
    shutil.rmtree(case.source)
    ev.write_files(events[600:], case.source, 100, first=3)
    reports = case.run()
    assert len(reports) == 3
    assert sum(r.updates + r.moves for r in reports) > 100, "the loaded index knows no key"
    is_oracles(case, events)
    assert case.run() == []


def test_a_topic_goes_on_where_its_last_commit_ended(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker
) -> None:
    kafka_broker.create_topic("lost", partitions=2)
    events = list(ev.generate(600, ev.Mix(keys=80, late=0.0, late_deletes=0.0), seed=33))
    send(kafka_broker, "lost", events[:400], 2)
    case = kafka_case(tmp_path, spark, kafka_broker, "lost")
    case.run()
    shutil.rmtree(case.checkpoint)
    send(kafka_broker, "lost", events[400:], 2)
    reports = case.run()
    assert sum(r.records for r in reports) == 200
    is_oracles(case, events)


def test_a_topic_that_has_grown_is_read_on_in_all_its_partitions(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker
) -> None:
    kafka_broker.create_topic("grown", partitions=1)
    events = list(ev.generate(600, ev.Mix(keys=80, late=0.0, late_deletes=0.0), seed=35))
    send(kafka_broker, "grown", events[:300])
    case = kafka_case(tmp_path, spark, kafka_broker, "grown")
    case.run()
    shutil.rmtree(case.checkpoint)
    kafka_broker.add_partitions("grown", 3)
    send(kafka_broker, "grown", events[300:], 3)
    assert sum(r.records for r in case.run()) == 300
    is_oracles(case, events)


def test_a_topic_of_a_broker_without_ids_that_was_created_again(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tagstream.streaming.recovery.same_source.topic_id", lambda *_: None)
    kafka_broker.create_topic("anew", partitions=2)
    mix = ev.Mix(keys=80, late=0.0, deletes=0.0, late_deletes=0.0, deletes_without_partition=0.0)
    events = list(ev.generate(400, mix, seed=36))
    send(kafka_broker, "anew", events[:300], 2)
    case = kafka_case(tmp_path, spark, kafka_broker, "anew")
    case.run()
    shutil.rmtree(case.checkpoint)
    kafka_broker.delete_topic("anew")
    with pytest.raises(SourceError, match="Kafka topic anew does not exist"):
        case.run()
    kafka_broker.create_topic("anew", partitions=1)
    send(kafka_broker, "anew", events[300:])
    with pytest.raises(SourceError) as caught:
        case.run()
    for words in (
        f"table {case.table} has read topic anew up to offsets that the topic does not have any more",
        "partition 1 does not exist any more",
        "partition 0 ends at 100, but was read up to 1",
        "enable.failOnDataLoss=false",
    ):
        assert words in str(caught.value)
    case = replace(case, conf={**case.conf, "hoodie.streamer.source.kafka.enable.failOnDataLoss": "false"})
    assert sum(r.records for r in case.run()) == 100
    is_oracles(case, events)


def test_a_stream_that_reads_another_topic_is_not_given_its_offsets(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker
) -> None:
    named = {"hoodie.datasource.write.streaming.checkpoint.identifier": "orders"}
    for topic in ("orders-1", "orders-2"):
        kafka_broker.create_topic(topic, partitions=1)
        send(kafka_broker, topic, list(ev.generate(50, ev.Mix(keys=20), seed=37)))
    case = kafka_case(tmp_path, spark, kafka_broker, "orders-1")
    replace(case, conf={**case.conf, **named}).run()
    shutil.rmtree(case.checkpoint)
    other = replace(case, conf={**case.conf, **named, "hoodie.streamer.source.kafka.topic": "orders-2"})
    with pytest.raises(
        SourceError, match="stream orders of table .* has read topic orders-1, but the job reads orders-2"
    ):
        other.run()


@pytest.mark.extended("the same decisions over another real stream")
def test_a_death_between_the_loading_and_the_first_commit(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark)
    events = list(ev.generate(300, ev.Mix(keys=50), seed=37))
    ev.write_files(events[:200], case.source, 100)
    case.run()
    shutil.rmtree(case.checkpoint)
    shutil.rmtree(case.source)
    ev.write_files(events[200:], case.source, 100, first=2)
    case.run()
    # The first batch of the new query is taken back, as if it had died before it was committed.
    newest = max(timeline_of(case.table).glob("*.commit"))
    newest.unlink()
    for name in ("0", ".0.crc"):
        (case.checkpoint / "commits" / name).unlink(missing_ok=True)
    (report,) = case.run()
    assert (report.batch_id, report.replayed) == (0, False)
    is_oracles(case, events)


@pytest.mark.extended("the same decisions over another real stream")
def test_a_death_between_the_loading_and_its_record_while_the_table_goes_on(
    tmp_path: Path, spark: SparkSession
) -> None:
    case = StreamCase(tmp_path, spark)
    events = list(ev.generate(300, ev.Mix(keys=50), seed=41))
    ev.write_files(events[:200], case.source, 100)
    case.run()
    shutil.rmtree(case.checkpoint)
    shutil.rmtree(case.source)
    assert case.run() == []  # the index is loaded, nothing is streamed
    (case.checkpoint / "tagstream" / "takeover" / "1.json").unlink()
    foreign_commit(case, "29990101000000000")
    ev.write_files(events[200:], case.source, 100, first=2)
    assert len(case.run()) == 1
    assert read_query_index_load(PosixStorage(str(case.checkpoint))) == QueryIndexLoad(2)
    is_oracles(case, events)


def test_a_driver_that_wakes_up_does_not_bring_an_older_generation_back(tmp_path: Path) -> None:
    query_folder = PosixStorage(str(tmp_path))
    assert read_query_index_load(query_folder) is None
    query_folder.replace(
        "tagstream/takeover.json", b'{"version": 2, "generation": 3}'
    )  # of an earlier version of the program
    assert read_query_index_load(query_folder) == QueryIndexLoad(3)
    write_query_index_load(query_folder, QueryIndexLoad(10))
    write_query_index_load(query_folder, QueryIndexLoad(9))
    assert read_query_index_load(query_folder) == QueryIndexLoad(10)
    query_folder.replace("tagstream/takeover/10.json", b"{")
    with pytest.raises(CheckpointError, match=r"10\.json is damaged"):
        read_query_index_load(query_folder)


def test_without_leave_the_index_is_not_loaded(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark)
    ev.write_files(ev.generate(100, seed=39), case.source, 100)
    case.run()
    shutil.rmtree(case.checkpoint)
    with pytest.raises(IndexCoverageError, match="index.bootstrap.enabled=false"):
        replace(case, conf={"index.bootstrap.enabled": "false"}).run()
