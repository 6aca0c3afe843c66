"""The flights demo, start to end: `python -m bench.flights.run [--months N] [--kafka] [--table-type MERGE_ON_READ]`.

Makes the events, streams them into a new table, reads it back with hudi-rs and compares it with the CSV. Exit code 1 on
any difference.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bench.flights.data import KEY_FIELDS
from bench.flights.events import write_events
from bench.flights.job import PROJECT, Places, file_arguments, kafka_arguments, run_job
from bench.flights.oracle import Answer, answer, moves, partitions
from bench.flights.stores import running
from tests.support.compare import Differences, compare
from tests.support.hudi_rs import read_table


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """The demo's options, and the arguments after `--` for the job itself."""
    at = list(arguments).index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="python -m bench.flights.run", description=__doc__)
    parser.add_argument("--months", type=int, default=1, choices=range(1, 13), metavar="1..12")
    parser.add_argument("--kafka", action="store_true", help="through a real broker on loopback, not from files")
    parser.add_argument("--table-type", default="COPY_ON_WRITE", choices=["COPY_ON_WRITE", "MERGE_ON_READ"])
    parser.add_argument("--storage", default="local", choices=["local", "s3", "hdfs"], help="storage of the table")
    parser.add_argument("--out", type=Path, default=PROJECT / "out", help="folder for table, checkpoint and events")
    parser.add_argument("--started", type=float, help="when the set-up began, epoch seconds (make gives it)")
    return parser.parse_args(arguments[:at]), list(arguments[at + 1 :])


def report(expected: Answer, found: pa.Table, differences: Differences) -> tuple[Table, bool]:
    """Expected and actual figures in two columns, and whether they agree."""
    want, have = partitions(expected.rows), partitions(found) if found.num_rows else {}
    unequal = sum(want.get(day) != have.get(day) for day in want.keys() | have.keys())
    lines = [
        ("live rows", expected.rows.num_rows, found.num_rows),
        ("deletes (cancelled)", expected.deletes, expected.scheduled - found.num_rows),
        ("moves (left on another date)", expected.moves, moves(found) if found.num_rows else 0),
        ("partitions", len(want), len(have)),
        ("partitions with other row counts", 0, unequal),
        ("keys lost", 0, differences.lost),
        ("keys too many", 0, differences.unexpected),
        ("keys found twice", 0, differences.doubled),
        ("rows with a wrong value", 0, sum(differences.changed.values())),
    ]
    table = Table(title=f"{expected.scheduled:,} flights scheduled", title_justify="left")
    table.add_column("")
    for name in ("from the CSV", "read by hudi-rs", ""):
        table.add_column(name, justify="right")
    for what, right, seen in lines:
        table.add_row(what, f"{right:,}", f"{seen:,}", "ok" if right == seen else "[red]differs")
    return table, not differences and all(right == seen for _, right, seen in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0, 1 on a difference, or the job's own when it failed."""
    options, more = parse(sys.argv[1:] if arguments is None else arguments)
    console = Console()
    began = options.started or time.time()
    places = Places(options.out.resolve())
    for folder in (places.table, places.checkpoint, places.events, places.broker):
        shutil.rmtree(folder, ignore_errors=True)
    written = write_events(places.events, options.months)
    size = f"{len(written.files)} files, {written.bytes / 1e6:,.0f} MB"
    console.print(f"{written.events:,} events of {options.months} month(s) in {places.events} ({size})")
    with ExitStack() as stack:
        if options.kafka:
            source = stack.enter_context(kafka_arguments(places, written, console))
        else:
            source = file_arguments(places, written)
        store = None
        if options.storage != "local":
            store = stack.enter_context(running(options.storage, options.out / "store", console))
            source = store.reached(source)
        ready = time.time()
        code = run_job(places, options.table_type, source, more, store)
        done = time.time()
        if code != 0:
            console.print(f"the job ended with exit code {code}", style="red")
            return code
        found = read_table(places.table) if store is None else store.rows(places.table)
    expected = answer(options.months)
    differences = compare(expected.rows, found, KEY_FIELDS)
    table, good = report(expected, found, differences)
    console.print(table)
    if not good:
        console.print(str(differences), style="red", markup=False)
    place = store.table if store else places.table
    rate = written.events / (done - ready)
    console.print(
        f"{place} ({options.table_type}): set-up {ready - began:.1f} s, run {done - ready:.1f} s "
        f"({rate:,.0f} events/s with Spark's start), check {time.time() - done:.1f} s",
        soft_wrap=True,
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
