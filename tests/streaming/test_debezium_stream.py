"""A captured Debezium topic from a real broker, headers and all, through the whole job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.streaming.stream_case import StreamCase
from tests.support import cdc, schema_registry
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker
from tests.support.producer import send_captured

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def debezium_case(
    folder: Path,
    spark: SparkSession,
    broker: KafkaBroker,
    topic: str,
    partition: str,
    conf: dict[str, str],
    schema: int,
) -> StreamCase:
    every = {
        "hoodie.streamer.source.kafka.topic": topic,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": partition,
        "hoodie.table.ordering.fields": "",
        **broker.java_client("plain"),
    }
    return StreamCase(folder, spark, "MERGE_ON_READ", every | conf, cdc.schema_by_id(schema))


def check_table(case: StreamCase, source: str, phase: str, keys: list[str], leave_out: Sequence[str] = ()) -> None:
    """The table has the rows that the source's table had after a phase."""
    rows = read_table(case.table, meta_columns=False).to_pylist()
    wrong = cdc.differences(rows, cdc.truth(source, phase), keys, leave_out)
    assert not wrong, (phase, wrong[:5])


def test_orders_from_a_broker_at_each_phase(tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    topic = "shop.orders"
    kafka_broker.create_topic(topic, partitions=2)
    conf = {"tagstream.source.format": "debezium-json"}
    case = debezium_case(tmp_path, spark, kafka_broker, topic, "day", conf, 6)
    skipped = 0
    for phase, messages in cdc.phases("json", topic):
        if not messages:
            continue
        send_captured(kafka_broker, topic, messages)
        skipped += sum(r.skipped for r in case.run())
        check_table(case, topic, phase, ["id"], ["span"])
    assert skipped > 0


@pytest.mark.extended("more indexes")
@pytest.mark.parametrize("index", ["GLOBAL_SIMPLE", "RECORD_INDEX"])
def test_whole_rows_with_an_index_that_is_asked(
    index: str, tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker
) -> None:
    """``stock`` has its whole rows in each event: such an index fills nothing in that was not sent."""
    topic = f"stock-{index.lower()}"
    kafka_broker.create_topic(topic, partitions=2)
    conf = {
        "tagstream.source.format": "debezium-json",
        "hoodie.index.type": index,
        "hoodie.metadata.enable": "true",
        "hoodie.datasource.write.recordkey.field": "region,item",
    }
    case = debezium_case(tmp_path, spark, kafka_broker, topic, "region", conf, 8)
    for phase, messages in cdc.phases("json", "shop.stock"):
        if not messages:
            continue
        send_captured(kafka_broker, topic, messages)
        assert sum(report.quarantined for report in case.run()) == 0
        check_table(case, "shop.stock", phase, ["region", "item"])


def test_avro_whose_schema_changes_in_mid_stream(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker, items_topic: str
) -> None:
    """The table has its last schema from the start; records of nine schemas are read into it."""
    topic = items_topic
    send_captured(kafka_broker, topic, cdc.messages("avro", topic))
    with schema_registry.captured() as registry:
        conf = {"tagstream.source.format": "debezium-avro", "schema.registry.url": registry.url}
        case = debezium_case(tmp_path, spark, kafka_broker, topic, "", conf, 21)
        case.run()
        asked = list(registry.asked)
    check_table(case, topic, "rename_column", ["id"], ["colour"])
    assert {f"/schemas/ids/{number}" for number in (3, 4, *range(14, 22))} == set(asked)
