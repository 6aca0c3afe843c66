"""Streams from a real broker: offsets in the commits, tombstones, and every kind of listener."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from tests.streaming.stream_case import StreamCase
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_listeners import LISTENERS
from tests.support.stored import newest_extra

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def send(broker: KafkaBroker, topic: str, events: list[ev.Event], partitions: int = 1) -> None:
    """Each key goes to one partition, so its events stay in order."""
    producer = KafkaProducer(**broker.python_client())
    for event in events:
        key, value = event.message()
        producer.send(topic, key=key, value=value, partition=sum(key) % partitions)
    producer.flush()
    producer.close()


def kafka_case(tmp_path: Path, spark: SparkSession, broker: KafkaBroker, topic: str, kind: str = "plain") -> StreamCase:
    conf = {"hoodie.streamer.source.kafka.topic": topic, **broker.java_client(kind)}
    return StreamCase(tmp_path, spark, "MERGE_ON_READ", conf)


@pytest.mark.platform("a Kafka stream")
def test_tombstones_and_offsets_in_the_commits(tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("tombstones", partitions=3)
    events = list(ev.generate(1500, ev.Mix(keys=120, tombstones=0.08), seed=21))
    send(kafka_broker, "tombstones", events[:1000], 3)
    case = kafka_case(tmp_path, spark, kafka_broker, "tombstones")
    first = case.run("--source-limit", "400")
    assert len(first) == 3
    send(kafka_broker, "tombstones", events[1000:], 3)
    case.run()
    expected = ev.rows(ev.oracle(events).values())
    assert not (wrong := compare(expected, read_table(case.table, meta_columns=False), ["id"])), wrong

    extra = newest_extra(case.table)
    topic, *parts = extra["deltastreamer.checkpoint.key"].split(",")
    assert topic == "tombstones"
    assert sum(int(p.split(":")[1]) for p in parts) == len(events)
    query = json.loads(extra["tagstream.commit"])["query_id"]
    assert json.loads(extra["_hudi_streaming_sink_checkpoint"]) == {query: "3"}


@pytest.mark.extended("more listeners of the broker", first=("sasl_tls",))
@pytest.mark.parametrize("kind", [k for k in LISTENERS if k != "plain"])
def test_secured_listeners_are_read(tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker, kind: str) -> None:
    topic = f"secured-{kind.replace('_', '-')}"
    kafka_broker.create_topic(topic, partitions=1)
    events = list(ev.generate(200, ev.Mix(keys=50), seed=5))
    send(kafka_broker, topic, events)
    case = kafka_case(tmp_path, spark, kafka_broker, topic, kind)
    case.run()
    expected = ev.rows(ev.oracle(events).values())
    assert not (wrong := compare(expected, read_table(case.table, meta_columns=False), ["id"])), wrong
