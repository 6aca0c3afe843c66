"""Whether the number of requests of a batch is constant while its table grows: `python -m bench.store_growth`.

On S3 (MinIO behind a proxy that counts): tables of `--groups` small file groups, with `--instants` completed instants on the
active timeline. `--batches` batches of each of `--records` records are written to each table, to the same rows of the same
ten file groups of ten partitions. Prints the mean requests of a warm batch by kind, for this project and for Spark's
checkpoint. At the end hudi-rs reads the tables; exit code 1 when one is wrong.

Archiving, which normally keeps the timeline short, is off. `--table-types` and `--versions` make other tables.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.inputs.grown_table import Grown, make_grown
from bench.inputs.lines import append_lines
from bench.inputs.workload import Workload
from bench.store_places import S3, place
from bench.stores import KINDS, measure
from bench.writers.case import TABLE_TYPES, WARM_UP, Case, Writer

FEW_INSTANTS = 100


def tables_of(groups: Sequence[int], instants: Sequence[int]) -> list[tuple[int, int]]:
    """(file groups, instants) of the tables: each number of groups with the fewest instants, the smallest also with more."""
    fewest = min(instants)
    more = [(min(groups), count) for count in sorted(instants) if count > fewest]
    return [*((count, fewest) for count in groups), *more]


def grown_lines(lines: Sequence[dict[str, Any]], grown: Grown) -> list[dict[str, Any]]:
    """The lines of a case's batches after the warm-up, each with its batch size and table size."""
    more = {"kind": "store-growth", "file_groups": grown.groups, "instants": grown.instants, "version": grown.version}
    with_sizes = [line | more | {"records": size} for line, size in zip(lines, grown.sizes, strict=True)]
    return with_sizes[WARM_UP:]


def as_table(lines: Sequence[dict[str, Any]], who: str) -> Table:
    """Requests of a batch by kind, a row for each table and batch size. ``who``: ``ours`` or ``spark``."""
    first = lines[0]
    title = f"requests of a batch: {who}; {first['table_type']}, version {first['version']}, S3, mean"
    table = Table("records", "file groups", "instants", *KINDS, "all", "data files", "s (median)", title=title)
    for size, groups, instants in dict.fromkeys((x["records"], x["file_groups"], x["instants"]) for x in lines):
        mine = [x for x in lines if (x["records"], x["file_groups"], x["instants"]) == (size, groups, instants)]
        counts = [statistics.mean(line[who].get(kind, 0) for line in mine) for kind in KINDS]
        total = statistics.mean(sum(line[who].values()) for line in mine)
        files = statistics.mean(line["files"] for line in mine)
        seconds = statistics.median(line["seconds"] for line in mine)
        what = (f"{size:,}", f"{groups:,}", f"{instants:,}")
        table.add_row(*what, *(f"{count:.1f}" for count in counts), f"{total:.1f}", f"{files:.0f}", f"{seconds:.2f}")
    return table


def run(grown: Grown, out: Path, timeout_s: float) -> list[dict[str, Any]]:
    """Stream into a table on a separate server and return the lines of its warm batches."""
    folder = make_grown(grown, out / "cache")
    at = out / "cases" / grown.name
    shutil.rmtree(at, ignore_errors=True)
    workload = Workload("update", grown.keys, max(grown.sizes), len(grown.sizes), max(2, grown.partitions))
    case = Case(1, workload, folder, grown.table_type, Writer("tagstream", "STATE"), folder / "table", at / "case")
    with place(S3, 0, at) as where:
        lines = grown_lines(measure(case, where, timeout_s), grown)
    shutil.rmtree(at, ignore_errors=True)
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Make the tables, stream, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="default: %(default)s")
    parser.add_argument("--groups", type=int, nargs="+", default=[10, 1_000, 10_000], help="default: %(default)s")
    parser.add_argument("--instants", type=int, nargs="+", default=[FEW_INSTANTS, 10_000], help="default: %(default)s")
    parser.add_argument("--records", type=int, nargs="+", default=[10, 1_000], help="of a batch (default: %(default)s)")
    parser.add_argument("--batches", type=int, default=5, help="of each size, after the warm-up (default: %(default)s)")
    parser.add_argument("--table-types", nargs="+", choices=TABLE_TYPES, default=["MERGE_ON_READ"])
    parser.add_argument("--versions", type=int, nargs="+", choices=(6, 8, 9), default=[6])
    parser.add_argument("--case-timeout", type=float, default=1800.0, metavar="S")
    args = parser.parse_args(argv)
    out = args.out.absolute()
    console = Console(width=150 if not sys.stdout.isatty() else None)
    sizes = (args.records[0],) * WARM_UP + tuple(size for size in args.records for _ in range(args.batches))
    wrong = 0
    for table_type in args.table_types:
        for version in args.versions:
            lines: list[dict[str, Any]] = []
            for groups, instants in tables_of(args.groups, args.instants):
                found = run(Grown(groups, instants, sizes, table_type, version), out, args.case_timeout)
                append_lines(out / "results.jsonl", found)
                wrong += not found[0]["right"]
                lines += found
            for who in ("ours", "spark"):
                console.print(as_table(sorted(lines, key=lambda line: line["records"]), who))
    if wrong:
        console.print(f"{wrong} tables are WRONG by an outside reader")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
