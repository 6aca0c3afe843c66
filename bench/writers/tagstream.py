"""This project's job as a program. Its only argument is an order, a JSON file.

Runs the job's own entry points on two cores. Events are appended to the order's ``events`` file, one JSON object per line. A
batch's time is Spark's own: from the trigger to its commit log, including the listing of the source and the planning.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from pathlib import Path
from threading import Condition
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

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

_LISTENER_S = 60.0


class Told(StreamingQueryListener):
    """Replaces the progress display, and listens to Spark. Both together give a batch's event."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = 0.0
        self._reports: dict[int, BatchReport] = {}
        self._told = 0
        self._changed = Condition()

    def begins(self) -> None:
        """The session exists and the job begins. The index is loaded from now on."""
        self._began = time.monotonic()

    def begin(self, batch_id: int) -> None:
        """Not used."""

    def batch(self, report: BatchReport) -> None:
        """Keep a batch's report, which comes before Spark's progress event of the batch."""
        self._reports[report.batch_id] = report

    def lag(self, lag: int | None) -> None:
        """Not used."""

    def loading(self, at: BootstrapProgress) -> None:
        """Not used."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: ARG002, N802
        """The index is loaded and the query runs."""
        self._tell(event="ready", bootstrap_seconds=time.monotonic() - self._began)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch is done."""
        at = event.progress
        report = self._reports.get(at.batchId)
        if report is None:
            return  # nothing was there to do
        parts = {name: ms / 1000 for name, ms in at.durationMs.items()}
        whole = parts.pop("triggerExecution")
        self._tell(event="batch", batch=at.batchId, seconds=whole, phases=_merged(parts, report),
                   records=report.records, load1=os.getloadavg()[0])  # fmt: skip
        with self._changed:
            self._told += 1
            self._changed.notify_all()

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Not used."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Not used."""

    def wait(self) -> None:
        """Wait for Spark's listener events, which arrive after the end of the query."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._told >= len(self._reports), _LISTENER_S):
                raise TimeoutError(f"Spark told of {self._told} of {len(self._reports)} batches in {_LISTENER_S:.0f} s")

    def end(self) -> None:
        """All events have arrived."""
        self._tell(event="end")

    def _tell(self, **what: Any) -> None:
        with self._path.open("a", encoding="utf-8") as f:
            f.write(json.dumps(what | {"at": time.time()}) + "\n")


def _merged(parts: dict[str, float], report: BatchReport) -> dict[str, float]:
    """Spark's parts, with the sink's own parts in place of the one that includes them."""
    whole = parts.pop("addBatch", 0.0)
    return parts | dict(report.phases) | {"addBatch, the rest": max(0.0, whole - sum(report.phases.values()))}


def command_line(order: dict[str, Any]) -> list[str]:
    """The job's own flags. The table exists, so key, partition and ordering field come from it."""
    work = order["work"]
    properties = {
        "hoodie.streamer.source.dfs.root": order["batches"],
        "hoodie.streamer.schemaprovider.source.schema.file": order["avro"],
        "index.local.dir": f"{work}/local",
        **order["options"],
    }
    out = ["--source-class", "JsonDFSSource", "--source-limit", "1", "--target-base-path", order["table"]]
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
    conf |= order.get("spark", {})
    options = load_options(command_line(order))
    take_store_settings(options, os.environ)
    conf |= session_conf(options, os.environ)
    jars = needed_jars(spark_needs(options, os.environ), os.environ)
    spark = start_session("bench", jars=jars, conf=conf, env=os.environ, little_java=little_java(options))
    told = Told(Path(order["events"]))
    spark.streams.addListener(told)

    def now() -> int:
        return time.time_ns() // 1_000_000

    told.begins()
    with Watch(options, now) as watch:
        stream(spark, options, open_table(options, now()), told, StopFlag(), CrashPlan(), now, watch)
    told.wait()
    told.end()
    spark.stop()


if __name__ == "__main__":
    main()
