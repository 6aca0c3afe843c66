"""One case: its folder, a start as the command makes it, batch after batch, and its rows held against the oracle."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import tagstream
from tagstream.bootstrap.report import BootstrapProgress
from tagstream.streaming.batch.report import BatchReport
from tagstream.streaming.job.job import open_table, stream
from tagstream.streaming.job.preflight import SparkNeeds, check_before_spark, check_start, check_stream
from tagstream.streaming.monitor.watch import Watch
from tagstream.streaming.options.cli import load_options
from tagstream.streaming.options.options import Options
from tagstream.streaming.process import CrashPlan, StopFlag
from tagstream.streaming.source.transformation import with_transformed_schema
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.services.validate import validate
from tagstream.table.services.validate_metadata import validate_metadata
from tests.pairs.events import COLUMNS, SPARK_COLUMNS, Event, Row, avro_schema, line
from tests.pairs.options import properties
from tests.pairs.oracle import Ident, Oracle, odd
from tests.support.hudi_rs import read_table

_SHOWN = 5
NEEDS = SparkNeeds(java=False, connector=False, master=None)


def now_ms() -> int:
    """The clock of a run."""
    return time.time_ns() // 1_000_000


@dataclass
class Quiet:
    """Stands where the progress display is, and counts the batches."""

    batches: int = 0

    def begin(self, batch_id: int) -> None:
        """Shown by the real one."""

    def batch(self, report: BatchReport) -> None:
        self.batches += 1

    def lag(self, records: int | None) -> None:
        """Shown by the real one."""

    def loading(self, at: BootstrapProgress) -> None:
        """Shown by the real one."""


@dataclass
class PairCase:
    """A case in a folder. ``more``: properties on top of those of its values; ``own``: in their place. ``flags``: of the
    command line.
    """

    folder: Path
    spark: SparkSession
    values: Mapping[str, str]
    more: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] | None = None
    flags: tuple[str, ...] = ()
    sent: int = 0
    files: int = 0

    @property
    def table(self) -> Path:
        return self.folder / "table"

    @property
    def source(self) -> Path:
        return self.folder / "in"

    def properties(self) -> dict[str, str]:
        """The properties file, as a dictionary."""
        source = self.values["source"]
        made = {
            **(properties(self.values) if self.own is None else self.own),
            "hoodie.table.name": "places",
            "hoodie.index.bloom.num_entries": "1000",
            "hoodie.metadata.record.index.min.filegroup.count": "2",
            "index.local.dir": str(self.folder / "local"),
            "index.key.groups": "4",
            "spark.sql.shuffle.partitions": "2",
            **self.more,
        }
        if source == "DataFrame":
            return made
        if source == "json by SQL":
            made["hoodie.streamer.transformer.class"] = "org.apache.hudi.utilities.transform.SqlQueryBasedTransformer"
            made["hoodie.streamer.transformer.sql"] = "SELECT * FROM <SRC> WHERE id <> 'k99'"
        elif source != "json":
            made["tagstream.source.format"] = source.removesuffix(" with schemas")
        made["hoodie.streamer.source.dfs.root"] = str(self.source)
        made["hoodie.streamer.schemaprovider.source.schema.file"] = str(self.folder / "place.avsc")
        return made

    def arguments(self) -> list[str]:
        """The command line; the properties are in a file."""
        self.source.mkdir(parents=True, exist_ok=True)
        (self.folder / "place.avsc").write_text(json.dumps(avro_schema(self.values["source"])))
        props = self.folder / "job.properties"
        props.write_text("".join(f"{name}={value}\n" for name, value in self.properties().items()))
        return [
            "--props", str(props), "--source-class", "JsonDFSSource", "--target-base-path", str(self.table),
            "--checkpoint-dir", str(self.folder / "checkpoint"), "--source-limit", "1", *self.flags,
        ]  # fmt: skip

    def send(self, events: Sequence[Event], table: Mapping[str, str] | None = None) -> None:
        """The events become the source's next file, which is a batch of its own. ``table``: values that the table has."""
        self.source.mkdir(parents=True, exist_ok=True)
        lines = []
        for event in events:
            self.sent += 1
            lines.append(line(event, odd(table or self.values), self.values["source"], self.sent))
        path, hidden = self.source / f"{self.files:03d}.json", self.source / f".{self.files:03d}"
        hidden.write_text("".join(f"{text}\n" for text in lines), "utf-8")
        os.utime(hidden, (1_700_000_000 + self.files,) * 2)
        hidden.rename(path)
        self.files += 1

    def run(self) -> None:
        """Start as the command does, take what the source has, and end. Raises what ends the start."""
        if self.values["source"] == "DataFrame":
            self._run_frame()
        else:
            run_stream(self.spark, load_options(self.arguments()))

    def problems(self, oracle: Oracle, *, hudi_rs: bool) -> list[str]:
        """How the table differs from what is right; ``hudi_rs``: by that reader as well, where it reads such a table."""
        table = HoodieTable.open(str(self.table))
        want = _as_texts(oracle.rows(), table.config.dropped_fields)
        found = differences("rows", read_snapshot(table), want)
        found += [f"validate: {problem}" for problem in validate(table)]
        found += [f"metadata: {problem}" for problem in validate_metadata(table)]
        if hudi_rs and hudi_rs_can(self.values, table):
            found += differences("hudi-rs", read_table(self.table), want)
        return found

    def _run_frame(self) -> None:
        self.source.mkdir(parents=True, exist_ok=True)
        frame = self.spark.readStream.schema(SPARK_COLUMNS).option("maxFilesPerTrigger", 1).json(str(self.source))
        made = self.properties()
        tagstream.upsert(
            frame, self.table, self.folder / "checkpoint", options=made, trigger="availableNow"
        ).awaitTermination()


def run_stream(spark: SparkSession, options: Options) -> Quiet:
    """What the command does between reading its options and its exit code, on a session that is there."""
    shown = Quiet()
    with Watch(options, now_ms) as watch:
        if options.source.transformers:
            check_before_spark(options, os.environ, NEEDS)
            options = with_transformed_schema(spark, options)
        check_stream(check_start(options, os.environ, now_ms(), NEEDS).table, options.index)
        table = open_table(options, now_ms())
        watch.table_opened(table)
        stream(spark, options, table, shown, StopFlag(), CrashPlan(), now_ms, watch)
    return shown


def _as_texts(rows: Mapping[Ident, Row], columns: Sequence[str]) -> Mapping[Ident, Row]:
    """The rows with what readers take from the path: its texts, and one null for a null and an empty text."""
    if not columns:
        return rows
    texts = {
        ident: {name: None if row[name] in (None, "") else str(row[name]) for name in columns}
        for ident, row in rows.items()
    }
    return {ident: {**row, **texts[ident]} for ident, row in rows.items()}


def differences(who: str, found: pa.Table, want: Mapping[Ident, Row]) -> list[str]:
    """Rows that are lost, too many, there twice, or that differ."""
    wrong: list[str] = []
    got: dict[Ident, dict[str, Any]] = {}
    for each in found.to_pylist():
        ident = (each["_hoodie_partition_path"], each["_hoodie_record_key"])
        wrong += [f"{who}: {ident} is there twice"] if ident in got else []
        got[ident] = each
    wrong += [f"{who}: {ident} is lost" for ident in sorted(want.keys() - got.keys())]
    wrong += [f"{who}: {ident} must not be there" for ident in sorted(got.keys() - want.keys())]
    for ident in sorted(want.keys() & got.keys()):
        for name in COLUMNS:
            right, has = want[ident][name], got[ident].get(name)
            if right != has:
                wrong.append(f"{who}: {ident}.{name} is {has!r}, {right!r} is right")
    return wrong[:_SHOWN] + ([f"{who}: and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else [])


def hudi_rs_can(values: Mapping[str, str], table: HoodieTable) -> bool:
    """Whether hudi-rs 0.5.0 reads such a table rightly (docs/reference/compatibility.md)."""
    if values["ordering"] == "several":  # it knows one ordering field
        return False
    if values["layout"] == "custom" and table.config.version >= 8:  # it takes city:SIMPLE for the name of a field
        return False
    if table.config.drops_partition_columns:  # it refuses these by name
        return False
    if table.config.version < 8 or not table.config.is_merge_on_read:
        return True
    timeline = table.timeline()
    view = table.view(timeline)
    slices = [s for partition in view.partitions() for s in view.latest_merged_slices(partition) if s.base_path is None]
    archived = any(timeline.is_archived(log.time) for s in slices for log in s.log_files)
    return not archived and not (slices and table.config.metadata_partitions)
