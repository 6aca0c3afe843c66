"""The dead-letter topic: key, value and headers as they came, and headers that say where from and what was wrong."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from tagstream.streaming.dead_letter.letters import Letter

PREFIX = "tagstream."
ROWS = "key binary, value binary, headers array<struct<key: string, value: binary>>"


@dataclass(frozen=True)
class DeadLetterTopic:
    """``topic`` is written through Spark's connector with ``kafka_options``, the source's own. A letter may come twice when
    a process dies: its header ``tagstream.id`` is the same then."""

    spark: SparkSession
    topic: str
    kafka_options: Mapping[str, str]
    target: str

    def take(self, letters: list[Letter], batch: str) -> None:
        """Send all of them, and wait until the broker has them."""
        rows = [(letter.key, letter.value, self._headers(letter, batch)) for letter in letters]
        frame = self.spark.createDataFrame(rows, ROWS)
        writer = frame.write.format("kafka").options(**self.kafka_options).option("topic", self.topic)
        writer.option("includeHeaders", "true").save()

    def _headers(self, letter: Letter, batch: str) -> list[tuple[str, bytes | None]]:
        own = [(name, None if value is None else b64decode(value)) for name, value in letter.headers]
        told = {
            "id": f"{batch}.{letter.ident}",
            "table": self.target,
            "source": letter.source,
            "partition": letter.partition,
            "offset": letter.offset,
            "reason": letter.reason,
        }
        return [*own, *((PREFIX + name, str(value).encode()) for name, value in told.items() if value is not None)]
