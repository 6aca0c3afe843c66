"""The format of records: by its own key or by HoodieStreamer's source class, and the registry."""

from __future__ import annotations

import pytest

from tagstream.streaming.options.cli import load_options
from tagstream.streaming.options.options import Options
from tagstream.table.errors import ConfigError

BASE = [
    "--target-base-path", "/data/t", "--checkpoint-dir", "/data/c", "--target-table", "t",
    "--hoodie-conf", "hoodie.datasource.write.recordkey.field=id", "--hoodie-conf", "bootstrap.servers=b:9092",
    "--hoodie-conf", "hoodie.streamer.source.kafka.topic=shop.orders",
]  # fmt: skip


def load(*conf: str, source: str = "JsonKafkaSource") -> Options:
    return load_options([*BASE, "--source-class", source, *(x for c in conf for x in ("--hoodie-conf", c))])


@pytest.mark.parametrize("prefix", ["", "org.apache.hudi.utilities.sources.debezium."])
@pytest.mark.parametrize(("source", "order"), [("PostgresDebeziumSource", "lsn"), ("MysqlDebeziumSource", "binlog")])
def test_debezium_sources_of_hoodiestreamer(prefix: str, source: str, order: str) -> None:
    url = "https://me:pa%20ss@registry:8081/base/subjects/db.t-value/versions/latest"
    o = load(f"hoodie.streamer.schemaprovider.registry.url={url}", source=prefix + source)
    r = o.records
    assert (r.format.name, r.debezium_order, o.source.kind) == ("debezium-avro", order, "kafka")
    assert (r.registry_url, r.registry_subject, r.registry_user_info) == (
        "https://registry:8081/base",
        "db.t-value",
        "me:pa ss",
    )
    assert "pa ss" not in repr(r)
    assert not any("pa%20ss" in line for line in o.describe())


def test_what_orders_events() -> None:
    assert load("tagstream.source.format=debezium-json").records.debezium_order == "lsn"
    assert (
        load("tagstream.source.format=debezium-json", "tagstream.debezium.order=binlog").records.debezium_order
        == "binlog"
    )
    by_arrival = load("tagstream.source.format=debezium-json", "hoodie.write.record.merge.mode=COMMIT_TIME_ORDERING")
    assert by_arrival.records.debezium_order == "arrival"
    o = load("schema.registry.url=http://r:8081", source="AvroKafkaSource")
    assert (o.records.format.name, o.records.debezium_order, o.records.registry_subject) == (
        "avro",
        "arrival",
        "shop.orders-value",
    )


@pytest.mark.parametrize(
    ("conf", "source", "message"),
    [
        (["tagstream.source.format=debezium-avro"], "JsonKafkaSource", "schema.registry.url is missing"),
        (["tagstream.source.format=json", "schema.registry.url=http://r"], "AvroKafkaSource", "contradicts"),
        (
            ["tagstream.source.format=debezium-avro", "schema.registry.url=ftp://r"],
            "JsonKafkaSource",
            "not an http or https URL",
        ),
        (["tagstream.source.format=json", "tagstream.decode.bytes=hex"], "JsonKafkaSource", "only formats of Debezium"),
        (["tagstream.source.format=debezium-json", "tagstream.decode.bytes=utf-8"], "JsonKafkaSource", "base64 or hex"),
        (
            ["tagstream.debezium.truncate=delete", "hoodie.table.ordering.fields=ts"],
            "JsonKafkaSource",
            "no value of the ordering field ts",
        ),
        (
            ["tagstream.debezium.truncate=delete", "tagstream.debezium.order=arrival"],
            "JsonKafkaSource",
            "arrival does not show which was first",
        ),
        (
            ["tagstream.debezium.truncate=delete", "hoodie.index.type=SIMPLE"],
            "JsonKafkaSource",
            "only the state index stores an order",
        ),
        (["tagstream.source.format=debezum-json"], "JsonKafkaSource", "did you mean"),
    ],
)
def test_what_is_refused(conf: list[str], source: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(*conf, source=source)


def test_deletes_that_name_no_partition_are_told_of_where_it_identifies_a_row() -> None:
    def told(*conf: str) -> list[str]:
        given = ("hoodie.table.partition.fields=day:SIMPLE", "hoodie.datasource.write.keygenerator.type=CUSTOM")
        options = load("tagstream.source.format=debezium-json", *given, *conf)
        return [text for text in options.warnings if "has only its key" in text]

    (text,) = told("hoodie.index.type=BLOOM")
    assert (
        text.startswith("hoodie.index.type = BLOOM (--hoodie-conf): ")
        and "because day is not in the record key" in text
    )
    assert told("index.global.enabled=false")[0].startswith("index.global.enabled = false")
    assert not told() and not told("hoodie.index.type=GLOBAL_BLOOM")
    assert not told("hoodie.index.type=BLOOM", "tagstream.source.format=debezium-flat-json")
    assert not told("hoodie.index.type=BLOOM", "hoodie.datasource.write.recordkey.field=id,day")
