"""The real broker by every way in, killed and back; and the producer that fills it."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from tests.support import producer
from tests.support.events import Mix, generate, write_files
from tests.support.kafka_broker import KafkaBroker
from tests.support.kafka_listeners import LISTENERS

pytestmark = pytest.mark.kafka
Sent = list[tuple[int, bytes, bytes | None]]  # partition, key, value


def read_topic(broker: KafkaBroker, topic: str, kind: str = "plain") -> Sent:
    """Everything in a topic now, by partition and offset."""
    consumer = KafkaConsumer(**broker.python_client(kind), auto_offset_reset="earliest", enable_auto_commit=False)
    try:
        parts = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
        consumer.assign(parts)
        ends = consumer.end_offsets(parts)
        found: Sent = []
        while any(consumer.position(part) < ends[part] for part in parts):
            for messages in consumer.poll(timeout_ms=1000).values():
                found += [(message.partition, message.key, message.value) for message in messages]
        return sorted(found, key=lambda each: each[0])
    finally:
        consumer.close()


@pytest.mark.parametrize("kind", LISTENERS)
def test_every_listener_lets_its_users_in(kafka_broker: KafkaBroker, kind: str) -> None:
    topic = f"way-in-{kind}"
    kafka_broker.create_topic(topic, 1)
    assert producer.send([(b"k", kind.encode())], topic, kafka_broker.python_client(kind)) == 1
    assert read_topic(kafka_broker, topic, kind) == [(0, b"k", kind.encode())]


def test_the_topic_of_a_capture_is_empty_whoever_made_it_before(
    kafka_broker: KafkaBroker, request: pytest.FixtureRequest
) -> None:
    producer.send([(b"k", b"of a test before")], "shop.items", kafka_broker.python_client())
    assert read_topic(kafka_broker, request.getfixturevalue("items_topic")) == []


@pytest.mark.parametrize("kind", ["sasl_plain", "sasl_scram", "sasl_tls"])
def test_a_wrong_password_is_refused(kafka_broker: KafkaBroker, kind: str) -> None:
    client = kafka_broker.python_client(kind) | {"sasl_plain_password": "wrong", "bootstrap_timeout_ms": 2000}
    with pytest.raises(KafkaError):
        KafkaProducer(**client).close()


def test_java_clients_are_told_the_same(kafka_broker: KafkaBroker) -> None:
    keys = kafka_broker.java_client("sasl_tls")
    assert keys["bootstrap.servers"] == kafka_broker.address("sasl_tls")
    assert (keys["security.protocol"], keys["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    assert Path(keys["ssl.truststore.location"]).is_file()
    assert kafka_broker.java_client() == {"bootstrap.servers": kafka_broker.address()}


@pytest.mark.kill
def test_a_killed_broker_comes_back_with_its_messages(own_kafka_broker: KafkaBroker) -> None:
    own_kafka_broker.create_topic("t", 2)
    messages = [event.message() for event in generate(500, seed=1)]
    producer.send(messages, "t", own_kafka_broker.python_client())
    own_kafka_broker.kill()
    assert not own_kafka_broker.answers()
    own_kafka_broker.start()
    assert Counter((key, value) for _, key, value in read_topic(own_kafka_broker, "t")) == Counter(messages)


def test_generated_events_arrive_in_order_per_key(
    kafka_broker: KafkaBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--bootstrap-servers", kafka_broker.address(), "--topic", "generated"]
    disorder = ["--late", "0.05", "--duplicates", "0.05", "--shuffle", "20", "--tombstones", "0.5", "--distance", "300"]
    record = tmp_path / "sent.jsonl"
    what = ["--generate", "4000", "--keys", "300", "--seed", "5"]
    assert producer.main([*where, *what, *disorder, "--sent", str(record)]) == 0
    assert "messages to generated in" in capsys.readouterr().out
    sent = [json.loads(line) for line in record.read_text().splitlines()]
    assert len(sent) > 4_100
    assert sum(each["value"] is None for each in sent) > 50
    found = read_topic(kafka_broker, "generated")
    assert len({partition for partition, _, _ in found}) == 4
    by_key_sent: dict[str, list[str | None]] = {}
    by_key_found: dict[str, list[str | None]] = {}
    for each in sent:
        by_key_sent.setdefault(each["key"], []).append(each["value"])
    for _, key, value in found:
        by_key_found.setdefault(key.decode(), []).append(None if value is None else value.decode())
    assert by_key_found == by_key_sent


def test_a_file_is_replayed_byte_for_byte_and_at_its_rate(kafka_broker: KafkaBroker, tmp_path: Path) -> None:
    events = list(generate(200, seed=2))
    paths = write_files(events, tmp_path, 150)
    where = ["--bootstrap-servers", kafka_broker.address(), "--topic", "replayed", "--partitions", "1"]
    assert producer.main([*where, "--file", *map(str, paths), "--limit", "120"]) == 0
    found = read_topic(kafka_broker, "replayed")
    assert [(key, value) for _, key, value in found] == [event.message() for event in events[:120]]
    began = time.monotonic()
    assert producer.send([(b"k", b"v")] * 50, "replayed", kafka_broker.python_client(), rate=100) == 50
    assert time.monotonic() - began > 0.45


def test_a_key_of_several_fields_is_a_json_object() -> None:
    row = {"carrier": "UA", "flight": 12, "other": 1}
    assert producer.message_key(row, ["carrier"]) == b"UA"
    assert producer.message_key(row, ["carrier", "flight"]) == b'{"carrier":"UA","flight":12}'


def test_the_oracle_reads_what_was_sent(tmp_path: Path) -> None:
    events = list(generate(500, Mix(keys=50), seed=4))
    plain = (event.message() for event in events)
    with_some = list(producer.recorded(producer.with_tombstones(plain, 0.5, seed=1), tmp_path / "sent"))
    back = list(producer.sent_events(tmp_path / "sent"))
    assert [event.message() for event in back] == with_some
    assert 0 < sum(event.is_tombstone for event in back) < sum(event.deleted for event in back)
    assert [event for event in back if not event.deleted] == [event for event in events if not event.deleted]


def test_no_broker_is_said_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    client = ["--client", "bootstrap_timeout_ms=500"]
    arguments = ["--bootstrap-servers", "127.0.0.1:9", "--topic", "t", "--generate", "1", *client]
    assert producer.main(arguments) == 1
    assert "Is the broker at" in capsys.readouterr().err
