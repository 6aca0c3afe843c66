"""A batch of a topic is bounded in bytes, by the size of records where the stream goes on and at the end."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.options.cli import load_options
from tagstream.streaming.options.source_options import KafkaOptions
from tagstream.streaming.source.kafka_topic import events_a_batch
from tests.streaming.test_kafka_stream import kafka_case, send
from tests.support import events as ev
from tests.support import producer
from tests.support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


MOST = 1000


def options(tmp_path: Path, spark: SparkSession, broker: KafkaBroker, topic: str, limit: int) -> KafkaOptions:
    case = kafka_case(tmp_path, spark, broker, topic)
    return replace(load_options(case.arguments()).kafka, batch_bytes=limit)


def test_the_larger_of_two_means_counts(tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("sizes", 2)
    empty = options(tmp_path, spark, kafka_broker, "sizes", 10_000)
    assert events_a_batch(spark, empty, MOST, {}) == 1000
    sent = [(b"k" * 10, b"v" * 90)] * 4000 + [(b"k" * 10, b"v" * 990)] * 6000
    producer.send(sent, "sizes", kafka_broker.python_client())
    asked = options(tmp_path, spark, kafka_broker, "sizes", 100_000)
    at_the_end = {p: events_a_batch(spark, asked, MOST, {p: 10_000}) for p in (0, 1)}
    partition = next(p for p, events in at_the_end.items() if events == 100)  # 1000 bytes each
    assert events_a_batch(spark, asked, MOST, {}) == 100
    assert events_a_batch(spark, replace(asked, batch_bytes=2000), MOST, {partition: 5000}) == 2
    assert events_a_batch(spark, replace(asked, batch_bytes=10), MOST, {}) == 1
    assert events_a_batch(spark, replace(asked, batch_bytes=0), MOST, {}) == 1000
    assert events_a_batch(spark, replace(asked, batch_bytes=1 << 30), MOST, {}) == 1000


def test_a_stream_takes_no_more_than_that(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tagstream")
    kafka_broker.create_topic("bounded", 1)
    events = [ev.Event(f"k{n:03d}", "p0", 1, name="x" * 1000) for n in range(100)]
    send(kafka_broker, "bounded", events)
    case = kafka_case(tmp_path, spark, kafka_broker, "bounded")
    size = len(events[0].message()[1] or b"") + 4
    case = replace(case, conf={**case.conf, "tagstream.kafka.max.batch.bytes": str(size * 30)})
    assert [r.records for r in case.run()] == [30, 30, 30, 10]
    assert f"the mean size of its records is {size:,} bytes, so a batch reads up to 30 of them" in caplog.text
