"""This project's job as a program. Its only argument is an order, a JSON file.

Runs the job's own entry points on two cores. Events are appended to the order's ``events`` file, one JSON object per line. A
batch's time is Spark's own: from the trigger to its commit log, with the listing of the source and the planning. Spark's
times are read one time, when the query has ended. A listener of Python would slow the job: it costs a tenth of a batch of
100,000 records, and a third of a batch of one.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tagstream.bootstrap.report import BootstrapProgress
from tagstream.streaming.batch.report import BatchReport
from tagstream.streaming.job.job import open_table, stream
from tagstream.streaming.job.session import (
    little_java,
    needed_jars,
    session_conf,
    spark_needs,
    start_session,
    take_store_settings,
)
from tagstream.streaming.monitor.watch import Watch
from tagstream.streaming.options.cli import load_options
from tagstream.streaming.process import CrashPlan, StopFlag

# Spark keeps so many progress reports of a query: more than any run has batches.
_KEPT_REPORTS = "10000"


class Events:
    """Replaces the progress display, and appends the events of the run to a file."""

    def __init__(self, path: Path, spark: SparkSession) -> None:
        self._path, self._spark = path, spark
        self._began = 0.0
        self._newest = -1
        self._queries: list[StreamingQuery] = []
        self._reports: dict[int, tuple[BatchReport, float, float]] = {}

    def begins(self) -> None:
        """The session exists and the job begins. The index is loaded from now on."""
        self._began = time.monotonic()

    def begin(self, batch_id: int) -> None:
        """A batch begins: the first one of a query, if none with a lower number came before."""
        if batch_id > self._newest and self._queries:
            self._newest = batch_id
            return
        if not self._queries:
            self._write(event="ready", bootstrap_seconds=time.monotonic() - self._began)
        self._queries += self._spark.streams.active
        self._newest = batch_id

    def batch(self, report: BatchReport) -> None:
        """Keep a batch's report, which comes before Spark's own of the batch."""
        self._reports[report.batch_id] = (report, time.time(), os.getloadavg()[0])

    def lag(self, lag: int | None) -> None:
        """Not used."""

    def loading(self, at: BootstrapProgress) -> None:
        """Not used."""

    def end(self) -> None:
        """The query has ended: write an event for each batch. RuntimeError when Spark has no times of a batch."""
        for query in self._queries:
            for progress in query.recentProgress:
                known = self._reports.pop(progress.batchId, None)
                if known is not None:
                    self._write_batch(progress.batchId, dict(progress.durationMs), *known)
        if self._reports:
            raise RuntimeError(f"Spark has no times of batches {sorted(self._reports)}")
        self._write(event="end")

    def _write_batch(self, batch_id: int, ms: dict[str, int], report: BatchReport, at: float, load1: float) -> None:
        parts = {name: value / 1000 for name, value in ms.items()}
        whole = parts.pop("triggerExecution")
        self._write(event="batch", batch=batch_id, seconds=whole, phases=_merged(parts, report), records=report.records,
                    load1=load1, at=at)  # fmt: skip

    def _write(self, **what: Any) -> None:
        with self._path.open("a", encoding="utf-8") as f:
            f.write(json.dumps({"at": time.time()} | what) + "\n")


def _merged(parts: dict[str, float], report: BatchReport) -> dict[str, float]:
    """Spark's parts, with the sink's own parts in place of the one that includes them."""
    whole = parts.pop("addBatch", 0.0)
    return parts | dict(report.phases) | {"addBatch, the rest": max(0.0, whole - sum(report.phases.values()))}


def command_line(order: dict[str, Any]) -> list[str]:
    """The job's own flags. Where the table exists, key, partition and ordering field come from it."""
    work = order["work"]
    properties = {
        "hoodie.streamer.source.dfs.root": order["batches"],
        "hoodie.streamer.schemaprovider.source.schema.file": order["avro"],
        "index.local.dir": f"{work}/local",
        **order["options"],
    }
    flags = order.get("flags", ["--source-class", "JsonDFSSource", "--source-limit", "1"])
    out = [*flags, "--target-base-path", order["table"]]
    out += [
        "--target-table",
        order["name"],
        "--table-type",
        order["table_type"],
        "--checkpoint-dir",
        order.get("checkpoint", f"{work}/checkpoint"),
    ]
    for name, value in properties.items():
        out += ["--hoodie-conf", f"{name}={value}"]
    return out


def main() -> None:
    """Run the order."""
    order = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    logging.basicConfig(stream=sys.stderr)
    logging.getLogger("tagstream").setLevel(logging.INFO)
    conf = {"spark.master": "local[2,4]", "spark.driver.memory": "4g", "spark.local.dir": f"{order['work']}/spark"}
    conf |= {"spark.sql.streaming.numRecentProgressUpdates": _KEPT_REPORTS, **order.get("spark", {})}
    options = load_options(command_line(order))
    take_store_settings(options, os.environ)
    conf |= session_conf(options, os.environ)
    jars = needed_jars(spark_needs(options, os.environ), os.environ)
    spark = start_session("bench", jars=jars, conf=conf, env=os.environ, little_java=little_java(options))
    events = Events(Path(order["events"]), spark)

    def now() -> int:
        return time.time_ns() // 1_000_000

    events.begins()
    with Watch(options, now) as watch:
        stream(spark, options, open_table(options, now()), events, StopFlag(), CrashPlan(), now, watch)
    events.end()
    spark.stop()


if __name__ == "__main__":
    main()
