"""What the broker says of a topic, by every way into it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.errors import SourceError
from tagstream.streaming.source.kafka_topic import Ends, topic_offsets
from tests.support import producer
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_listeners import LISTENERS

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def options(broker: KafkaBroker, kind: str) -> dict[str, str]:
    return {f"kafka.{key}": value for key, value in broker.java_client(kind).items()}


@pytest.mark.parametrize("kind", LISTENERS)
def test_ends_of_all_partitions(spark: SparkSession, kafka_broker: KafkaBroker, kind: str) -> None:
    topic = f"ends-{kind}"
    kafka_broker.create_topic(topic, 3)
    producer.send([(b"k", b"v")] * 5, topic, kafka_broker.python_client(kind))
    found = topic_offsets(spark, topic, options(kafka_broker, kind))
    assert sorted(found) == [0, 1, 2]
    assert {ends.earliest for ends in found.values()} == {0}
    assert sorted(ends.latest for ends in found.values()) == [0, 0, 5]


def test_a_topic_that_is_not_there(spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    with pytest.raises(SourceError, match="Kafka topic nowhere does not exist on this broker"):
        topic_offsets(spark, "nowhere", options(kafka_broker, "plain"))
    kafka_broker.create_topic("empty", 1)
    assert topic_offsets(spark, "empty", options(kafka_broker, "plain")) == {0: Ends(0, 0)}
