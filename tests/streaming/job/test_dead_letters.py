"""Bad records in a table and a topic of their own: each once, with all that it came with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer
from pyspark.sql import SparkSession

from tagstream.streaming.errors import DeadLetterError
from tagstream.streaming.job import dead_letters as delivery
from tagstream.streaming.job.dead_letters import DELIVERED
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.services.validate import validate
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline import lease as leases
from tagstream.table.timeline.lease import LeaseOwner
from tests.streaming.stream_case import StreamCase, now_ms
from tests.streaming.test_kafka_stream import kafka_case
from tests.support import events as ev
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker
from tests.support.table_version import completed_file, timeline_of

pytestmark = pytest.mark.spark
GOOD = b'{"id":"a","part":"p0","ts":1,"name":"x","amount":1.5,"_hoodie_is_deleted":false}\n'
ENABLED = {"hoodie.errortable.enable": "true"}


def errors(path: Path) -> list[dict[str, Any]]:
    return read_table(path, meta_columns=False).sort_by("id").to_pylist()


@pytest.mark.extended("the same decisions over another real stream")
def test_a_table_of_files_bad_records_each_once_whatever_is_done_again(tmp_path: Path, spark: SparkSession) -> None:
    errors_at = tmp_path / "errors"
    case = StreamCase(tmp_path, spark, conf={**ENABLED, "hoodie.errortable.base.path": str(errors_at)})
    case.source.mkdir()
    for n in range(2):
        ev.write_event_file(case.source, n, "", modified=1_600_000_000 + n)
        (case.source / f"events-0000{n}.json").write_bytes(GOOD + b"rubbish %d\n" % n)
    reports = case.run()
    assert [report.quarantined for report in reports] == [1, 1]
    found = errors(errors_at)
    assert [(row["value"], row["offset"], row["target_table"]) for row in found] == [
        (b"rubbish 0", len(GOOD), "events"), (b"rubbish 1", len(GOOD), "events"),
    ]  # fmt: skip
    assert all("JSON" in row["reason"] and row["source"].endswith(".json") for row in found)
    commits = len(list(timeline_of(errors_at).glob("*.commit")))

    # The process died before it noted that the batch was delivered, and before Spark noted that it was done.
    (case.checkpoint / "tagstream" / "quarantine" / DELIVERED / "1").unlink()
    for name in ("1", ".1.crc"):
        (case.checkpoint / "commits" / name).unlink(missing_ok=True)
    assert [report.replayed for report in case.run()] == [True]
    assert errors(errors_at) == found and len(list(timeline_of(errors_at).glob("*.commit"))) == commits
    assert validate(HoodieTable.open(str(errors_at))) == []


def test_what_is_not_taken_ends_the_job_or_is_tried_again(
    tmp_path: Path, spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WAIT_MS", "SHORT_WAIT_MS"):
        monkeypatch.setattr(delivery, name, 0)
    errors_at = tmp_path / "errors"
    case = StreamCase(tmp_path, spark, conf={**ENABLED, "hoodie.errortable.base.path": str(errors_at)})
    case.source.mkdir()
    ev.write_event_file(case.source, 0, "", modified=1_600_000_000)
    (case.source / "events-00000.json").write_bytes(GOOD + b"rubbish\n")
    storage = PosixStorage(str(errors_at))
    other = replace(LeaseOwner.this_process("another"), pid=1, process_start=0)
    held = leases.acquire(storage, replace(other, host="elsewhere"), now_ms(), 3_600_000)
    with pytest.raises(
        DeadLetterError, match="1 bad records of batch 0 were not delivered as dead letters: error table"
    ):
        case.run()
    assert read_table(case.table)["id"].to_pylist() == ["a"]  # the batch itself is done
    replace(case, conf={**case.conf, "hoodie.errortable.write.failure.strategy": "LOG_ERROR"}).run()
    assert "tried again after the next batch" in caplog.text
    leases.release(storage, held)
    case.run()
    assert [row["value"] for row in errors(errors_at)] == [b"rubbish"]


@pytest.mark.extended("the same decisions over another real stream")
def test_a_query_that_reads_all_again_leaves_no_letter_twice(tmp_path: Path, spark: SparkSession) -> None:
    errors_at = tmp_path / "errors"
    case = StreamCase(tmp_path, spark, conf={**ENABLED, "hoodie.errortable.base.path": str(errors_at)})
    case.source.mkdir()
    for n in range(2):
        ev.write_event_file(case.source, n, "", modified=1_600_000_000 + n)
        (case.source / f"events-0000{n}.json").write_bytes(GOOD + b"rubbish\n")
    case.run()
    found = errors(errors_at)
    assert len(found) == 2
    newest = HoodieTable.open(str(case.table)).timeline().completed_writes[-1]
    completed_file(case.table, newest.time).unlink()  # as if the table was restored to the commit before it
    case.run()
    assert case.root != case.checkpoint, "the query was not retired"
    assert errors(errors_at) == found


@pytest.mark.kafka
def test_a_topic_has_key_value_headers_and_why(tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    for topic in ("letters-in", "letters-out"):
        kafka_broker.create_topic(topic, partitions=1)
    producer = KafkaProducer(**kafka_broker.python_client())
    headers = [("trace", b"\xff\x01"), ("none", b""), ("trace", b"again")]
    producer.send("letters-in", key=b"a", value=GOOD.strip())
    producer.send("letters-in", key=b"k", value=b"rubbish", headers=headers)
    producer.send("letters-in", key=b"k2", value=b"rubbish 2")
    producer.flush()
    producer.close()
    case = kafka_case(tmp_path, spark, kafka_broker, "letters-in")
    case = replace(case, conf={**case.conf, **ENABLED, "tagstream.errortable.topic": "letters-out"})
    (report,) = case.run()
    assert report.quarantined == 2
    lines = [json.loads(s) for p in case.checkpoint.rglob("part-*.jsonl") for s in p.read_text().splitlines()]
    assert {line["offset"]: line.get("headers") for line in lines} == {
        1: [["trace", "/wE="], ["none", ""], ["trace", "YWdhaW4="]], 2: None,
    }  # fmt: skip

    consumer = KafkaConsumer(
        "letters-out", auto_offset_reset="earliest", consumer_timeout_ms=10_000, **kafka_broker.python_client()
    )
    first, second = sorted((next(consumer) for _ in range(2)), key=lambda m: bytes(m.key))
    consumer.close()
    assert (first.key, first.value) == (b"k", b"rubbish")
    assert list(first.headers)[:3] == headers
    told = dict(list(first.headers)[3:])
    assert (told["tagstream.source"], told["tagstream.partition"], told["tagstream.offset"]) == (
        b"letters-in",
        b"0",
        b"1",
    )
    assert b"JSON" in told["tagstream.reason"] and told["tagstream.table"] == b"events"
    assert (second.key, second.value) == (b"k2", b"rubbish 2")


@pytest.mark.kafka
def test_what_is_mended_is_sent_again_by_one_flag(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker
) -> None:
    kafka_broker.create_topic("mended", partitions=2)
    producer = KafkaProducer(**kafka_broker.python_client())
    long = b'{"id":"k","part":"p0","ts":2,"name":"y","amount":0.1234567890123456789012,"_hoodie_is_deleted":false}'
    producer.send("mended", key=b"a", value=GOOD.strip())
    producer.send("mended", key=b"k", value=long, headers=[("h", b"1")])
    producer.flush()
    producer.close()
    case = kafka_case(tmp_path, spark, kafka_broker, "mended")
    case.run("--commit-on-errors")
    assert read_table(case.table)["id"].to_pylist() == ["a"]
    rounding = replace(case, conf={**case.conf, "tagstream.decode.numbers": "round"})
    reports = rounding.run("--replay-quarantine")
    assert [(report.inserts, report.quarantined) for report in reports] == [(1, 0)]
    assert read_table(case.table).sort_by("id")["id"].to_pylist() == ["a", "k"]
    assert rounding.run("--replay-quarantine") == []
