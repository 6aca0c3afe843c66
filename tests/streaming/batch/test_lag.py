"""The lag that Spark's progress tells, as each release of PySpark gives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tagstream.streaming.monitor.progress import source_lag
from tests.streaming.test_kafka_stream import kafka_case, send
from tests.support import events as ev
from tests.support.kafka_broker import KafkaBroker
from tests.support.process import wait_for

ENDS = {"orders": {"0": 60, "1": 40}}
LATEST = {"orders": {"0": 100, "1": 40, "2": 7}}


@pytest.mark.parametrize("told", [dict, json.dumps], ids=["pyspark-3.5", "pyspark-4.2"])
def test_offsets_come_as_dicts_or_as_text(told: Any) -> None:
    # A partition that has just come has no end of the batch: all that counts of it is what the next progress tells.
    assert source_lag({"endOffset": told(ENDS), "latestOffset": told(LATEST)}) == 40
    assert source_lag({"endOffset": told(ENDS), "latestOffset": told(ENDS)}) == 0


@pytest.mark.parametrize("told", [None, "null", '{"logOffset": 3}', {"logOffset": 3}, "5", 5, "not JSON", "[]"])
def test_what_tells_no_offsets_of_partitions_has_no_lag(told: Any) -> None:
    assert source_lag({"endOffset": told, "latestOffset": told}) is None
    assert source_lag({"endOffset": json.dumps(ENDS), "latestOffset": told}) is None


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.platform("the lag of a Kafka stream")
def test_batches_of_a_real_stream_are_told_the_lag(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker
) -> None:
    kafka_broker.create_topic("told-lag", partitions=2)
    send(kafka_broker, "told-lag", list(ev.generate(1_000, ev.Mix(keys=120), seed=3)), 2)
    case = kafka_case(tmp_path, spark, kafka_broker, "told-lag")
    lags: list[int | None] = []

    def wait(step: str, batch: int) -> None:
        if step == "inflight":
            wait_for(lambda: len(lags) >= batch, 60, "what Spark tells of the batch before")

    reports = case.run("--source-limit", "250", at=wait, on_lag=lags.append)
    left = 1_000
    for report in reports:
        assert report.lag == (left if report.batch_id else None), "what waited before the batch"
        left -= report.records
    assert left == 0 and len(reports) == 4
