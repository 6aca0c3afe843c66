"""Captured change streams from a real broker into tables, at each phase read by real Hudi and by hudi-rs.

The rows are those that the source's own SELECT gave.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tagstream.table.meta_client.table_config import COPY_ON_WRITE, MERGE_ON_READ
from tagstream.table.schema.schema import META_COLUMNS
from tests.interop.hudi_spark import HudiSpark
from tests.streaming.stream_case import StreamCase
from tests.support import cdc, schema_registry
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker
from tests.support.producer import send_captured

pytestmark = [pytest.mark.hudi_jar, pytest.mark.spark, pytest.mark.kafka]

BOTH = pytest.mark.parametrize("table_type", [COPY_ON_WRITE, MERGE_ON_READ])
FORMATS = {
    "json": "debezium-json",
    "jsonschema": "debezium-json",
    "avro": "debezium-avro",
    "flat": "debezium-flat-json",
}
# Batches of so few records that a phase is cut in the middle of its transactions, between the records of one key too.
LIMITS = ("7", "31")


@dataclass(frozen=True)
class Source:
    """A captured table: the number of its schema, key and partition, and the columns of which SELECT's text says less."""

    table: str
    schema: int
    keys: list[str]
    partition: str
    left_out: tuple[str, ...] = ()


ORDERS = Source("shop.orders", 6, ["id"], "day", ("span",))
STOCK = Source("shop.stock", 8, ["region", "item"], "region")


@pytest.fixture(scope="module")
def registry() -> Iterator[schema_registry.Registry]:
    with schema_registry.captured() as found:
        yield found


@dataclass
class Capture:
    """One capture on its way into one table."""

    case: StreamCase
    source: Source
    folder: str
    topic: str
    broker: KafkaBroker
    hudi: HudiSpark

    def follow(self) -> int:
        """Phase by phase; how many batches there were."""
        batches = 0
        for n, (phase, messages) in enumerate(cdc.phases(self.folder, self.source.table)):
            if not messages:
                continue
            send_captured(self.broker, self.topic, messages)
            reports = self.case.run("--source-limit", LIMITS[n % len(LIMITS)])
            batches += len(reports)
            assert sum(report.quarantined for report in reports) == 0
            wanted = cdc.truth(self.source.table, phase)
            for reader, rows in (
                ("hudi-rs", read_table(self.case.table)),
                (self.hudi.version, self.hudi.read(self.case.table)),
            ):
                mine = rows.drop_columns([c for c in META_COLUMNS if c in rows.column_names]).to_pylist()
                wrong = cdc.differences(mine, wanted, self.source.keys, self.source.left_out)
                assert not wrong, (reader, phase, wrong[:5])
        return batches


def capture(
    source: Source,
    folder: str,
    table_type: str,
    where: Path,
    spark: SparkSession,
    broker: KafkaBroker,
    hudi: HudiSpark,
    **conf: Any,
) -> Capture:
    """A topic of its own with two partitions, as the captured one had."""
    topic = "captured-" + where.name.replace("_", "-")
    broker.create_topic(topic, partitions=2)
    every = {
        "hoodie.streamer.source.kafka.topic": topic,
        "tagstream.source.format": FORMATS[folder],
        "hoodie.datasource.write.recordkey.field": ",".join(source.keys),
        "hoodie.datasource.write.partitionpath.field": source.partition,
        "hoodie.table.ordering.fields": "",
        **broker.java_client("plain"),
        **conf,
    }
    case = StreamCase(where, spark, table_type, every, cdc.schema_by_id(source.schema))
    return Capture(case, source, folder, topic, broker, hudi)


@BOTH
@pytest.mark.parametrize(
    ("folder", "hudi"),
    [*((folder, ("1.2.0", 9)) for folder in FORMATS), ("json", ("0.15.0", 6))],
    indirect=["hudi"],
    ids=[*FORMATS, "json, Hudi 0.15.0"],
)
@pytest.mark.parametrize("source", [ORDERS, STOCK], ids=["orders", "stock"])
def test_each_phase_of_each_format(
    source: Source,
    folder: str,
    table_type: str,
    tmp_path: Path,
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    registry: schema_registry.Registry,
    hudi: HudiSpark,
) -> None:
    conf = {"schema.registry.url": registry.url} if folder == "avro" else {}
    assert capture(source, folder, table_type, tmp_path, spark, kafka_broker, hudi, **conf).follow() >= 5


@BOTH
@pytest.mark.parametrize("hudi", [("1.2.0", 9)], indirect=True, ids=["Hudi 1.2.0"])
@pytest.mark.parametrize("index", ["GLOBAL_SIMPLE", "GLOBAL_BLOOM", "INMEMORY", "RECORD_INDEX"])
def test_each_phase_with_an_index_that_is_asked(
    index: str, table_type: str, tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker, hudi: HudiSpark
) -> None:
    """Stock has its whole rows in each event: these indexes fill nothing in that was not sent."""
    conf = {"hoodie.index.type": index}
    assert capture(STOCK, "json", table_type, tmp_path, spark, kafka_broker, hudi, **conf).follow() >= 5
