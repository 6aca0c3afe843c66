"""A captured Debezium topic from a real broker, headers and all, through the whole job."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from tests.streaming.stream_case import StreamCase
from tests.support import cdc
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def send(broker: KafkaBroker, topic: str, messages: list[cdc.Message]) -> None:
    """Each message into its partition."""
    producer = KafkaProducer(**broker.python_client())
    for m in messages:
        headers = [(k, v.encode()) for k, v in m.headers.items()]
        producer.send(topic, key=m.key, value=m.value, partition=m.partition, headers=headers)
    producer.flush()
    producer.close()


def test_orders_from_a_broker_at_each_phase(tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    topic = "shop.orders"
    kafka_broker.create_topic(topic, partitions=2)
    conf = {
        "hoodie.streamer.source.kafka.topic": topic,
        "tagstream.source.format": "debezium-json",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.table.ordering.fields": "",
        **kafka_broker.java_client("plain"),
    }
    case = StreamCase(tmp_path, spark, "MERGE_ON_READ", conf, cdc.schema_by_id(6))
    skipped = 0
    for phase, messages in cdc.phases("json", topic):
        if not messages:
            continue
        send(kafka_broker, topic, messages)
        skipped += sum(r.skipped for r in case.run())
        rows = read_table(case.table, meta_columns=False).to_pylist()
        wrong = cdc.differences(rows, cdc.truth(topic, phase), ["id"], ["span"])
        assert not wrong, (phase, wrong[:5])
    assert skipped > 0
