"""The dead-letter topic: key, value and headers as they came, and headers that say where from and what was wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tagstream.streaming.dead_letter.letters import Letter

PREFIX = "tagstream."
_ROWS = "key binary, value binary, headers array<struct<key: string, value: binary>>"
Headers = Sequence[tuple[str, bytes | None]]


def send(
    spark: SparkSession,
    rows: Sequence[tuple[bytes | None, bytes | None, Headers]],
    topic: str,
    kafka_options: Mapping[str, str],
) -> None:
    """Send records (key, value, headers) to a topic through Spark's connector; the broker has them when it returns."""
    writer = spark.createDataFrame(rows, _ROWS).write.format("kafka").options(**kafka_options)
    writer.option("topic", topic).option("includeHeaders", "true").save()


@dataclass(frozen=True)
class DeadLetterTopic:
    """``topic`` is written through Spark's connector with ``kafka_options``, the source's own. A letter may come twice when
    a process dies or another query reads the source again: its header ``tagstream.id`` is the same then."""

    spark: SparkSession
    topic: str
    kafka_options: Mapping[str, str]
    target: str

    def take(self, letters: list[Letter], _batch: str) -> None:
        """Send all of them, and wait until the broker has them."""
        rows = [(letter.key, letter.value, self._headers(letter)) for letter in letters]
        send(self.spark, rows, self.topic, self.kafka_options)

    def _headers(self, letter: Letter) -> list[tuple[str, bytes | None]]:
        told = {
            "id": letter.ident,
            "table": self.target,
            "source": letter.source,
            "partition": letter.partition,
            "offset": letter.offset,
            "reason": letter.reason,
        }
        return [
            *letter.headers,
            *((PREFIX + name, str(value).encode()) for name, value in told.items() if value is not None),
        ]
