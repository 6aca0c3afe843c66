"""The simulated topic: lists of messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tagstream.streaming.source.kafka_topic import Ends
from tests.support import cdc

TOPIC = "events"


@dataclass
class Topic:
    """A topic with one list of messages a partition."""

    partitions: list[list[cdc.Message]] = field(default_factory=lambda: [[], []])

    def add(
        self, partition: int, key: bytes | None, value: bytes | None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Append a record."""
        at = self.partitions[partition]
        at.append(cdc.Message(partition, len(at), key, value, headers or {}))

    def ends(self, *_: object) -> dict[int, Ends]:
        """Stands for ``topic_offsets``."""
        return {n: Ends(0, len(found)) for n, found in enumerate(self.partitions)}

    def first(self, *_: object) -> list[bytes]:
        """Stands for ``first_records``."""
        return [message.value for found in self.partitions for message in found if message.value is not None]

    def raw(self, start: Mapping[int, int], end: Mapping[int, int]) -> list[list[pa.RecordBatch]]:
        """The records of a batch as the source hands them to the decoder, by partition."""
        between = (found[start.get(n, 0) : end[n]] for n, found in enumerate(self.partitions))
        return [[cdc.raw_batch(messages)] if messages else [] for messages in between]
