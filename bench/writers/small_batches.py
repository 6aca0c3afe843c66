"""A job that streams many small batches into one table, and samples of it: the measurements of `bench.small_batches`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.inputs.soak_samples import batches_of, bytes_below, memory_mib
from tagstream.streaming.batch.commit_record import newest_commit
from tagstream.streaming.source.connector import PROJECT
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.interop.hudi_spark import HudiSpark
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table
from tests.support.process import Process

START_S = 300.0
EVERY_S = 2.0


@dataclass
class SmallBatches:
    """A table of one type: its folders, its events and its samples. ``args``: those of the program."""

    args: argparse.Namespace
    folder: Path
    table_type: str
    samples: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    checks: int = 0
    kept: list[tuple[int, Path]] = field(default_factory=list)
    read_by_hudi: int = 0
    seconds: list[float] = field(default_factory=list)
    starts: list[tuple[int, float]] = field(default_factory=list)

    @property
    def table(self) -> Path:
        """The table's folder."""
        return self.folder / "table"

    def write_input(self) -> list[Path]:
        """Write all files that the job will read to another folder, from which they are moved later."""
        args = self.args
        (self.folder / "in").mkdir(parents=True)
        mix = ev.Mix(keys=args.keys, tombstones=0)
        stream = ev.generate(args.batches * args.records, mix, seed=args.seed)
        return ev.write_files(stream, self.folder / "later", args.records)

    def stream(self, files: Sequence[Path], moments: list[int]) -> None:
        """Run the job over these files and sample it. Then time a start without new data."""
        for path in files:
            path.rename(self.folder / "in" / path.name)
        begun = time.monotonic()
        with Process(self.command(), self.folder / f"job-{len(self.starts)}.log", cwd=PROJECT) as job:
            while job.returncode is None:
                done = self.sample(job, time.monotonic() - begun)
                if moments and done >= moments[0]:
                    job.pause()
                    if self.is_readable():
                        moments.pop(0)
                        self.check(self.committed())
                    job.resume()
                time.sleep(EVERY_S)
            log = job.output()
            if job.returncode != 0:
                raise RuntimeError(f"the job ended with {job.returncode}:\n{log[-4000:]}")
        self.seconds += [batch["seconds"] for batch in batches_of(log)]
        again = time.monotonic()
        with Process(self.command(), self.folder / f"again-{len(self.starts)}.log", cwd=PROJECT) as job:
            if job.wait(START_S) != 0:
                raise RuntimeError(job.output()[-4000:])
        self.starts.append((len(self.seconds), round(time.monotonic() - again, 1)))

    def command(self) -> list[str]:
        """The job's command line."""
        schema = self.folder / "event.avsc"
        schema.write_text(json.dumps(ev.AVRO_SCHEMA))
        conf = {
            **ev.properties(),
            "hoodie.streamer.source.dfs.root": str(self.folder / "in"),
            "hoodie.streamer.schemaprovider.source.schema.file": str(schema),
            "index.local.dir": str(self.folder / "local"),
            "spark.master": self.args.master,
            "spark.local.dir": str(self.folder / "spark"),
        }
        out = [sys.executable, str(PROJECT / "run_stream.py"), "--source-class", "JsonDFSSource", "--source-limit", "1"]
        out += ["--target-base-path", str(self.table), "--checkpoint-dir", str(self.folder / "checkpoint")]
        out += ["--target-table", "small", "--table-type", self.table_type]
        for pair in [*(f"{k}={v}" for k, v in conf.items()), *self.args.conf]:
            out += ["--hoodie-conf", pair]
        return out

    def committed(self) -> int:
        """Number of committed batches."""
        if not (self.table / ".hoodie" / "hoodie.properties").exists():
            return 0
        table = HoodieTable.open(str(self.table))
        found = newest_commit(table, table.timeline())
        return 0 if found is None or found[1] is None else found[1].batch_id + 1

    def sample(self, job: Process, at: float) -> int:
        """Take a sample. Returns the number of committed batches."""
        done = self.committed()
        if done:
            table = HoodieTable.open(str(self.table))
            timeline = table.timeline()
            view = table.view(timeline)
            logs = [len(s.log_files) for p in view.partitions() for s in view.latest_merged_slices(p)]
            self.samples.append(
                {
                    "at": round(at, 1),
                    "batch": done,
                    "logs": max(logs, default=0),
                    "files": sum(1 for path in self.table.rglob("*") if path.is_file()),
                    "bytes": bytes_below(self.table),
                    "instants": len(timeline.instants),
                    "driver_mib": memory_mib(job.pid)["driver"],
                }
            )
        return done

    def check(self, done: int) -> None:
        """Compare the table with the events of the first batches."""
        self.checks += 1
        self._compare(done, "hudi-rs", read_table(self.table, meta_columns=False))
        if self.args.hudi:
            self.kept.append((done, self.folder / "kept" / str(done)))
            # Files are never rewritten except for the properties, which a new file replaces. So links keep their content.
            shutil.copytree(self.table, self.kept[-1][1], copy_function=os.link)

    def check_kept(self, hudi: HudiSpark) -> None:
        """Read the kept tables with real Hudi."""
        for done, table in self.kept:
            self._compare(done, f"Hudi {hudi.version}", hudi.read(table).select(ev.ARROW_SCHEMA.names))
            self.read_by_hudi += 1

    def _compare(self, done: int, reader: str, rows: pa.Table) -> None:
        found = compare(ev.rows(ev.oracle(self.events(done)).values()), rows, ["id"])
        if found:
            self.wrong.append(f"after batch {done}, {reader}: {found}")

    def is_readable(self) -> bool:
        """Whether hudi-rs sees all rows now. On version 6 it does not while a compaction is pending."""
        table = HoodieTable.open(str(self.table))
        return table.config.has_completion_times or not table.timeline().pending_compactions

    def events(self, batches: int) -> list[ev.Event]:
        """The events of the first batches, generated again."""
        args = self.args
        count = args.batches * args.records
        return list(
            islice(ev.generate(count, ev.Mix(keys=args.keys, tombstones=0), seed=args.seed), batches * args.records)
        )
