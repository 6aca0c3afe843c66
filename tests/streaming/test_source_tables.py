"""A topic with the events of two tables, through the whole job: the first table is kept, or those that are named."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.errors import BadRecordsError, CheckpointError
from tagstream.streaming.options.cli import load_options
from tagstream.table.errors import ConfigError
from tests.streaming.stream_case import StreamCase
from tests.streaming.test_debezium_stream import check_table, debezium_case
from tests.support import cdc, schema_registry
from tests.support.kafka_broker import KafkaBroker
from tests.support.producer import send_captured

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


def both(folder: str, phase: str) -> list[cdc.Message]:
    """The events of a phase of two tables, in turns."""
    return cdc.in_turns(*(dict(cdc.phases(folder, f"shop.{table}")).get(phase, []) for table in ("orders", "stock")))


def check(case: StreamCase, phase: str) -> None:
    check_table(case, "shop.orders", phase, ["id"], ["span"])


@pytest.mark.parametrize("folder", ["json", "avro"])
def test_the_tables_that_are_named_are_read(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker, folder: str
) -> None:
    topic = f"two-tables-{folder}"
    kafka_broker.create_topic(topic, partitions=2)
    with schema_registry.captured() as registry:
        conf = {"tagstream.source.tables": r"shop\.orders", "tagstream.source.format": f"debezium-{folder}"}
        if folder == "avro":
            conf["schema.registry.url"] = registry.url
        case = debezium_case(tmp_path, spark, kafka_broker, topic, "day", conf, 6)
        for phase, messages in cdc.phases(folder, "shop.orders"):
            mixed = both(folder, phase)
            others = sum(1 for message in mixed if message.value is not None) - len(
                [m for m in messages if m.value is not None]
            )
            if not mixed:
                continue
            send_captured(kafka_broker, topic, mixed)
            reports = case.run()
            assert sum(report.quarantined for report in reports) == 0
            assert sum(report.skipped for report in reports) >= others
            check(case, phase)


def test_the_first_table_is_kept_and_an_event_of_another_is_bad(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker
) -> None:
    topic = "first-table"
    kafka_broker.create_topic(topic, partitions=2)
    case = debezium_case(tmp_path, spark, kafka_broker, topic, "day", {"tagstream.source.format": "debezium-json"}, 6)
    phases = dict(cdc.phases("json", "shop.orders"))
    first, second = list(phases)[:2]
    send_captured(kafka_broker, topic, phases[first])
    case.run()
    check(case, first)
    note = case.checkpoint / "tagstream" / "source_table.json"
    assert json.loads(note.read_text())["table"] == "postgres.shop.orders"
    (stock, *_) = cdc.messages("json", "shop.stock")
    send_captured(kafka_broker, topic, [*phases[second], stock])
    text = r"The first \(topic first-table .*\): an event of table postgres\.shop\.stock, but the stream reads postgres"
    with pytest.raises(BadRecordsError, match=text):
        case.run()
    check(case, first)
    told = replace(case, conf={**case.conf, "tagstream.source.tables": "shop.(orders|carts)"})
    assert sum(report.quarantined for report in told.run()) == 0
    check(case, second)
    note.write_text("[]")
    with pytest.raises(CheckpointError, match=r"source_table\.json is damaged"):
        case.run()


@pytest.mark.parametrize(
    ("conf", "words"),
    [
        ({"tagstream.source.tables": "shop.orders"}, "records of format json do not have a table's name"),
        ({"tagstream.source.tables": "a(", "tagstream.source.format": "maxwell-json"}, "is not a regular expression"),
        (
            {"tagstream.source.format": "canal-json", "tagstream.debezium.truncate": "delete"},
            "a TRUNCATE has no value of the ordering field",
        ),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, spark: SparkSession, conf: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        load_options(StreamCase(tmp_path, spark, "COPY_ON_WRITE", conf).arguments())


@pytest.mark.parametrize(
    ("conf", "wanted"),
    [
        ({"database": "shop", "table": "orders|items"}, (r"(?:shop)\.(?:orders|items)",)),
        ({"table": "o.*"}, (r"(?:.*)\.(?:o.*)",)),
        ({"database": "shop"}, (r"(?:shop)\.(?:.*)",)),
    ],
)
def test_hoodie_streamers_keys_of_maxwell(
    tmp_path: Path, spark: SparkSession, conf: dict[str, str], wanted: tuple[str, ...]
) -> None:
    keys = {f"hoodie.streamer.source.json.kafka.post.processor.maxwell.{k}.regex": v for k, v in conf.items()}
    case = StreamCase(tmp_path, spark, "COPY_ON_WRITE", {"tagstream.source.format": "maxwell-json", **keys})
    assert load_options(case.arguments()).records.tables == wanted
