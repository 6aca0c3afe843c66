"""A table that is streamed into in small batches for long, with its services on: `python -m bench.small_batches`.

`--batches` (1,000) files of `--records` (2,000) events each, with moves, deletes and late events, one file a batch, into a
table of each type, by `run_stream.py` in a process of its own. Every two seconds: newest batch, log files of the fullest
slice, files on disk, active instants, memory of the driver. At `--checks` (20) moments the job is stopped (SIGSTOP), and
hudi-rs reads the table, which must hold what the events so far lead to; and once more at the end (exit code 1 otherwise).
Then a start of the job that finds nothing new is timed. Out come a table and a plot (`--plot`).
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.inputs.lines import append_lines
from bench.inputs.soak_samples import batches_of, bytes_below, memory_mib
from bench.report.small_batches_plot import plot
from tagstream.streaming.batch.commit_record import newest_commit
from tagstream.streaming.source.connector import PROJECT
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.support import events as ev
from tests.support.compare import compare
from tests.support.hudi_rs import read_table
from tests.support.process import Process

TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")
START_S = 300.0
EVERY_S = 2.0


@dataclass
class Run:
    """One table type: its folders, its events and what was seen."""

    args: argparse.Namespace
    folder: Path
    table_type: str
    samples: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    checks: int = 0

    @property
    def table(self) -> Path:
        """The table's folder."""
        return self.folder / "table"

    def write_input(self) -> None:
        """All files that the job will read."""
        args = self.args
        mix = ev.Mix(keys=args.keys, tombstones=0)
        stream = ev.generate(args.batches * args.records, mix, seed=args.seed)
        ev.write_files(stream, self.folder / "in", args.records)

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
        """Batches that are committed."""
        if not (self.table / ".hoodie" / "hoodie.properties").exists():
            return 0
        table = HoodieTable.open(str(self.table))
        found = newest_commit(table, table.timeline())
        return 0 if found is None or found[1] is None else found[1].batch_id + 1

    def sample(self, job: Process, at: float) -> int:
        """Look once; the number of batches that are committed."""
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
        """The table against the events of the first batches."""
        self.checks += 1
        expected = ev.rows(ev.oracle(self.events(done)).values())
        found = compare(expected, read_table(self.table, meta_columns=False), ["id"])
        if found:
            self.wrong.append(f"after batch {done}: {found}")

    def events(self, batches: int) -> list[ev.Event]:
        """The events of the first batches, made again."""
        args = self.args
        count = args.batches * args.records
        return list(
            islice(ev.generate(count, ev.Mix(keys=args.keys, tombstones=0), seed=args.seed), batches * args.records)
        )


def main() -> int:
    """Run it; exit code 1 when a table was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--checks", type=int, default=20)
    parser.add_argument("--table-types", nargs="+", default=list(TYPES), choices=TYPES)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder by default")
    parser.add_argument("--plot", type=Path, default=Path("out/small_batches.png"))
    parser.add_argument("--json", type=Path, help="add the figures to this file of JSON lines")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="further --hoodie-conf")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="small-batches-", dir=args.folder))
    runs: list[tuple[Run, dict[str, Any]]] = []
    try:
        for table_type in args.table_types:
            run = Run(args, folder / table_type.lower(), table_type)
            runs.append((run, stream(run)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    append_lines(args.json, [{"kind": "small_batches", "table_type": r.table_type, **end} for r, end in runs])
    args.plot.parent.mkdir(parents=True, exist_ok=True)
    plot({r.table_type: (end["seconds"], r.samples) for r, end in runs}, args.plot)
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(as_table([(r.table_type, end) for r, end in runs]))
    for run, _ in runs:
        for line in run.wrong:
            console.print(f"[red]{run.table_type}: {line}[/red]")
    return 0 if all(end["right"] for _, end in runs) else 1


def stream(run: Run) -> dict[str, Any]:
    """Run the job over all files, looking at it; what it came to."""
    run.folder.mkdir(parents=True)
    run.write_input()
    args = run.args
    moments = sorted(random.Random(args.seed).sample(range(2, args.batches), min(args.checks, args.batches - 2)))
    begun = time.monotonic()
    with Process(run.command(), run.folder / "job.log", cwd=PROJECT) as job:
        while job.returncode is None:
            done = run.sample(job, time.monotonic() - begun)
            if moments and done >= moments[0]:
                moments.pop(0)
                job.pause()
                run.check(run.committed())
                job.resume()
            time.sleep(EVERY_S)
        log = job.output()
        if job.returncode != 0:
            raise RuntimeError(f"the job ended with {job.returncode}:\n{log[-4000:]}")
    run.check(args.batches)
    again = time.monotonic()
    with Process(run.command(), run.folder / "again.log", cwd=PROJECT) as job:
        if job.wait(START_S) != 0:
            raise RuntimeError(job.output()[-4000:])
    seconds = [batch["seconds"] for batch in batches_of(log)]
    late, early = seconds[-100:], seconds[50:150] or seconds
    return {
        "seconds": seconds,
        "early": statistics.median(early),
        "late": statistics.median(late),
        "logs": max((s["logs"] for s in run.samples), default=0),
        "files": max((s["files"] for s in run.samples), default=0),
        "mib": round(run.samples[-1]["bytes"] / 2**20, 1),
        "instants": max((s["instants"] for s in run.samples), default=0),
        "driver_mib": [run.samples[len(run.samples) // 4]["driver_mib"], run.samples[-1]["driver_mib"]],
        "start_seconds": round(time.monotonic() - again, 1),
        "checks": run.checks,
        "right": not run.wrong,
    }


def as_table(ends: Sequence[tuple[str, dict[str, Any]]]) -> Table:
    """The figures side by side."""
    table = Table("", *(name for name, _ in ends))
    rows = (
        ("batches", lambda e: f"{len(e['seconds']):,}"),
        ("median batch, 50th to 150th (s)", lambda e: f"{e['early']:.2f}"),
        ("median batch, the last 100 (s)", lambda e: f"{e['late']:.2f} ({e['late'] / e['early']:.2f} x)"),
        ("log files of a slice, at most", lambda e: str(e["logs"])),
        ("files on disk, at most", lambda e: f"{e['files']:,}"),
        ("table at the end (MiB)", lambda e: str(e["mib"])),
        ("active instants, at most", lambda e: str(e["instants"])),
        ("driver (MiB), after a quarter and at the end", lambda e: f"{e['driver_mib'][0]}, {e['driver_mib'][1]}"),
        ("a start that finds nothing new (s)", lambda e: str(e["start_seconds"])),
        ("checks by hudi-rs", lambda e: f"{e['checks']}, {'all right' if e['right'] else 'WRONG'}"),
    )
    for name, show in rows:
        table.add_row(name, *(show(end) for _, end in ends))
    return table


if __name__ == "__main__":
    raise SystemExit(main())
