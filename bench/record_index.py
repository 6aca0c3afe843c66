"""How fast a record index is built for an existing table, and by Hudi: `python -m bench.record_index --keys 10000000`.

Each side continues a copy of the same table (made by real Hudi, without a metadata table) with the index RECORD_INDEX and
batches of one record. Here the metadata table with its listing and record index is built at the start: the time from the
start of the job to the running query counts. Hudi on Spark builds it in its first batch: the time of this batch minus that
of the second counts. Column statistics are off on both sides. Prints seconds, keys/s and peak memory. The rows are checked
after each run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.base_tables import base_table
from bench.inputs.lines import append_lines
from bench.inputs.workload import Workload, make_workload
from bench.machine import machine_line
from bench.peers import home
from bench.writers.case import HUDI_SPARK, TABLE_TYPES, TAGSTREAM, Case, Writer
from bench.writers.run import METADATA_OPTIONS, run_case

BATCHES = 3
_OPTIONS = METADATA_OPTIONS | {
    "hoodie.metadata.index.column.stats.enable": "false",
    "hoodie.metadata.index.partition.stats.enable": "false",
}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--out", type=Path, default=Path("out/bench"), help="results and logs (default: %(default)s)")
    found.add_argument("--keys", type=int, default=10_000_000)
    found.add_argument("--partitions", type=int, default=10)
    found.add_argument("--runs", type=int, default=3)
    found.add_argument("--table-version", type=int, choices=(6, 8, 9), default=9)
    found.add_argument("--table-type", choices=TABLE_TYPES, default=TABLE_TYPES[0])
    found.add_argument("--groups", type=int, default=4, help="file groups of the index (default: %(default)s)")
    found.add_argument("--case-timeout", type=float, default=3600.0, metavar="S", help="(default: %(default)s)")
    return found


def making_seconds(lines: Sequence[dict[str, Any]]) -> float:
    """Seconds to build the index, from a case's lines."""
    *batches, case = lines
    if case["writer"] == TAGSTREAM:
        return float(case["bootstrap_seconds"])
    return float(batches[0]["seconds"] - batches[1]["seconds"])


def measure(args: argparse.Namespace, writer: Writer, run: int) -> dict[str, Any]:
    """Run one side once. BenchError when it could not be measured."""
    cache = args.out.absolute() / "cache"
    workload = Workload("one-row", args.keys, 1, BATCHES, args.partitions)
    folder = make_workload(workload, cache)
    base = base_table(workload, folder, args.table_type, bucketed=False, codec="zstd", cache=cache / "tables",
                      timeout_s=args.case_timeout, version=args.table_version)  # fmt: skip
    place = args.out.absolute() / "cases" / f"record-index-{args.keys}-{writer.name}-{run}"
    groups = str(args.groups)
    options = _OPTIONS | {f"hoodie.metadata.record.index.{end}.filegroup.count": groups for end in ("min", "max")}
    case = Case(
        run, workload, folder, args.table_type, writer, base, place, conf=options, table_version=args.table_version
    )
    try:
        lines = run_case(case, args.case_timeout)
        size = sum(f.stat().st_size for f in (case.table / ".hoodie/metadata/record_index").rglob("*") if f.is_file())
    finally:
        shutil.rmtree(case.table, ignore_errors=True)
        shutil.rmtree(place / "work", ignore_errors=True)
    seconds = making_seconds(lines)
    what = {name: lines[-1][name] for name in ("run", "writer", "keys", "right", "wrong", "peak_mib")}
    return {"kind": "record_index", **what, "seconds": seconds, "keys_per_second": args.keys / seconds, "index_bytes": size,
            "batch_seconds": [line["seconds"] for line in lines[:-1]], "at": time.time()}  # fmt: skip


def as_table(lines: Sequence[dict[str, Any]]) -> Table:
    """A row for each side in each run, with the ratio of our speed in the same run."""
    table = Table(title="making a record index for an existing table")
    for name in ("run", "writer"):
        table.add_column(name)
    for name in ("s", "keys/s", "ours is", "index MiB", "peak MiB", "rows"):
        table.add_column(name, justify="right")
    ours = {line["run"]: line["seconds"] for line in lines if line["writer"] == TAGSTREAM}
    for line in lines:
        ratio = "" if line["writer"] == TAGSTREAM else f"{line['seconds'] / ours[line['run']]:.1f} x"
        table.add_row(
            str(line["run"]), line["writer"], f"{line['seconds']:.1f}", f"{line['keys_per_second']:,.0f}", ratio,
            f"{line['index_bytes'] / 2**20:.0f}", f"{sum(line['peak_mib'].values()):,.0f}",
            {True: "right", False: f"WRONG: {line['wrong']}", None: "unread"}[line["right"]],
        )  # fmt: skip
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark. Exit code 1 when the rows of one of our tables are wrong."""
    args = parser().parse_args(argv)
    console = Console() if sys.stdout.isatty() else Console(width=120)
    home.set_up()
    results = args.out.absolute() / "record_index.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    append_lines(results, [machine_line()])
    found = []
    for run in range(1, args.runs + 1):
        for name in (TAGSTREAM, HUDI_SPARK):
            found.append(measure(args, Writer(name, "RECORD_INDEX"), run))
            append_lines(results, found[-1:])
            console.print(json.dumps(found[-1]), soft_wrap=True, highlight=False)
    console.print(as_table(found))
    console.print(f"figures: {results}", soft_wrap=True)
    return 0 if all(line["right"] for line in found if line["writer"] == TAGSTREAM) else 1


if __name__ == "__main__":
    raise SystemExit(main())
