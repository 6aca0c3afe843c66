"""Facts about a topic from the Kafka broker, read with the Kafka client of Spark's connector, through py4j.

Spark itself reads all partitions of a topic. Only a query that starts at given offsets must name all of them.

Spark's Kafka source limits the number of offsets per batch (``maxOffsetsPerTrigger``), but not the bytes (4.2). So a
few records are read where the stream continues, and at the topic's end. The larger of the two mean sizes determines,
until the next start, how many events a batch may read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tagstream.streaming.errors import SourceError
from tagstream.streaming.options.source_options import KafkaOptions

EARLIEST = -2  # in Spark's starting offsets: from the first existing record
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # Kafka's Uuid.ZERO_UUID
_MISSING = "UnknownTopicOrPartitionException"


@dataclass(frozen=True)
class Ends:
    """Offsets of a partition: of its first existing record, and of the next record to be written."""

    earliest: int
    latest: int


def topic_offsets(spark: SparkSession, topic: str, kafka_options: Mapping[str, str]) -> dict[int, Ends]:
    """First and next offset of every partition. SourceError when the topic does not exist.

    The next offset is the one up to which a reader with this isolation level reads. With ``read_committed`` it is that
    of the first record of an open transaction. ``kafka_options``: as for Spark's reader. Other errors (no broker, no
    login) are the JVM's.
    """
    with _client(spark, kafka_options) as (jvm, client):
        numbers = [info.partition() for info in _described(jvm, client, topic).partitions()]
        spec, level = jvm.org.apache.kafka.clients.admin.OffsetSpec, _level(kafka_options)
        first, last = (
            _offsets_at(jvm, client, topic, dict.fromkeys(numbers, at), level)
            for at in (spec.earliest(), spec.latest())
        )
        return {number: Ends(first[number], last[number]) for number in sorted(numbers)}


def topic_id(spark: SparkSession, topic: str, kafka_options: Mapping[str, str]) -> str | None:
    """The unique id of the topic; None from a broker that has no ids (before 2.8). SourceError where the topic does not
    exist.
    """
    ids = TopicIds(spark, topic, kafka_options)
    try:
        return ids.ask()
    finally:
        ids.close()


class TopicIds:
    """Reads a topic's id repeatedly, with one client. Close it."""

    def __init__(self, spark: SparkSession, topic: str, kafka_options: Mapping[str, str]) -> None:
        self._topic = topic
        self._open = ExitStack()
        self._jvm, self._admin = self._open.enter_context(_client(spark, kafka_options))

    def ask(self) -> str | None:
        """Read the id, see :func:`topic_id`. SourceError where the topic does not exist."""
        found = str(_described(self._jvm, self._admin, self._topic).topicId())
        return None if found == _NO_ID else found

    def close(self) -> None:
        """Close the client."""
        self._open.close()


def oldest_from(
    spark: SparkSession, topic: str, kafka_options: Mapping[str, str], begin: Mapping[int, int], now_ms: int
) -> dict[int, int]:
    """Timestamp of the oldest record from each of these offsets on, in epoch milliseconds.

    ``begin``: offset by partition, each with a record at or after it. The broker finds offsets by time, so this
    searches for the time: about 12 requests for all partitions together, exact to a twentieth of the age, or a second.
    A partition whose records have no timestamps is left out.
    """
    if not begin:
        return {}
    with _client(spark, kafka_options) as (jvm, client):

        def is_enough(ages: Mapping[int, int]) -> dict[int, bool]:
            """Whether all records before ``now_ms - age`` are committed, so no uncommitted record is older than that."""
            specs = jvm.org.apache.kafka.clients.admin.OffsetSpec
            at = {number: specs.forTimestamp(max(0, now_ms - age)) for number, age in ages.items()}
            found = _offsets_at(jvm, client, topic, at)
            return {number: 0 <= found[number] <= begin[number] or now_ms <= ages[number] for number in ages}

        ages = search_ages(begin, is_enough)
        return {number: now_ms - age for number, age in ages.items() if age < now_ms}


def search_ages(numbers: Iterable[int], is_enough: Callable[[Mapping[int, int]], Mapping[int, bool]]) -> dict[int, int]:
    """The least age (ms) that is enough for each number, to a twentieth or a second: first multiplied until it is
    enough, then bisected.
    """
    low, high = dict.fromkeys(numbers, 0), dict.fromkeys(numbers, 1_000)
    open_ = set(high)
    while open_:
        answers = is_enough({number: high[number] for number in open_})
        for number in [n for n in open_ if not answers[n]]:
            low[number], high[number] = high[number], 4 * high[number]
        open_ = {n for n in open_ if not answers[n]}
    while True:
        wide = [n for n in high if high[n] - low[n] > max(1_000, high[n] // 20)]
        if not wide:
            return high
        answers = is_enough({n: (low[n] + high[n]) // 2 for n in wide})
        for n in wide:
            middle = (low[n] + high[n]) // 2
            low[n], high[n] = (low[n], middle) if answers[n] else (middle, high[n])


def _described(jvm: Any, client: Any, topic: str) -> Any:
    try:
        return client.describeTopics(jvm.java.util.Collections.singleton(topic)).allTopicNames().get()[topic]
    except Py4JJavaError as e:
        if _MISSING in str(e.java_exception):
            raise SourceError(
                f"Kafka topic {topic} does not exist on this broker; create it, or correct "
                "hoodie.streamer.source.kafka.topic"
            ) from e
        raise


def _level(kafka_options: Mapping[str, str]) -> str:
    """The name of Kafka's ``IsolationLevel`` that the stream uses."""
    return kafka_options.get("kafka.isolation.level", "read_uncommitted").strip().upper()


def _offsets_at(
    jvm: Any, client: Any, topic: str, at: Mapping[int, Any], level: str = "READ_UNCOMMITTED"
) -> dict[int, int]:
    """By partition, the offset that its ``OffsetSpec`` asks for; -1 where it has no such record."""
    asked = jvm.java.util.HashMap()
    places = {number: jvm.org.apache.kafka.common.TopicPartition(topic, number) for number in at}
    for number, place in places.items():
        asked.put(place, at[number])
    isolation = jvm.org.apache.kafka.common.IsolationLevel.valueOf(level)
    answers = client.listOffsets(asked, jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(isolation))
    return {number: answers.partitionResult(place).get().offset() for number, place in places.items()}


@contextmanager
def _client(spark: SparkSession, kafka_options: Mapping[str, str]) -> Iterator[tuple[Any, Any]]:
    """The JVM and a Kafka admin client in it. Jars that were added to the session are in a class loader of the session."""
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


LOG = logging.getLogger("tagstream")
_SAMPLE = 2000  # records to read at each of the two positions, over all partitions


def events_a_batch(spark: SparkSession, kafka: KafkaOptions, most: int, reached: Mapping[int, int]) -> int:
    """``most`` (``--source-limit``), or less where so many records would be more than ``tagstream.kafka.max.batch.bytes``.

    ``reached``: next offset of the stream by partition. A partition that is not in it starts at its first record.
    """
    if not kafka.batch_bytes:
        return most
    assert kafka.topic is not None
    try:
        ends = topic_offsets(spark, kafka.topic, kafka.consumer)
        mean = _mean_bytes(spark, kafka, ends, reached)
    except (PySparkException, Py4JError) as e:
        LOG.warning(
            "topic %s: the size of its records is unknown (%s); a batch reads up to %s of them, whatever their size",
            kafka.topic,
            (str(e).splitlines() or ["?"])[0],
            f"{most:,}",
        )
        return most
    if mean is None:
        return most
    limit = max(1, min(most, int(kafka.batch_bytes / mean)))
    if limit < most:
        LOG.info(
            "topic %s: the mean size of its records is %s bytes, so a batch reads up to %s of them "
            "(tagstream.kafka.max.batch.bytes)",
            kafka.topic,
            f"{mean:,.0f}",
            f"{limit:,}",
        )
    return limit


def _mean_bytes(
    spark: SparkSession, kafka: KafkaOptions, ends: Mapping[int, Ends], reached: Mapping[int, int]
) -> float | None:
    """The larger of the two mean sizes of key and value together; None for a topic without records."""
    n = max(1, _SAMPLE // max(1, len(ends)))
    spans: dict[str, dict[int, tuple[int, int]]] = {"next": {}, "newest": {}}
    for p, at in ends.items():
        first = min(max(reached.get(p, at.earliest), at.earliest), at.latest)
        spans["next"][p] = first, min(first + n, at.latest)
        spans["newest"][p] = max(at.earliest, at.latest - n), at.latest
    frames = [
        spark.read.format("kafka")
        .options(**kafka.consumer)
        .option("subscribe", kafka.topic)
        .option("startingOffsets", json.dumps({kafka.topic: {str(p): a for p, (a, _) in span.items()}}))
        .option("endingOffsets", json.dumps({kafka.topic: {str(p): b for p, (_, b) in span.items()}}))
        .option("failOnDataLoss", "false")
        .load()
        .select(F.lit(name).alias("place"), _size("key") + _size("value"))
        .toDF("place", "size")
        for name, span in spans.items()
        if any(a < b for a, b in span.values())
    ]
    if not frames:
        return None
    both = frames[0] if len(frames) == 1 else frames[0].unionAll(frames[1])
    means = [row["mean"] for row in both.groupBy("place").agg(F.avg("size").alias("mean")).collect()]
    return max((float(mean) for mean in means if mean), default=None)


def _size(name: str) -> Column:
    return F.coalesce(F.octet_length(name), F.lit(0))
