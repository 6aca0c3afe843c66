"""End to end from files: `python -m bench.throughput`. Records/s of batches with moves over a table of K keys.

The table and its index are loaded first through the same job; then each batch is one file. Printed: a line a batch with
the time of its parts, the median, and whether hudi-rs reads exactly the rows that the events lead to.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.keyed_events import KeyedEvents
from bootstrap.report import BootstrapProgress
from streaming.cli import load_options
from streaming.crash import CrashPlan
from streaming.job import open_table, stream
from streaming.report import BatchReport
from streaming.session import start_session
from streaming.shutdown import StopFlag
from tests.support.compare import compare
from tests.support.hudi_rs import read_table


class Collected(list[BatchReport]):
    """Takes the place of the progress display."""

    def batch(self, report: BatchReport) -> None:
        """Keep a batch's report."""
        self.append(report)

    def lag(self, lag: int | None) -> None:
        """Not asked for."""

    def loading(self, at: BootstrapProgress) -> None:
        """Not asked for."""


def main() -> int:
    """Run the benchmark; exit code 1 when the table is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--batches", type=int, default=6)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--table-type", default="MERGE_ON_READ", choices=["COPY_ON_WRITE", "MERGE_ON_READ"])
    parser.add_argument("--master", default="local[2,4]")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="kept when given; else a temporary one, removed at the end")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="further --hoodie-conf")
    args = parser.parse_args()
    folder = args.folder or Path(tempfile.mkdtemp(prefix="tagstream-bench-"))
    try:
        return run(args, folder)
    finally:
        if args.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


def run(args: argparse.Namespace, folder: Path) -> int:
    """Load, measure, check."""
    console = Console()
    events = KeyedEvents(folder / "in", args.partitions, args.seed)
    conf = {"spark.master": args.master, "spark.local.dir": str(folder / "spark"), "spark.driver.memory": "3g"}
    spark = start_session("throughput", jars=[], conf=conf, env=os.environ)
    events.load(args.keys)
    for _ in range(args.batches):
        events.step(args.records)
    reports = Collected()
    options = load_options(command_line(args, folder))
    now = lambda: time.time_ns() // 1_000_000  # noqa: E731
    started = time.monotonic()
    stream(spark, options, open_table(options, now()), reports, StopFlag(), CrashPlan(), now)  # type: ignore[arg-type]
    wall = time.monotonic() - started
    spark.stop()
    console.print(as_table(reports))
    measured = [r.records / r.seconds for r in reports[2:]]  # the load, and the first batch after it, are not warm
    console.print(
        f"{args.table_type}, K = {args.keys:,}, batches of {args.records:,}: median {statistics.median(measured):,.0f} "
        f"records/s in a batch (best {max(measured):,.0f}); whole run {sum(r.records for r in reports) / wall:,.0f}"
    )
    found = read_table(folder / "table", meta_columns=False)
    wrong = compare(events.expected(), found, ["id"])
    console.print(f"hudi-rs reads {found.num_rows:,} rows: {wrong or 'every one is right'}")
    return 1 if wrong else 0


def command_line(args: argparse.Namespace, folder: Path) -> list[str]:
    """The job's own flags."""
    properties = {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.table.ordering.fields": "ts",
        "hoodie.streamer.source.dfs.root": str(folder / "in"),
        "hoodie.streamer.schemaprovider.source.schema.file": str(folder / "event.avsc"),
        "index.local.dir": str(folder / "local"),
    }
    out = ["--source-class", "JsonDFSSource", "--source-limit", "1", "--target-base-path", str(folder / "table")]
    out += ["--target-table", "bench", "--table-type", args.table_type, "--checkpoint-dir", str(folder / "checkpoint")]
    for pair in [*(f"{k}={v}" for k, v in properties.items()), *args.conf]:
        out += ["--hoodie-conf", pair]
    return out


def as_table(reports: list[BatchReport]) -> Table:
    """A row a batch."""
    table = Table(
        "batch", "records", "s", "records/s", "parts (s)", "inserts", "updates", "moves", "files", "MiB", "index"
    )
    for r in reports:
        parts = ", ".join(f"{k} {v:.2f}" for k, v in r.phases.items())
        table.add_row(
            str(r.batch_id),
            f"{r.records:,}",
            f"{r.seconds:.2f}",
            f"{r.records / r.seconds:,.0f}",
            parts,
            f"{r.inserts:,}",
            f"{r.updates:,}",
            f"{r.moves:,}",
            str(r.files),
            f"{r.bytes / 2**20:.1f}",
            f"{r.index_keys:,}",
        )
    return table


if __name__ == "__main__":
    raise SystemExit(main())
