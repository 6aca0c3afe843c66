"""Processor seconds of a batch by process and cause: `python -m bench.budget --keys 2000000`.

Runs the job's own entry points over the files of a workload, alone. The kernel's processor time of every thread of the JVM
and of Python is read ten times per second. The name of a thread says what it does. Prints for cold and for warm batches: the
processor seconds of a batch by cause, as mean over the batches (some work, like RocksDB's compaction, comes only every few
batches), the same for 100,000 records, and the median of the elapsed seconds. Work between two batches counts for the second
of them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from bench.base_tables import base_of
from bench.inputs.lines import append_lines
from bench.inputs.workload import NAMES, Workload, make_workload
from bench.writers.case import TABLE_TYPES, Case, Writer, batch_lines, read_events
from bench.writers.run import order_of, prepare, run_writer
from bench.writers.verdict import judge
from tests.support.process import session_members

LOOK_S = 0.1
COLD = 5  # batches
WARM = 20  # from this batch on
# Prefixes of the JVM's thread names, of which the kernel keeps 15 letters, and what the threads do.
JVM_THREADS = {
    "C1 Compiler": "JVM: compiling itself, quickly",
    "C2 Compiler": "JVM: compiling itself, well",
    "GC Thread": "JVM: collecting garbage",
    "G1 ": "JVM: collecting garbage",
    "VM Thread": "JVM: collecting garbage",
    "Executor task": "JVM: tasks",
    "stream executio": "JVM: planning and scheduling",
    "dag-scheduler": "JVM: planning and scheduling",
    "dispatcher": "JVM: planning and scheduling",
    "task-result": "JVM: planning and scheduling",
    "Thread-": "JVM: py4j",
    "stdout writer": "JVM: tasks",
    "Writer for": "JVM: tasks",
}
JVM_REST = "JVM: the rest"
ROCKSDB = "Python workers: RocksDB's threads"
WORKERS, WORKERS_REST, DRIVER = (
    "Python workers: main threads",
    "Python workers: Arrow's and other threads",
    "Python driver",
)


@dataclass
class Clock:
    """Nanoseconds of processor time by cause, sampled over time. Threads that have ended are still counted."""

    seen: dict[tuple[int, int], tuple[str, int]] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    totals: list[dict[str, int]] = field(default_factory=list)

    def look(self, session: int) -> None:
        """Read the processor time of all threads of a session."""
        for pid in session_members(session):
            with contextlib.suppress(OSError):
                process = _process(pid)
                for tid, name, ns in threads_of(pid):
                    self.seen[pid, tid] = cause_of(process, name, main=tid == pid, leader=pid == session), ns
        total: dict[str, int] = {}
        for cause, ns in self.seen.values():
            total[cause] = total.get(cause, 0) + ns
        self.times.append(time.time())
        self.totals.append(total)

    def between(self, moments: Sequence[float]) -> list[dict[str, float]]:
        """Seconds by cause between each two consecutive moments (epoch seconds)."""
        causes = sorted({cause for total in self.totals for cause in total})
        at = {
            cause: np.interp(moments, self.times, [total.get(cause, 0) / 1e9 for total in self.totals])
            for cause in causes
        }
        return [{cause: float(at[cause][n + 1] - at[cause][n]) for cause in causes} for n in range(len(moments) - 1)]


def _process(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def threads_of(pid: int) -> Iterator[tuple[int, str, int]]:
    """(thread, name, nanoseconds of processor time) of a process, from /proc."""
    for entry in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            name = (entry / "comm").read_text().strip()
            yield int(entry.name), name, int((entry / "schedstat").read_text().split()[0])


def cause_of(process: str, thread: str, *, main: bool, leader: bool) -> str:
    """The cause for which a thread's time counts. ``leader``: it is a thread of the session's first process, the driver."""
    if process.startswith("java"):
        return next((cause for begin, cause in JVM_THREADS.items() if thread.startswith(begin)), JVM_REST)
    if leader:
        return DRIVER
    if thread.startswith("rocksdb"):
        return ROCKSDB
    return WORKERS if main else WORKERS_REST


def measure(case: Case, timeout_s: float) -> list[dict[str, Any]]:
    """Run the case and return a line per batch. BenchError when it could not be measured."""
    prepare(case)
    clock, done = Clock(), threading.Event()

    def watch() -> None:
        me = psutil.Process()
        while not done.wait(LOOK_S):
            for child in me.children():
                with contextlib.suppress(OSError):
                    if os.getsid(child.pid) == child.pid:
                        clock.look(child.pid)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run_writer(case, order_of(case), timeout_s)
    finally:
        done.set()
        watcher.join()
    events = read_events(case.events)
    ready = next(e["at"] for e in events if e["event"] == "ready")
    moments = [ready, *(e["at"] for e in events if e["event"] == "batch")]
    right = judge(case, timeout_s).right
    lines = zip(batch_lines(case, events), clock.between(moments), strict=True)
    return [{**line, "kind": "budget", "cpu": cpu, "right": right} for line, cpu in lines]


def as_table(lines: Sequence[dict[str, Any]]) -> Table:
    """Cold and warm batches in two columns."""
    first = lines[0]
    parts = {f"batches 0-{COLD - 1}": lines[:COLD], f"batches {WARM}-{len(lines) - 1}": lines[WARM:]}
    parts = {name: part for name, part in parts.items() if part}
    table = Table(
        title=f"{first['workload']}, {first['table_type']}, {first['keys']:,} keys, {first['records']:,} records a batch, "
        f"{len(lines)} batches: {'right' if first['right'] else 'WRONG'} by hudi-rs"
    )
    table.add_column("processor seconds a batch (mean)")
    for name in parts:
        table.add_column(name, justify="right")
    causes = sorted({cause for line in lines for cause in line["cpu"]})
    for cause in causes:
        values = [statistics.mean(line["cpu"].get(cause, 0.0) for line in part) for part in parts.values()]
        table.add_row(cause, *(f"{value:.3f}" for value in values))
    totals = [statistics.mean(sum(line["cpu"].values()) for line in part) for part in parts.values()]
    table.add_section()
    table.add_row("all", *(f"{total:.3f}" for total in totals))
    table.add_row("all, for 100,000 records", *(f"{total * 100_000 / first['records']:.2f}" for total in totals))
    seconds = [statistics.median(line["seconds"] for line in part) for part in parts.values()]
    table.add_row("seconds on the clock (median)", *(f"{value:.3f}" for value in seconds))
    table.add_row("records/s", *(f"{first['records'] / value:,.0f}" for value in seconds))
    return table


def parser(text: str | None, batches: int) -> argparse.ArgumentParser:
    """The command line of a program that runs this project's writer alone.

    ``text``: what the program does. ``batches``: how many it runs if the user gives no number.
    """
    found = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument(
        "--out", type=Path, default=Path("out/bench"), help="cache, logs, results (default: %(default)s)"
    )
    found.add_argument("--keys", type=int, default=500_000)
    found.add_argument("--workloads", nargs="+", choices=NAMES, default=["mixed"])
    found.add_argument("--records", type=int, default=100_000, help="of a batch")
    found.add_argument("--batches", type=int, default=batches)
    found.add_argument("--table-types", nargs="+", choices=TABLE_TYPES, default=["MERGE_ON_READ"])
    found.add_argument("--case-timeout", type=float, default=1800.0, metavar="S")
    return found


def cases(args: argparse.Namespace, program: str, conf: Mapping[str, str] | None = None) -> Iterator[Case]:
    """The cases of a command line, each with its workload and its base table made. BenchError where one cannot be made.

    ``program``: a name for the folders of the cases. ``conf``: options of the job.
    """
    out, writer = args.out.absolute(), Writer.parse("tagstream:STATE")
    for name in args.workloads:
        workload = Workload(name, args.keys, 1 if name == "one-row" else args.records, args.batches)
        folder = make_workload(workload, out / "cache")
        for table_type in args.table_types:
            cache = out / "cache" / "tables"
            base = base_of(writer, workload, folder, table_type, codec="zstd", cache=cache, timeout_s=args.case_timeout)
            place = out / "cases" / f"{program}-{name}-{args.keys}-{table_type}".lower()
            yield Case(1, workload, folder, table_type, writer, base, place, conf=dict(conf or {}))


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; exit code 1 when the table is wrong."""
    found = parser(__doc__, batches=40)
    found.add_argument("--conf", nargs="*", default=[], metavar="KEY=VALUE", help="options of the job")
    args = found.parse_args(argv)
    wrong = 0
    for case in cases(args, "budget", dict(text.split("=", 1) for text in args.conf)):
        lines = measure(case, args.case_timeout)
        append_lines(args.out / "results.jsonl", lines)
        Console(width=120 if not sys.stdout.isatty() else None).print(as_table(lines))
        wrong += not lines[0]["right"]
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
