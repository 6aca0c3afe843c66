"""Spark's own Kafka connector, from the jars that Maven brought, by every way into the real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import producer
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_listeners import LISTENERS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.mark.parametrize("kind", LISTENERS)
def test_spark_reads_by_every_listener(spark: SparkSession, kafka_broker: KafkaBroker, kind: str) -> None:
    topic = f"spark-{kind}"
    kafka_broker.create_topic(topic, 2)
    sent = [(b"k%d" % n, b"v%d" % n if n % 5 else None) for n in range(40)]
    producer.send(sent, topic, kafka_broker.python_client(kind))
    options = {f"kafka.{key}": value for key, value in kafka_broker.java_client(kind).items()}
    frame = spark.read.format("kafka").options(**options).option("subscribe", topic).load()
    found = [(bytes(row.key), None if row.value is None else bytes(row.value)) for row in frame.collect()]
    assert sorted(found, key=str) == sorted(sent, key=str)
