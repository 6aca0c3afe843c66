"""This writer and its peers on the same files: `python -m bench.compare --quick`.

Every writer continues a copy of the same table (made once by real Hudi), in its own processes. In each run the writers run
one after another. Figures are appended to OUT/results.jsonl when they are measured. At the end they are shown as a table,
and as a report in OUT/report.html. A reader that is not part of this project checks the rows of every table. Exit code 1
when a case failed or a table of this writer is wrong.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from bench.base_tables import base_of
from bench.inputs.lines import append_lines, read_lines
from bench.inputs.workload import NAMES, Workload, make_workload
from bench.machine import machine_line
from bench.peers import home
from bench.report.figures import situations
from bench.report.page import write_report
from bench.writers.case import DELTA_RS, OLD_VERSION, TABLE_TYPES, TAGSTREAM, BenchError, Case, Writer
from bench.writers.command import FLINK_PEERS
from bench.writers.run import run_case
from tagstream.streaming.errors import SourceError

WRITERS = (
    "tagstream:STATE", "hudi-spark:GLOBAL_BLOOM", "hudi-spark:GLOBAL_SIMPLE", "hudi-spark:RECORD_INDEX",
    "hudi-flink:FLINK_STATE", "paimon-flink:WRITE_ONLY", "delta-rs:MERGE", "tagstream:BUCKET", "hudi-spark:BUCKET",
    "hudi-spark:bulk_insert",
)  # fmt: skip
QUICK_WRITERS = ("tagstream:STATE", "hudi-spark:GLOBAL_SIMPLE", "hudi-flink:FLINK_STATE")
ONE_ROW_BATCHES = 25
_LOG_WIDTH = 150


@dataclass(frozen=True)
class Planned:
    """A case to run."""

    run: int
    workload: Workload
    table_type: str
    writer: Writer


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument(
        "--out", type=Path, default=Path("out/bench"), help="results, report, logs (default: %(default)s)"
    )
    found.add_argument("--workloads", nargs="+", choices=NAMES, default=["mixed"])
    found.add_argument(
        "--keys", type=int, nargs="+", default=[500_000], help="existing keys; several: one after the other"
    )
    found.add_argument("--records", type=int, default=100_000, help="of a batch")
    found.add_argument("--batches", type=int, default=8, help=f"the first two are warm-up; one-row: {ONE_ROW_BATCHES}")
    found.add_argument("--partitions", type=int, default=10)
    found.add_argument("--seed", type=int, default=7)
    found.add_argument("--runs", type=int, default=3)
    found.add_argument("--table-types", nargs="+", choices=TABLE_TYPES, default=list(TABLE_TYPES))
    found.add_argument("--writers", nargs="+", type=Writer.parse, default=[Writer.parse(text) for text in WRITERS],
                       metavar="ENGINE:INDEX", help="+metadata after it: with a metadata table of listing, statistics "
                       f"of columns and record index; +services: with compaction every 5 commits and cleaning "
                       f"(default: {' '.join(WRITERS)})")  # fmt: skip
    found.add_argument("--table-version", type=int, choices=(6, 8, 9), default=OLD_VERSION,
                       help="of Hudi's tables; Hudi's Flink writer here knows 6 alone (default: %(default)s)")  # fmt: skip
    found.add_argument("--codec", default="zstd", help="of Parquet pages, for all writers (default: %(default)s)")
    found.add_argument("--conf", action="append", default=[], metavar="ENGINE:KEY=VALUE",
                       help="a further option of an engine's writers")  # fmt: skip
    found.add_argument("--case-timeout", type=float, default=3600.0, metavar="S", help="(default: %(default)s)")
    found.add_argument("--keep", action="store_true", help="keep the tables of the cases")
    found.add_argument("--limits", action="store_true", help="then what the machine can do at most (bench.limits)")
    found.add_argument("--quick", action="store_true", help="20,000 keys, merge-on-read, three writers, one run")
    return found


def planned(args: argparse.Namespace) -> Iterator[Planned]:
    """All cases: run 1 of everything, then run 2 and so on, so that a slower machine slows down all writers equally."""
    for run in range(1, args.runs + 1):
        for keys in args.keys:
            for name in args.workloads:
                one = name == "one-row"
                records, batches = (1, max(args.batches, ONE_ROW_BATCHES)) if one else (args.records, args.batches)
                workload = Workload(name, keys, records, batches, args.partitions, args.seed)
                for table_type in args.table_types:
                    for writer in args.writers:
                        if writer.why_not(name) is None:
                            yield Planned(run, workload, table_type, writer)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison."""
    args = parser().parse_args(argv)
    if args.quick:
        args.keys, args.records, args.batches, args.runs = [20_000], 5_000, 4, 1
        args.table_types, args.writers = ["MERGE_ON_READ"], [Writer.parse(text) for text in QUICK_WRITERS]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the processes are ended in this case too
    console = Console() if sys.stdout.isatty() else Console(width=_LOG_WIDTH)
    results = args.out.absolute() / "results.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    plan = list(planned(args))
    if not plan:
        console.print("no writer can lead to the rows of these workloads")
        return 1
    console.print("the peers' jars ...")
    names = {each.writer.name for each in plan}
    flink = [peer for name, peer in FLINK_PEERS.items() if name in names]
    home.set_up(flink, delta=DELTA_RS in names)
    earlier = read_lines(results) if results.exists() else []
    plan = [replace(each, run=each.run + _earlier_runs(earlier, each)) for each in plan]
    append_lines(results, [machine_line()])
    try:
        failed = _run_all(args, plan, results, console)
        failed += args.limits and not _limits(args, results)
    finally:
        shown = read_lines(results)[len(earlier) :]
        console.print(as_table(shown))
        page = results.with_name("report.html")
        write_report(results, page)
        console.print(f"figures: {results}, report: {page}", soft_wrap=True)
    ours = [line for line in shown if line["kind"] == "case" and line["writer"] == TAGSTREAM]
    return 1 if failed or not all(line["right"] for line in ours) else 0


def _limits(args: argparse.Namespace, results: Path) -> bool:
    """Measure the limits in a separate process. False when it failed; it has printed the reason."""
    sizes = {"--records": args.records, "--partitions": args.partitions, "--runs": args.runs, "--json": results}
    sizes |= {"--read": 100_000} if args.quick else {}
    command = [sys.executable, "-m", "bench.limits", "--keys", *map(str, args.keys)]
    command += [str(word) for pair in sizes.items() for word in pair]
    return subprocess.run(command, cwd=home.PROJECT, check=False).returncode == 0


def _run_all(args: argparse.Namespace, plan: Sequence[Planned], results: Path, console: Console) -> int:
    """Run the cases one by one and return how many failed."""
    failed = 0
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(plan))
        for each in plan:
            what = (
                f"run {each.run}, {each.workload.name}, {each.workload.keys:,} keys, {each.table_type}, {each.writer}"
            )
            progress.update(task, description=what)
            try:
                lines = _run_one(args, each)
                case = lines[-1]
                wrong = "" if case["right"] else f", NOT RIGHT: {case['wrong']}"
                console.print(f"{what}: {case['records_per_second']:,.0f} records/s{wrong}", highlight=False)
            except (BenchError, SourceError, OSError) as e:
                failed += 1
                lines = [_failure(each, e)]
                console.print(f"{what}: FAILED: {e}", style="red", highlight=False, markup=False)
            append_lines(results, lines)
            progress.advance(task)
    return failed


def _run_one(args: argparse.Namespace, each: Planned) -> list[dict[str, Any]]:
    cache = args.out.absolute() / "cache"
    folder = make_workload(each.workload, cache)
    base = base_of(
        each.writer, each.workload, folder, each.table_type,
        codec=args.codec, cache=cache / "tables", timeout_s=args.case_timeout, version=args.table_version,
    )  # fmt: skip
    name = f"{each.workload.name}-{each.workload.keys}-{each.table_type}-{each.writer.name}-{each.writer.called}-{each.run}"
    place = args.out.absolute() / "cases" / name.lower()
    conf = [text.partition(":")[2] for text in args.conf if text.startswith(f"{each.writer.name}:")]
    case = Case(
        each.run, each.workload, folder, each.table_type, each.writer, base, place, args.codec,
        dict(pair.split("=", 1) for pair in conf), each.writer.version(args.table_version),
    )  # fmt: skip
    try:
        return run_case(case, args.case_timeout)
    finally:
        if not args.keep:  # the logs are kept
            shutil.rmtree(case.table, ignore_errors=True)
            shutil.rmtree(place / "work", ignore_errors=True)


def _failure(each: Planned, error: Exception) -> dict[str, Any]:
    """The line of a case that could not be measured."""
    return {
        "kind": "failed",
        "run": each.run,
        "workload": each.workload.name,
        "table_type": each.table_type,
        "keys": each.workload.keys,
        "records": each.workload.records,
        "writer": each.writer.name,
        "index": each.writer.called,
        "reason": str(error),
    }


def as_table(lines: Sequence[dict[str, Any]]) -> Table:
    """A row for every writer on every workload."""
    table = Table(title="medians over the runs; ratio of this writer's speed, by the ratios within the runs")
    for name in ("workload", "table", "keys", "writer"):
        table.add_column(name)
    for name in ("runs", "records/s", "s a batch", "best", "ours is", "rows", "peak MiB"):
        table.add_column(name, justify="right")
    for situation in situations(lines):
        for s in situation.standings:
            figures = [f"{s.per_second.median:,.0f}"] if s.per_second else ["failed"]
            figures += [f"{seconds:.3f}" if seconds else "" for seconds in (s.seconds and s.seconds.median, s.best)]
            table.add_row(
                situation.workload, situation.table_type, f"{situation.keys:,}", s.writer,
                str(s.per_second.runs if s.per_second else 0), *figures, f"{s.ratio.median:.1f} x" if s.ratio else "",
                s.rows,
                f"{s.peak_mib:,.0f}" if s.peak_mib else "",
            )  # fmt: skip
    return table


def _earlier_runs(lines: Sequence[dict[str, Any]], each: Planned) -> int:
    """Number of runs of the same workload in the file. A ratio is never taken between two invocations."""
    what = (each.workload.name, each.table_type, each.workload.keys, each.workload.records)
    names = ("workload", "table_type", "keys", "records")
    return max((line["run"] for line in lines if tuple(line.get(name) for name in names) == what), default=0)


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
