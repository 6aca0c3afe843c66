"""A batch of a topic is bounded in bytes, by the size of records where the stream goes on and at the end."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.options.cli import load_options
from tagstream.streaming.options.options import Options
from tagstream.streaming.source.kafka_topic import events_a_batch
from tests.streaming.test_kafka_stream import kafka_case, send
from tests.support import events as ev
from tests.support import producer
from tests.support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def options(tmp_path: Path, spark: SparkSession, broker: KafkaBroker, topic: str, limit: int) -> Options:
    case = kafka_case(tmp_path, spark, broker, topic)
    return replace(load_options(case.arguments()), kafka_batch_bytes=limit, source_limit=1000)


def test_the_larger_of_two_means_counts(tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    kafka_broker.create_topic("sizes", 2)
    assert events_a_batch(spark, options(tmp_path, spark, kafka_broker, "sizes", 10_000), {}) == 1000  # nothing there
    sent = [(b"k" * 10, b"v" * 90)] * 4000 + [(b"k" * 10, b"v" * 990)] * 6000
    producer.send(sent, "sizes", kafka_broker.python_client())
    asked = options(tmp_path, spark, kafka_broker, "sizes", 100_000)
    partition = next(p for p in (0, 1) if events_a_batch(spark, asked, {p: 10_000}) == 100)  # 1000 bytes at the end
    assert events_a_batch(spark, asked, {}) == 100
    assert events_a_batch(spark, replace(asked, kafka_batch_bytes=2000), {partition: 5000}) == 2
    assert events_a_batch(spark, replace(asked, kafka_batch_bytes=10), {}) == 1
    assert events_a_batch(spark, replace(asked, kafka_batch_bytes=0), {}) == 1000
    assert events_a_batch(spark, replace(asked, kafka_batch_bytes=1 << 30), {}) == 1000


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
    assert f"its records have {size:,} bytes in the mean, so a batch takes up to 30 of them" in caplog.text
