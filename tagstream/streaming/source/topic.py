"""What a Kafka broker says of a topic, asked by the Kafka client that Spark's connector brings, through py4j.

Spark itself reads a topic with whatever partitions it has; only a query that begins at given offsets must name them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from tagstream.streaming.errors import SourceError

EARLIEST = -2  # in Spark's starting offsets: from the first record that is there
_MISSING = "UnknownTopicOrPartitionException"


@dataclass(frozen=True)
class Ends:
    """Offsets of a partition: of its first record that is still there, and the one that the next record gets."""

    earliest: int
    latest: int


def topic_offsets(spark: SparkSession, topic: str, kafka_options: Mapping[str, str]) -> dict[int, Ends]:
    """First and next offset of every partition; SourceError when there is no such topic.

    ``kafka_options``: as for Spark's reader. What else goes wrong (no broker, no login) is raised as the JVM raised it.
    """
    with _client(spark, kafka_options) as (jvm, client):
        try:
            names = jvm.java.util.Collections.singleton(topic)
            described = client.describeTopics(names).allTopicNames().get()[topic]
        except Py4JJavaError as e:
            if _MISSING in str(e.java_exception):
                raise SourceError(
                    f"Kafka topic {topic} does not exist on this broker; make it, or correct "
                    "hoodie.streamer.source.kafka.topic"
                ) from e
            raise
        numbers = [info.partition() for info in described.partitions()]
        spec = jvm.org.apache.kafka.clients.admin.OffsetSpec
        first, last = (_offsets(jvm, client, topic, numbers, at) for at in (spec.earliest(), spec.latest()))
        return {number: Ends(first[number], last[number]) for number in sorted(numbers)}


def _offsets(jvm: Any, client: Any, topic: str, partitions: list[int], at: Any) -> dict[int, int]:
    asked = jvm.java.util.HashMap()
    places = {number: jvm.org.apache.kafka.common.TopicPartition(topic, number) for number in partitions}
    for place in places.values():
        asked.put(place, at)
    told = client.listOffsets(asked)
    return {number: told.partitionResult(place).get().offset() for number, place in places.items()}


@contextmanager
def _client(spark: SparkSession, kafka_options: Mapping[str, str]) -> Iterator[tuple[Any, Any]]:
    """The JVM and an admin client in it. Jars that were added to the session are in a class loader of the session's own."""
    jvm: Any = spark._jvm  # noqa: SLF001 (PySpark has no other way to a class of a jar)
    thread = jvm.java.lang.Thread.currentThread()
    before = thread.getContextClassLoader()
    thread.setContextClassLoader(spark._jsparkSession.sharedState().jarClassLoader())  # noqa: SLF001
    try:
        settings = jvm.java.util.Properties()
        for name, value in kafka_options.items():
            settings.setProperty(name.removeprefix("kafka."), value)
        client = jvm.org.apache.kafka.clients.admin.Admin.create(settings)
        try:
            yield jvm, client
        finally:
            client.close()
    finally:
        thread.setContextClassLoader(before)
