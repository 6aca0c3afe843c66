"""A table that is streamed into in small batches for long, with its services on: `python -m bench.small_batches`.

`--batches` (1,000) files of `--records` (2,000) events each, with moves, deletes and late events, one file per batch, into a
table of each type, by `run_stream.py` in a separate process. Samples every two seconds: newest batch, log files of the
largest slice, files on disk, active instants, memory of the driver. At `--checks` (20) moments the job is stopped (SIGSTOP),
and hudi-rs reads the table and compares it with the events so far. It does so again at the end (exit code 1 if they differ).
The stream is divided into `--legs` (5) runs of the job. After each, a start without new data is timed. `--hudi 1.2.0` keeps
the table at each of these moments, by links to its files, and this Hudi release reads them when the stream has ended. Prints
a table and draws a plot (`--plot`).
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.inputs.lines import append_lines
from bench.peers import home
from bench.report.small_batches_plot import plot
from bench.writers.small_batches import SmallBatches
from tests.interop.hudi_spark import HudiSpark

TYPES = ("MERGE_ON_READ", "COPY_ON_WRITE")


def main() -> int:
    """Run it; exit code 1 when a table was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument(
        "--legs", type=int, default=5, help="runs of the job, one after the other (default: %(default)s)"
    )
    parser.add_argument("--checks", type=int, default=20)
    parser.add_argument("--table-types", nargs="+", default=list(TYPES), choices=TYPES)
    parser.add_argument("--hudi", metavar="RELEASE", help="real Hudi, which reads the tables, too: 0.15.0 or 1.2.0")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder by default")
    parser.add_argument("--plot", type=Path, default=Path("out/small_batches.png"))
    parser.add_argument("--json", type=Path, help="add the figures to this file of JSON lines")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="further --hoodie-conf")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="small-batches-", dir=args.folder))
    runs: list[tuple[SmallBatches, dict[str, Any]]] = []
    try:
        for table_type in args.table_types:
            run = SmallBatches(args, folder / table_type.lower(), table_type)
            runs.append((run, stream(run)))
        if args.hudi:
            read_by_hudi(args.hudi, folder, runs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    append_lines(args.json, [{"kind": "small_batches", "table_type": r.table_type, **end} for r, end in runs])
    args.plot.parent.mkdir(parents=True, exist_ok=True)
    plot({r.table_type: (end["seconds"], r.samples, r.starts) for r, end in runs}, args.plot)
    console = Console(width=None if sys.stdout.isatty() else 150)
    console.print(as_table([(r.table_type, end) for r, end in runs]))
    for run, _ in runs:
        for line in run.wrong:
            console.print(f"[red]{run.table_type}: {line}[/red]")
    return 0 if all(end["right"] for _, end in runs) else 1


def read_by_hudi(release: str, folder: Path, runs: Sequence[tuple[SmallBatches, dict[str, Any]]]) -> None:
    """Read the kept tables of all runs with real Hudi."""
    home.set_up()
    with HudiSpark(release, folder) as hudi:
        for run, end in runs:
            run.check_kept(hudi)
            end |= {"read_by_hudi": run.read_by_hudi, "right": not run.wrong}


def stream(run: SmallBatches) -> dict[str, Any]:
    """Run the job over all files, in several runs one after another, and return the figures."""
    args = run.args
    files = run.write_input()
    moments = sorted(random.Random(args.seed).sample(range(2, args.batches), min(args.checks, args.batches - 2)))
    size = -(-len(files) // args.legs)
    for begin in range(0, len(files), size):
        run.stream(files[begin : begin + size], moments)
    run.check(args.batches)
    if moments:
        run.wrong.append(f"the table was never readable at {len(moments)} of the moments")
    late, early = run.seconds[-100:], run.seconds[50:150] or run.seconds
    return {
        "seconds": run.seconds,
        "early": statistics.median(early),
        "late": statistics.median(late),
        "logs": max((s["logs"] for s in run.samples), default=0),
        "files": max((s["files"] for s in run.samples), default=0),
        "mib": round(run.samples[-1]["bytes"] / 2**20, 1),
        "instants": max((s["instants"] for s in run.samples), default=0),
        "driver_mib": [run.samples[len(run.samples) // 4]["driver_mib"], run.samples[-1]["driver_mib"]],
        "starts": run.starts,
        "checks": run.checks,
        "right": not run.wrong,
    }


def as_table(ends: Sequence[tuple[str, dict[str, Any]]]) -> Table:
    """The figures of each table in columns."""
    table = Table("", *(name for name, _ in ends))
    rows: tuple[tuple[str, Callable[[dict[str, Any]], str]], ...] = (
        ("batches", lambda e: f"{len(e['seconds']):,}"),
        ("median batch, 50th to 150th (s)", lambda e: f"{e['early']:.2f}"),
        ("median batch, the last 100 (s)", lambda e: f"{e['late']:.2f} ({e['late'] / e['early']:.2f} x)"),
        ("log files of a slice, at most", lambda e: str(e["logs"])),
        ("files on disk, at most", lambda e: f"{e['files']:,}"),
        ("table at the end (MiB)", lambda e: str(e["mib"])),
        ("active instants, at most", lambda e: str(e["instants"])),
        ("driver (MiB), after a quarter and at the end", lambda e: f"{e['driver_mib'][0]}, {e['driver_mib'][1]}"),
        ("a start that finds nothing new, after each run (s)", lambda e: ", ".join(str(s) for _, s in e["starts"])),
        ("checks by hudi-rs", lambda e: f"{e['checks']}, {'all right' if e['right'] else 'WRONG'}"),
        ("of these by real Hudi, too", lambda e: str(e.get("read_by_hudi", 0))),
    )
    for name, show in rows:
        table.add_row(name, *(show(end) for _, end in ends))
    return table


if __name__ == "__main__":
    raise SystemExit(main())
