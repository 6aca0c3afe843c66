"""How many events a batch may take so that it stays below a number of bytes.

Spark's Kafka source counts offsets (``maxOffsetsPerTrigger``); it has no limit in bytes (4.2). So a few records are read
where the stream goes on and at the topic's end, and the larger mean of the two counts, until the next start.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from tagstream.streaming.options.options import Options
from tagstream.streaming.source.topic import Ends, topic_offsets

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
