"""A small stream on the shared Spark session: its folders, one run of it, and what came of it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import SparkSession

from tagstream.bootstrap.report import BootstrapProgress
from tagstream.state.checkpoint import current_query_folder
from tagstream.streaming.batch.report import BatchReport
from tagstream.streaming.job.first_records import with_schema_by_spark
from tagstream.streaming.job.job import open_table, stream
from tagstream.streaming.job.main import load_only, open_existing
from tagstream.streaming.monitor.watch import Watch
from tagstream.streaming.options.cli import load_options
from tagstream.streaming.process import CrashPlan, StopFlag
from tagstream.streaming.source.source_checks import check_source
from tagstream.table.storage.posix import PosixStorage
from tests.support import events as ev
from tests.support.table_version import metadata_properties

UNSET = "(unset)"  # in a case's properties: the job is not given this one


def now_ms() -> int:
    """The clock of a run."""
    return time.time_ns() // 1_000_000


class Reports(list[BatchReport]):
    """Stands where the progress display is, and keeps what it is told."""

    def __init__(
        self, on_batch: Callable[[BatchReport], None], on_lag: Callable[[int | None], None] = lambda _: None
    ) -> None:
        super().__init__()
        self._on_batch, self._on_lag = on_batch, on_lag

    def batch(self, report: BatchReport) -> None:
        self.append(report)
        self._on_batch(report)

    def begin(self, batch_id: int) -> None:
        """Shown by the real one."""

    def lag(self, lag: int | None) -> None:
        self._on_lag(lag)

    def loading(self, at: BootstrapProgress) -> None:
        """Shown by the real one."""


class Steps(CrashPlan):
    """Calls a function at each step of the driver; a task gets a plan that does nothing."""

    def __init__(self, at: Callable[[str, int], None]) -> None:
        super().__init__()
        object.__setattr__(self, "_at", at)

    def reach(self, point: str, batch_id: int) -> None:
        self._at(point, batch_id)  # type: ignore[attr-defined]

    def __reduce__(self) -> tuple[type[CrashPlan], tuple[()]]:
        return CrashPlan, ()


@dataclass
class StreamCase:
    """``conf`` is passed as ``--hoodie-conf``; the source is a folder of files unless ``conf`` names a topic.

    ``existing`` is a table that is there: its key, partition and ordering fields, type and schema are then its own.
    ``place``: where the checkpoint is, if it was moved. ``source_class``: of a folder.
    """

    folder: Path
    spark: SparkSession
    table_type: str = "COPY_ON_WRITE"
    conf: Mapping[str, str] = field(default_factory=dict)
    schema: Mapping[str, object] = field(default_factory=lambda: ev.AVRO_SCHEMA)
    existing: Path | None = None
    place: Path | None = None
    source_class: str = "JsonDFSSource"

    @property
    def table(self) -> Path:
        return self.existing or self.folder / "table"

    @property
    def checkpoint(self) -> Path:
        return self.place or self.folder / "checkpoint"

    @property
    def root(self) -> Path:
        """Of the checkpoint's query."""
        return Path(current_query_folder(PosixStorage(str(self.checkpoint))).files.root)

    @property
    def source(self) -> Path:
        return self.folder / "in"

    def arguments(self, *more: str) -> list[str]:
        """The command line of a run."""
        self.source.mkdir(parents=True, exist_ok=True)
        schema = self.folder / "event.avsc"
        schema.write_text(json.dumps(self.schema))
        new = {**ev.properties(self.conf), "hoodie.streamer.schemaprovider.source.schema.file": str(schema)}
        conf = {
            **(metadata_properties(self.conf) if self.existing else new),
            "hoodie.index.bloom.num_entries": "1000",
            "index.local.dir": str(self.folder / "local"),
            "spark.sql.shuffle.partitions": "2",
            **self.conf,
        }
        kafka = "hoodie.streamer.source.kafka.topic" in conf
        if not kafka:
            conf["hoodie.streamer.source.dfs.root"] = str(self.source)
        default = kafka and self.source_class == "JsonDFSSource"
        out = ["--source-class", "JsonKafkaSource" if default else self.source_class]
        out += [] if kafka or "--source-limit" in more else ["--source-limit", "1"]  # one file a batch
        out += [] if self.existing else ["--target-table", "events", "--table-type", self.table_type]
        out += ["--target-base-path", str(self.table), "--checkpoint-dir", str(self.checkpoint), *more]
        for key, value in conf.items():
            out += ["--hoodie-conf", f"{key}={value}"] if value != UNSET else []
        return out

    def run(
        self,
        *more: str,
        on_batch: Callable[[BatchReport], None] = lambda _: None,
        at: Callable[[str, int], None] | None = None,
        on_lag: Callable[[int | None], None] = lambda _: None,
    ) -> list[BatchReport]:
        """Take what the source has; the reports of the batches.

        ``on_batch`` is called after each, ``on_lag`` when Spark has told the lag,
        ``at`` in the driver at each step of each (name of the step, batch).
        """
        options = load_options(self.arguments(*more))
        check_source(options)
        options = with_schema_by_spark(options, self.spark)
        reports = Reports(on_batch, on_lag)
        table = open_table(options, now_ms())
        crash = CrashPlan() if at is None else Steps(at)
        with Watch(options, now_ms) as watch:
            watch.table_opened(table)
            stream(self.spark, options, table, reports, StopFlag(), crash, now_ms, watch)  # type: ignore[arg-type]
        return list(reports)

    def bootstrap(self, *more: str, **conf: str) -> None:
        """`--bootstrap-only`: nothing but the table, the checkpoint and ``conf`` (``_`` for ``.``) is given."""
        options = load_options(self.bootstrap_arguments(*more, **conf))
        table, reports = open_existing(options), Reports(lambda _: None)
        load_only(self.spark, options, table, reports, StopFlag(), now_ms)  # type: ignore[arg-type]

    def bootstrap_arguments(self, *more: str, **conf: str) -> list[str]:
        """The command line of `--bootstrap-only`."""
        out = [
            "--bootstrap-only",
            "--target-base-path",
            str(self.table),
            "--checkpoint-dir",
            str(self.checkpoint),
            *more,
        ]
        pairs = {"index.local.dir": str(self.folder / "local"), **{k.replace("_", "."): v for k, v in conf.items()}}
        return [*out, *(word for key, value in pairs.items() for word in ("--hoodie-conf", f"{key}={value}"))]

    def files(self) -> dict[str, tuple[int, int]]:
        """Size and modification time (ns) of every file of the table but the writer's lease."""
        found = {}
        for folder, _, names in os.walk(self.table):
            for name in names:
                path = Path(folder, name)
                if not name.startswith(".tagstream_lease"):
                    found[str(path.relative_to(self.table))] = (path.stat().st_size, path.stat().st_mtime_ns)
        return found
