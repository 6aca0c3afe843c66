"""The three properties files of the fixtures stream: at the first start, or after the one message that one of them needs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from pyspark.sql import SparkSession

from tagstream.streaming.job.job import open_table, stream
from tagstream.streaming.monitor.watch import Watch
from tagstream.streaming.options.cli import load_options
from tagstream.streaming.process import CrashPlan, StopFlag
from tagstream.table.errors import ConfigError
from tests.streaming.options.test_brought import DEMO, DOCS, DOCS_FLAGS, PRODUCTION
from tests.streaming.stream_case import Reports, now_ms
from tests.support.hudi_rs import read_table
from tests.support.kafka_broker import KafkaBroker

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

IMPRESSION = {"impresssiontime": 1, "impressionid": "i-1", "userid": "u-1", "adid": "a-1"}
TICK = {"key": "GOOG_1", "date": "2018-08-31", "ts": "2018-08-31 09:30:00", "symbol": "GOOG", "volume": 5, "open": 1.5,
        "close": 2.5}  # fmt: skip
SCHEMA = "hoodie.deltastreamer.schemaprovider.{}.schema.file={}"


def send(broker: KafkaBroker, topic: str, record: dict[str, Any]) -> None:
    broker.create_topic(topic, partitions=1)
    producer = KafkaProducer(**broker.python_client())
    producer.send(topic, value=json.dumps(record).encode())
    producer.flush()
    producer.close()


@pytest.mark.extended("more properties files of others", first=("production",))
@pytest.mark.parametrize(
    ("props", "more", "record", "starts"),
    [(DOCS, DOCS_FLAGS, IMPRESSION, 1), (DEMO, [], TICK, 1), (PRODUCTION, [], TICK, 2)],
    ids=["docs", "demo", "production"],
)
def test_starts_until_it_streams(
    tmp_path: Path,
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    props: Path,
    more: list[str],
    record: dict[str, Any],
    starts: int,
) -> None:
    topic = f"brought-{props.parent.name}"
    send(kafka_broker, topic, record)
    paths = ["--target-base-path", str(tmp_path / "t"), "--checkpoint-dir", str(tmp_path / "c"), "--target-table", "t"]
    here = {**kafka_broker.java_client("plain"), "hoodie.streamer.source.kafka.topic": topic}
    here["hoodie.datasource.hive_sync.enable"] = "false"  # no metastore runs in this test
    here |= {"index.local.dir": str(tmp_path / "local"), "spark.sql.shuffle.partitions": "2"}
    argv = ["--props", str(props), *paths, *more]
    argv += [word for key, value in here.items() for word in ("--hoodie-conf", f"{key}={value}")]
    if props != DOCS:  # the files name a schema of their machine
        for kind in ("source", "target"):
            argv += ["--hoodie-conf", SCHEMA.format(kind, PRODUCTION.with_name("schema.avsc"))]
    count, options = 1, None
    while options is None:
        try:
            options = load_options(argv)
        except ConfigError as e:
            count += 1
            way_out = next(line for line in str(e).splitlines() if line.startswith("to keep a file unchanged"))
            argv += way_out.partition(": ")[2].split()
    assert count == starts
    reports = Reports(lambda _: None)
    table = open_table(options, now_ms())
    with Watch(options, now_ms) as watch:
        stream(spark, options, table, reports, StopFlag(), CrashPlan(), now_ms, watch)  # type: ignore[arg-type]
    assert [r.inserts for r in reports] == [1]
    (row,) = read_table(tmp_path / "t").to_pylist()
    assert {name: row[name] for name in record} == record
