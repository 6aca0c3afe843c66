"""Streams of Protobuf messages from a real broker: into a new table without a schema file, with deletes and bad messages."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import api_pb2, descriptor_pb2
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from tagstream.streaming.options.cli import load_options
from tagstream.streaming.source.connector import CACHE_FOLDER, PROJECT, fetch_jars
from tagstream.table.errors import ConfigError
from tests.drills.stream_job import DEADLINE_S
from tests.streaming.source.decode.test_protobuf import FOLDER, ORDER, order, random_order, runtime
from tests.streaming.stream_case import UNSET, StreamCase
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker
from tests.support.process import Process

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]


@dataclass
class Orders:
    """A topic with versions of orders, and the rows that the table must have."""

    broker: KafkaBroker
    topic: str
    framed: bool
    rng: random.Random = field(default_factory=lambda: random.Random(7))
    live: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: int = 0

    def send(self, count: int) -> None:
        """New versions of some of 30 keys: rows, deletes by the mark, and tombstones."""
        producer, make = KafkaProducer(**self.broker.python_client()), runtime(ORDER)
        for _ in range(count):
            key, self.version = f"o{self.rng.randrange(30)}", self.version + 1
            message = random_order(make, self.rng)
            message.id, message.region, message.version = key, f"r{self.rng.randrange(3)}", self.version
            message._hoodie_is_deleted = self.rng.random() < 0.1
            data: bytes | None = (b"\0\0\0\0\1\2\2" if self.framed else b"") + message.SerializeToString()
            row = order(message, limit=3)
            self.live[key] = {name: value for name, value in row.items() if name != "_hoodie_is_deleted"}
            if self.rng.random() < 0.05:
                data = None
            if data is None or message._hoodie_is_deleted:
                del self.live[key]
            producer.send(self.topic, key=self.message_key(key), value=data, partition=sum(key.encode()) % 2)
        producer.flush()
        producer.close()

    def message_key(self, key: str) -> bytes:
        """As JSON or, without frames, as Kafka's serializer of strings writes it."""
        return b'{"id":"%s"}' % key.encode() if self.framed else key.encode()

    def forget(self, count: int) -> None:
        """Messages without a value for some of the live keys."""
        producer = KafkaProducer(**self.broker.python_client())
        for key in sorted(self.live)[:count]:
            del self.live[key]
            producer.send(self.topic, key=self.message_key(key), value=None, partition=sum(key.encode()) % 2)
        producer.flush()
        producer.close()

    def send_damaged(self, data: bytes) -> None:
        producer = KafkaProducer(**self.broker.python_client())
        producer.send(self.topic, key=b'{"id":"bad"}', value=data, partition=0)
        producer.flush()
        producer.close()


def case_of(folder: Path, spark: SparkSession, orders: Orders, table_type: str, **more: str) -> StreamCase:
    conf = {
        "hoodie.streamer.source.kafka.topic": orders.topic,
        "hoodie.streamer.schemaprovider.source.schema.file": UNSET,
        "hoodie.streamer.schemaprovider.proto.class.name": "com.acme.shop.Shop$Order",
        "hoodie.streamer.schemaprovider.proto.max.recursion.depth": "3",
        "tagstream.proto.descriptor.file": str(FOLDER / "shop.desc"),
        "hoodie.datasource.write.partitionpath.field": "region",
        "hoodie.table.ordering.fields": "version",
        **orders.broker.java_client("plain"),
        **more,
    }
    if orders.framed:
        conf["hoodie.streamer.source.kafka.proto.value.deserializer.class"] = (
            "io.confluent.kafka.serializers.protobuf.KafkaProtobufDeserializer"
        )
    return StreamCase(
        folder, spark, table_type, conf, source_class="org.apache.hudi.utilities.sources.ProtoKafkaSource"
    )


@pytest.mark.parametrize("table_type", TYPES)
def test_the_table_has_the_messages(
    table_type: str, tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker
) -> None:
    framed = table_type == "MERGE_ON_READ"
    orders = Orders(kafka_broker, f"orders-{table_type}", framed)
    kafka_broker.create_topic(orders.topic, partitions=2)
    orders.send(120)
    case = case_of(tmp_path, spark, orders, table_type)
    assert len(case.run("--source-limit", "50")) == 3
    orders.send(60)
    orders.forget(5)  # no later message of these keys hides the deletes
    case.run()
    found = {row["id"]: row for row in read_table(case.table, meta_columns=False).to_pylist()}
    assert found == orders.live


def test_damaged_messages_are_in_the_quarantine(tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    orders = Orders(kafka_broker, "orders-damaged", framed=False)
    kafka_broker.create_topic(orders.topic, partitions=2)
    orders.send(20)
    orders.send_damaged(b"\x0a\x05ab")
    orders.send(20)
    case = case_of(tmp_path, spark, orders, "COPY_ON_WRITE")
    (report,) = case.run("--max-bad-records", "1")
    assert report.quarantined == 1
    found = {row["id"]: row for row in read_table(case.table, meta_columns=False).to_pylist()}
    assert found == orders.live
    (path,) = (case.checkpoint / "tagstream" / "quarantine").glob("batch=*/*.jsonl")
    (line,) = path.read_text().splitlines()
    assert "not a message acme.shop.Order" in line


def test_a_field_that_the_message_gets(tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    """Producers and the file of descriptors get a field: the table gets the column, which older rows lack."""
    files = descriptor_pb2.FileDescriptorSet.FromString((FOLDER / "shop.desc").read_bytes())
    (shop,) = (file for file in files.file if file.name == "shop.proto")
    (message,) = (m for m in shop.message_type if m.name == "Order")
    (place,) = (i for i, f in enumerate(message.field) if f.name == "weight")
    del message.field[place]
    older = tmp_path / "older.desc"
    older.write_bytes(files.SerializeToString())
    orders = Orders(kafka_broker, "orders-field", framed=False)
    kafka_broker.create_topic(orders.topic, partitions=2)
    orders.send(20)
    case_of(tmp_path, spark, orders, "MERGE_ON_READ", **{"tagstream.proto.descriptor.file": str(older)}).run()
    before = {key: weightless(row) for key, row in orders.live.items()}
    found = {row["id"]: row for row in read_table(tmp_path / "table", meta_columns=False).to_pylist()}
    assert "weight" not in found[min(found)]
    assert {key: weightless(row) for key, row in found.items()} == before
    orders.send(10)
    case_of(tmp_path, spark, orders, "MERGE_ON_READ").run()
    found = {row["id"]: row for row in read_table(tmp_path / "table", meta_columns=False).to_pylist()}
    expected = {
        key: before[key] if key in before and before[key]["version"] == row["version"] else row
        for key, row in orders.live.items()
    }
    assert found == expected


def weightless(row: dict[str, Any]) -> dict[str, Any]:
    """The row without its weight, nor that of the orders in it."""
    inner = row["replaces"]
    faded = weightless(inner) if inner is not None and "id" in inner else inner
    return {**row, "weight": None, "replaces": faded}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"hoodie.streamer.schemaprovider.proto.class.name": UNSET}, "proto.class.name is missing"),
        ({"tagstream.proto.descriptor.file": "/no/such.desc"}, "/no/such.desc: No such file"),
        ({"hoodie.streamer.schemaprovider.proto.class.name": "a.B"}, "no message or Java class a.B .*acme.shop.Order"),
        ({"hoodie.streamer.schemaprovider.proto.max.recursion.depth": "0"}, "max.recursion.depth"),
    ],
)
def test_settings_that_are_refused(more: dict[str, str], text: str, tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    case = case_of(tmp_path, None, Orders(kafka_broker, "t", framed=False), "COPY_ON_WRITE", **more)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=text):
        load_options(case.arguments())


def test_a_class_that_no_jar_has_is_named(tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    orders = Orders(kafka_broker, "orders-no-class", framed=False)
    kafka_broker.create_topic(orders.topic, partitions=1)
    case = case_of(tmp_path, spark, orders, "COPY_ON_WRITE", **{"tagstream.proto.descriptor.file": UNSET})
    with pytest.raises(ConfigError, match=r"com.acme.shop.Shop\$Order: no such class; give the jar .* --jars"):
        case.run()


@pytest.mark.extended("needs Java's Protobuf from Maven")
def test_the_type_of_a_java_class(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    """A whole job, with the jar as users give it. The class is one of Java's Protobuf itself."""
    topic = "methods"
    kafka_broker.create_topic(topic, partitions=1)
    producer = KafkaProducer(**kafka_broker.python_client())
    for number in range(20):
        message = api_pb2.Method(
            name=f"m{number % 8}", request_type_url=f"u{number}", request_streaming=number % 3 == 0
        )
        message.options.add(name="o").value.Pack(api_pb2.Mixin(name=str(number)))
        producer.send(topic, value=message.SerializeToString())
    producer.flush()
    producer.close()
    jars = fetch_jars(PROJECT / "conf" / "poms" / "protobuf.xml", PROJECT / CACHE_FOLDER)
    conf = {
        "hoodie.streamer.source.kafka.topic": topic,
        "hoodie.streamer.schemaprovider.proto.class.name": "com.google.protobuf.Method",
        "hoodie.datasource.write.recordkey.field": "name",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "512m",
        **kafka_broker.java_client("plain"),
    }
    folders = ["--target-base-path", str(tmp_path / "table"), "--checkpoint-dir", str(tmp_path / "checkpoint")]
    told = ["--target-table", "methods", "--source-class", "ProtoKafkaSource", *folders]
    told += [word for key, value in conf.items() for word in ("--hoodie-conf", f"{key}={value}")]
    with Process([sys.executable, str(PROJECT / "run_stream.py"), *told], tmp_path / "log") as process:
        assert process.wait(DEADLINE_S) == 0, process.output()[-4000:]
    rows = {row["name"]: row for row in read_table(tmp_path / "table", meta_columns=False).to_pylist()}
    assert {name: row["request_type_url"] for name, row in rows.items()} == {
        f"m{n % 8}": f"u{n}" for n in range(12, 20)
    }
    (option,) = rows["m7"]["options"]
    assert option["value"]["type_url"] == "type.googleapis.com/google.protobuf.Mixin"
    assert rows["m7"]["syntax"] == "SYNTAX_PROTO2"
