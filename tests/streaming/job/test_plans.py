"""DataFrames that Spark keeps state of: refused by name where the state index can't come behind it, else exactly once."""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tagstream.streaming.job import upsert
from tagstream.table.errors import ConfigError
from tests.streaming.job.frame_case import FrameCase
from tests.streaming.job.test_upsert import BEGIN_MS, commit_records, ticks
from tests.streaming.stream_case import Steps
from tests.support import events as ev
from tests.support.hudi_rs import read_table

pytestmark = pytest.mark.spark
BEGIN = datetime(2026, 1, 1)


def windows(rows: DataFrame, *, watermark: bool = True) -> DataFrame:
    """A row for each key and ten seconds: how many there were. ``rows``: ``k, t``."""
    rows = rows.withWatermark("t", "0 seconds") if watermark else rows
    counted = rows.groupBy(F.window("t", "10 seconds"), "k").agg(F.count("*").alias("ts"))
    key = F.concat_ws("|", "k", F.date_format("window.start", "HH:mm:ss"))
    return counted.select(key.alias("id"), F.lit("p").alias("part"), "ts")


def test_what_spark_cannot_run_is_refused_before_anything_is_made(tmp_path: Path, spark: SparkSession) -> None:
    rows = ticks(spark, 3).select(F.col("value").cast("string").alias("k"), F.col("timestamp").alias("t"))
    stateful = windows(rows)
    case = FrameCase(tmp_path, spark)
    with pytest.raises(ConfigError, match="applyInPandasWithState .* after aggregation") as told:
        case.run(stateful)
    assert "hoodie.index.type=BLOOM, BUCKET, GLOBAL_BLOOM" in str(told.value) and "\n" not in str(told.value)
    with pytest.raises(ConfigError, match="aggregation needs a watermark"):
        FrameCase(tmp_path, spark, {"hoodie.index.type": "BLOOM"}).run(windows(rows, watermark=False))
    assert not case.table.exists() and not case.checkpoint.exists()


def put(case: FrameCase, number: int, *, twice: bool) -> list[dict[str, Any]]:
    """Nine records of three keys in the ten seconds of this number. ``twice``: later files have one of the first, too."""
    at = BEGIN + timedelta(seconds=10 * number)
    rows = [{"k": f"k{n % 3}", "t": (at + timedelta(seconds=n)).isoformat()} for n in range(9)]
    again = [{"k": "k0", "t": BEGIN.isoformat()}] if number and twice else []
    case.source.mkdir(exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in [*rows, *again])
    ev.write_event_file(case.source, number, text, modified=BEGIN_MS // 1000 + number)
    return rows


def kill_after_commit(step: str, batch: int) -> None:
    if (step, batch) == ("completed", 2):
        raise RuntimeError("killed")


@pytest.mark.extended("a real stream, killed")
@pytest.mark.parametrize("kind", ["windows", "distinct rows"])
def test_a_batch_that_spark_did_not_note_is_gone_through_again(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    case = FrameCase(tmp_path, spark, {"hoodie.index.type": "BLOOM", "hoodie.metadata.enable": "false"})

    def frame() -> DataFrame:
        reader = spark.readStream.schema("k string, t timestamp").option("maxFilesPerTrigger", 1)
        rows = reader.json(str(case.source))
        if kind == "windows":
            return windows(rows)
        once = rows.withWatermark("t", "1 hour").dropDuplicates(["k", "t"])
        key = F.concat_ws("|", "k", F.date_format("t", "HH:mm:ss"))
        return once.select(key.alias("id"), F.lit("p").alias("part"), F.unix_timestamp("t").alias("ts"))

    twice = kind == "distinct rows"
    events = [row for number in range(4) for row in put(case, number, twice=twice)]
    with monkeypatch.context() as killed, pytest.raises(RuntimeError, match="killed"):
        killed.setattr(upsert.CrashPlan, "from_env", lambda *_: Steps(kill_after_commit))
        case.run(frame())
    case.run(frame())
    events += [row for number in range(4, 6) for row in put(case, number, twice=twice)]
    case.run(frame())
    found = read_table(case.table, meta_columns=False).to_pylist()
    times = [(row["k"], datetime.fromisoformat(row["t"])) for row in events]
    if kind == "windows":
        counts = Counter(f"{k}|{t.replace(second=t.second // 10 * 10):%H:%M:%S}" for k, t in times)
        expected = {key: n for key, n in counts.items() if not key.endswith("00:00:50")}  # the last window is open
        assert {row["id"]: row["ts"] for row in found} == expected
    else:
        assert sorted(row["id"] for row in found) == sorted(f"{k}|{t:%H:%M:%S}" for k, t in times)
    batches = [record["batch_id"] for record in commit_records(case.table)]
    assert len(batches) == len(set(batches)), "a batch was committed twice"
