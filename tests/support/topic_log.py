"""What a topic holds, read back from the broker by kafka-python: the order and the offsets that the job is given too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from tests.support.kafka_broker import KafkaBroker

RawMessage = tuple[str, bytes | None]  # key, value; no value is a tombstone


def read_topic(broker: KafkaBroker, topic: str, begin: Sequence[int]) -> list[list[RawMessage]]:
    """Per partition, the messages from offset ``begin[partition]`` on; AssertionError when offsets are missing."""
    consumer = KafkaConsumer(**broker.python_client(), enable_auto_commit=False)
    try:
        parts = [TopicPartition(topic, p) for p in range(len(begin))]
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        out: list[list[RawMessage]] = [[] for _ in parts]
        for part, first in zip(parts, begin, strict=True):
            consumer.seek(part, first)
        while any(consumer.position(part) < ends[part] for part in parts):
            for part, records in consumer.poll(timeout_ms=1000).items():
                for record in records:
                    at = begin[part.partition] + len(out[part.partition])
                    assert record.offset == at, f"{part}: offset {record.offset} comes where {at} is expected"
                    out[part.partition].append((record.key.decode(), record.value))
        return out
    finally:
        consumer.close()


def delete_records(broker: KafkaBroker, topic: str, before: Mapping[int, int]) -> None:
    """Make the topic forget the messages below an offset of each partition, as its retention would."""
    admin = KafkaAdminClient(**broker.python_client())
    try:
        admin.delete_records({TopicPartition(topic, p): offset for p, offset in before.items()})
    finally:
        admin.close()
