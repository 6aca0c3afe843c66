"""What a Kafka broker says of a topic, asked by the Kafka client that Spark's connector brings, through py4j.

Spark itself reads a topic with whatever partitions it has; only a query that begins at given offsets must name
them all.

Spark's Kafka source counts offsets (``maxOffsetsPerTrigger``); it has no limit in bytes (4.2). So a few records
are read where the stream continues and at the topic's end. The larger mean size of the two says, until the next
start, how many events a batch may take.
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
from tagstream.streaming.options.options import Options

EARLIEST = -2  # in Spark's starting offsets: from the first record that is there
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # Kafka's Uuid.ZERO_UUID
_MISSING = "UnknownTopicOrPartitionException"


@dataclass(frozen=True)
class Ends:
    """Offsets of a partition: of its first record that is still there, and the one that the next record gets."""

    earliest: int
    latest: int


def topic_offsets(spark: SparkSession, topic: str, kafka_options: Mapping[str, str]) -> dict[int, Ends]:
    """First and next offset of every partition; SourceError when there is no such topic.

    The next offset is that up to which a reader of this isolation level reads: with ``read_committed`` that of the first
    record of a transaction that is open.
    ``kafka_options``: as for Spark's reader. What else goes wrong (no broker, no login) is raised as the JVM raised it.
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
    """The id of the topic, which another one of the same name has not; None from a broker that gives none (before 2.8)."""
    ids = TopicIds(spark, topic, kafka_options)
    try:
        return ids.ask()
    finally:
        ids.close()


class TopicIds:
    """Asks for a topic's id again and again, by one client. Close it."""

    def __init__(self, spark: SparkSession, topic: str, kafka_options: Mapping[str, str]) -> None:
        self._topic = topic
        self._open = ExitStack()
        self._jvm, self._admin = self._open.enter_context(_client(spark, kafka_options))

    def ask(self) -> str | None:
        """As :func:`topic_id`. SourceError where there is no such topic."""
        found = str(_described(self._jvm, self._admin, self._topic).topicId())
        return None if found == _NO_ID else found

    def close(self) -> None:
        """Close the client."""
        self._open.close()


def oldest_from(
    spark: SparkSession, topic: str, kafka_options: Mapping[str, str], begin: Mapping[int, int], now_ms: int
) -> dict[int, int]:
    """When the oldest record from each of these offsets on came, in epoch milliseconds, as its timestamp says.

    ``begin``: by partition, each with a record at its offset or later. The broker finds offsets by time, so the time is
    searched for: some 12 requests for all partitions together, exact to a twentieth of the age, or a second. A partition
    whose records have no timestamps is left out.
    """
    if not begin:
        return {}
    with _client(spark, kafka_options) as (jvm, client):

        def is_enough(ages: Mapping[int, int]) -> dict[int, bool]:
            """Whether what came before ``now_ms - age`` is taken, so that the oldest record left is not older than that."""
            specs = jvm.org.apache.kafka.clients.admin.OffsetSpec
            at = {number: specs.forTimestamp(max(0, now_ms - age)) for number, age in ages.items()}
            found = _offsets_at(jvm, client, topic, at)
            return {number: 0 <= found[number] <= begin[number] or now_ms <= ages[number] for number in ages}

        ages = search_ages(begin, is_enough)
        return {number: now_ms - age for number, age in ages.items() if age < now_ms}


def search_ages(numbers: Iterable[int], is_enough: Callable[[Mapping[int, int]], Mapping[int, bool]]) -> dict[int, int]:
    """For each number the least age (ms) that is enough, to a twentieth or a second: doubled until it is, then halved."""
    low, high = dict.fromkeys(numbers, 0), dict.fromkeys(numbers, 1_000)
    open_ = set(high)
    while open_:
        told = is_enough({number: high[number] for number in open_})
        for number in [n for n in open_ if not told[n]]:
            low[number], high[number] = high[number], 4 * high[number]
        open_ = {n for n in open_ if not told[n]}
    while True:
        wide = [n for n in high if high[n] - low[n] > max(1_000, high[n] // 20)]
        if not wide:
            return high
        told = is_enough({n: (low[n] + high[n]) // 2 for n in wide})
        for n in wide:
            middle = (low[n] + high[n]) // 2
            low[n], high[n] = (low[n], middle) if told[n] else (middle, high[n])


def _described(jvm: Any, client: Any, topic: str) -> Any:
    try:
        return client.describeTopics(jvm.java.util.Collections.singleton(topic)).allTopicNames().get()[topic]
    except Py4JJavaError as e:
        if _MISSING in str(e.java_exception):
            raise SourceError(
                f"Kafka topic {topic} does not exist on this broker; make it, or correct hoodie.streamer.source.kafka.topic"
            ) from e
        raise


def _level(kafka_options: Mapping[str, str]) -> str:
    """The name of Kafka's ``IsolationLevel`` that the stream reads with."""
    return kafka_options.get("kafka.isolation.level", "read_uncommitted").strip().upper()


def _offsets_at(
    jvm: Any, client: Any, topic: str, at: Mapping[int, Any], level: str = "READ_UNCOMMITTED"
) -> dict[int, int]:
    """By partition what an ``OffsetSpec`` each asks for; -1 for no such record."""
    asked = jvm.java.util.HashMap()
    places = {number: jvm.org.apache.kafka.common.TopicPartition(topic, number) for number in at}
    for number, place in places.items():
        asked.put(place, at[number])
    isolation = jvm.org.apache.kafka.common.IsolationLevel.valueOf(level)
    told = client.listOffsets(asked, jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(isolation))
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


LOG = logging.getLogger("tagstream")
_SAMPLE = 2000  # records of each of the two places, of all partitions together


def events_a_batch(spark: SparkSession, options: Options, reached: Mapping[int, int]) -> int:
    """``--source-limit``, or less where so many records would be more than ``tagstream.kafka.max.batch.bytes``.

    ``reached``: next offset by partition, as far as the stream has come; what is not in it begins at its first record.
    """
    if not options.kafka_batch_bytes:
        return options.source_limit
    assert options.kafka_topic is not None
    try:
        ends = topic_offsets(spark, options.kafka_topic, options.kafka_options)
        mean = _mean_bytes(spark, options, ends, reached)
    except (PySparkException, Py4JError) as e:
        LOG.warning(
            "topic %s: the size of its records is not known (%s); a batch takes up to %s of them, whatever their size",
            options.kafka_topic,
            (str(e).splitlines() or ["?"])[0],
            f"{options.source_limit:,}",
        )
        return options.source_limit
    if mean is None:
        return options.source_limit
    limit = max(1, min(options.source_limit, int(options.kafka_batch_bytes / mean)))
    if limit < options.source_limit:
        LOG.info(
            "topic %s: its records have %s bytes in the mean, so a batch takes up to %s of them "
            "(tagstream.kafka.max.batch.bytes)",
            options.kafka_topic,
            f"{mean:,.0f}",
            f"{limit:,}",
        )
    return limit


def _mean_bytes(
    spark: SparkSession, options: Options, ends: Mapping[int, Ends], reached: Mapping[int, int]
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
        .options(**options.kafka_options)
        .option("subscribe", options.kafka_topic)
        .option("startingOffsets", json.dumps({options.kafka_topic: {str(p): a for p, (a, _) in span.items()}}))
        .option("endingOffsets", json.dumps({options.kafka_topic: {str(p): b for p, (_, b) in span.items()}}))
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
