"""A topic that was deleted and created again is another one: offsets of the old one are never taken for its own."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from tagstream.streaming.errors import CheckpointError, SourceError
from tagstream.streaming.source.kafka_topic import topic_offsets
from tests.streaming.stream_case import StreamCase
from tests.streaming.test_kafka_stream import kafka_case, send
from tests.support import events as ev
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

LOSS = {"hoodie.streamer.source.kafka.enable.failOnDataLoss": "false"}


def events(first: int, count: int) -> list[ev.Event]:
    return [ev.Event(f"k{number}", "p0", 1, name="n") for number in range(first, first + count)]


def keys(case: StreamCase) -> set[int]:
    return {int(key[1:]) for key in read_table(case.table, meta_columns=False)["id"].to_pylist()}


def again(broker: KafkaBroker, topic: str, new: list[ev.Event]) -> None:
    broker.delete_topic(topic)
    broker.create_topic(topic, partitions=1)
    send(broker, topic, new)


def streamed(folder: Path, spark: SparkSession, broker: KafkaBroker, topic: str, **conf: str) -> StreamCase:
    """A table of the first ten events of a new topic."""
    broker.create_topic(topic, partitions=1)
    send(broker, topic, events(0, 10))
    case = kafka_case(folder, spark, broker, topic)
    case = replace(case, conf={**case.conf, **conf})
    case.run()
    return case


@pytest.mark.parametrize("records", [20, 5, 10])
def test_it_is_refused_and_read_from_its_beginning_where_the_loss_is_accepted(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker, records: int
) -> None:
    topic = f"again-{records}"
    case = streamed(tmp_path, spark, kafka_broker, topic)
    assert case.run() == []
    again(kafka_broker, topic, events(100, records))
    for _ in range(2):
        with pytest.raises(SourceError, match=f"topic {topic} was deleted and created again .*failOnDataLoss=false"):
            case.run()
    lost = replace(case, conf={**case.conf, **LOSS})
    assert sum(report.records for report in lost.run()) == records
    assert keys(case) == {*range(10), *range(100, 100 + records)}
    send(kafka_broker, topic, events(200, 3))
    assert sum(report.records for report in case.run()) == 3, "the new topic is the stream's from here on"


def test_a_new_checkpoint_knows_it_from_the_commits(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker
) -> None:
    case = streamed(tmp_path, spark, kafka_broker, "again-new")
    again(kafka_broker, "again-new", events(100, 20))
    shutil.rmtree(case.checkpoint)
    with pytest.raises(SourceError, match="was deleted and created again"):
        case.run()
    assert sum(report.records for report in replace(case, conf={**case.conf, **LOSS}).run()) == 20
    assert keys(case) == {*range(10), *range(100, 120)}


@pytest.mark.parametrize("accepted", [False, True])
def test_nothing_is_committed_where_it_happens_while_a_batch_runs(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker, accepted: bool
) -> None:
    topic = f"again-meanwhile-{accepted}".lower()
    case = streamed(tmp_path, spark, kafka_broker, topic)
    case = replace(case, conf={**case.conf, **(LOSS if accepted else {})})
    send(kafka_broker, topic, events(50, 5))
    done: list[int] = []

    def at(step: str, batch: int) -> None:
        if step == "files_written" and not done:
            done.append(batch)
            again(kafka_broker, topic, events(100, 20))

    if not accepted:
        with pytest.raises(SourceError, match="was deleted and created again since"):
            case.run(at=at)
        assert keys(case) == {*range(10)}
        return
    assert sum(report.records for report in case.run(at=at)) == 20
    assert keys(case) == {*range(10), *range(100, 120)}


def test_a_damaged_note_is_named(tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    case = streamed(tmp_path, spark, kafka_broker, "again-damaged")
    note = case.checkpoint / "tagstream" / "source" / "topic.json"
    note.write_text("{")
    with pytest.raises(CheckpointError, match=r"topic\.json is damaged"):
        case.run()
    note.unlink()  # as in a checkpoint of an earlier version
    send(kafka_broker, "again-damaged", events(20, 2))
    assert sum(report.records for report in case.run()) == 2
    assert note.exists()


def test_an_open_transaction_keeps_nothing_waiting(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker
) -> None:
    """The start looks at the sizes of records that it can read, not at those of the transaction."""
    case = streamed(tmp_path, spark, kafka_broker, "open-transaction", **{"isolation.level": "read_committed"})
    writer = KafkaProducer(**kafka_broker.python_client(), transactional_id="t", transaction_timeout_ms=600_000)
    writer.init_transactions()
    writer.begin_transaction()
    key, value = events(20, 1)[0].message()
    writer.send("open-transaction", key=key, value=value, partition=0)
    writer.flush()
    send(kafka_broker, "open-transaction", events(30, 2))
    plain = {f"kafka.{name}": value for name, value in kafka_broker.java_client().items()}
    for level, end in (("read_committed", 10), ("read_uncommitted", 13)):
        told = topic_offsets(spark, "open-transaction", {**plain, "kafka.isolation.level": level})
        assert told[0].latest == end, level
    try:
        assert case.run() == []
        assert keys(case) == {*range(10)}
    finally:
        writer.commit_transaction()
        writer.close()
    assert sum(report.records for report in case.run()) == 3
