"""A new table whose columns are those of the first record: captured streams of changes, without a schema file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tagstream.table.errors import ConfigError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.streaming.stream_case import UNSET, StreamCase
from tests.streaming.test_debezium_stream import check_table, debezium_case
from tests.support import cdc
from tests.support.kafka_broker import KafkaBroker
from tests.support.producer import send_captured

pytestmark = pytest.mark.spark
FILE = "hoodie.streamer.schemaprovider.source.schema.file"
CONF = {"tagstream.source.format": "debezium-json", FILE: UNSET}
# What no reader of the events can know: a renamed column's old values in rows that no event touched since.
RENAMED = ["span", "colour"]


@pytest.mark.kafka
@pytest.mark.parametrize("tables", ["", r"shop\.orders"], ids=["the first", "named"])
def test_a_topic_of_two_tables_makes_the_table_of_its_own(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker, tables: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Phase by phase with all its changes of schema: the rows are the source's own."""
    caplog.set_level("INFO", logger="tagstream")
    topic = f"first-records-{bool(tables)}".lower()
    kafka_broker.create_topic(topic, partitions=2)
    conf = {**CONF, **({"tagstream.source.tables": tables} if tables else {})}
    case = debezium_case(tmp_path, spark, kafka_broker, topic, "day", conf, 6)
    if tables:  # the other one's events come first
        send_captured(kafka_broker, topic, dict(cdc.phases("jsonschema", "shop.stock"))["snapshot"])
    for phase, messages in cdc.phases("jsonschema", "shop.orders"):
        if not messages:
            continue
        send_captured(kafka_broker, topic, messages)
        assert sum(report.quarantined for report in case.run()) == 0
        check_table(case, "shop.orders", phase, ["id"], RENAMED)
    told = f"is made with the columns of the first record of topic {topic} with a schema (table postgres.shop.orders)"
    assert caplog.text.count(told) == 1
    if not tables:
        note = json.loads((case.checkpoint / "tagstream" / "source_table.json").read_text())
        assert note["table"] == "postgres.shop.orders"


@pytest.mark.extended("more kinds of tables", first=("MERGE",))
@pytest.mark.parametrize("table_type", ["COPY_ON_WRITE", "MERGE_ON_READ"])
def test_files_of_a_folder(tmp_path: Path, spark: SparkSession, table_type: str) -> None:
    """The types are those that the connector means: dates, times, decimals, not the numbers that it sends."""
    conf = {
        **CONF, "hoodie.datasource.write.recordkey.field": "id", "hoodie.datasource.write.partitionpath.field": "day",
        "hoodie.table.ordering.fields": "",
    }  # fmt: skip
    case = StreamCase(tmp_path, spark, table_type, conf)
    case.source.mkdir(parents=True)
    snapshot = dict(cdc.phases("jsonschema", "shop.orders"))["snapshot"]
    text = b"".join(m.value + b"\n" for m in snapshot if m.value is not None)
    (case.source / "a.json").write_bytes(b"{}\n" + json.dumps({"schema": None, "payload": {}}).encode() + b"\n" + text)
    with pytest.raises(Exception, match="2 bad records"):
        case.run()
    case.run("--max-bad-records", "2")
    check_table(case, "shop.orders", "snapshot", ["id"], RENAMED)
    schema = json.loads(HoodieTable.open(str(case.table)).schema_json() or "")
    kinds = {f["name"]: f["type"] for f in schema["fields"]}
    assert kinds["id"] == "long" or kinds["id"] == "int"
    assert "date" in json.dumps(kinds["day"])


def test_a_key_that_the_record_has_not_is_named(tmp_path: Path, spark: SparkSession) -> None:
    case = StreamCase(tmp_path, spark, conf={**CONF, "hoodie.table.ordering.fields": ""})
    case.source.mkdir(parents=True)
    fields = [{"field": "n", "type": "int64", "optional": False}]
    after = {"type": "struct", "fields": fields, "optional": True, "field": "after"}
    record = {"schema": {"type": "struct", "fields": [after]}, "payload": {"after": {"n": 1}, "op": "c", "source": {}}}
    (case.source / "a.json").write_text(json.dumps(record) + "\n")
    text = (
        "record key field 'id' is not a column of the first record of source folder .* with a schema; its columns are n"
    )
    with pytest.raises(ConfigError, match=text):
        case.run()
    assert not case.table.exists()
