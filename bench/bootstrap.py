"""How fast an index is loaded from copy-on-write base files: `python -m bench.bootstrap --keys 1000000 10000000`.

Makes a table of `k0000001`... with a bigint ordering column (not timed), then loads it `--runs` times in Spark tasks on
`--cores` cores (`--cores 0`: in this process). A run is the whole load: listing, planning, scan, load, and the marker file,
with every file of the index synced. Python's workers and the JVM are started before the first run, in which the JVM
compiles. Prints a Markdown table: time, keys per second, processor seconds by process, bytes of the first snapshots per key,
and the peak resident memory of a Python worker, of the JVM and of this process.

`--stores s3 hdfs --delays 0 20`: then also the same table on these stores, with the index on the same store. Their servers
run on this machine, and each request (on HDFS: each call to the NameNode) takes this many ms more. The medians are compared
with those of the local disk. Processor seconds of the servers are listed separately. Those of a proxy, which adds the delay,
are included in the driver's.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from bench.inputs.lines import append_lines
from bench.inputs.loaded_table import make_table
from bench.process_costs import Watch
from bench.store_places import HDFS, HDFS_COMMITTED, LOCAL, S3, Place, place
from tagstream.bootstrap.report import BootstrapReport
from tagstream.bootstrap.run import bootstrap_index
from tagstream.state.layout import StateLayout, balanced_labels
from tagstream.streaming.job.session import start_session
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.opening import open_storage
from tests.support.stored import reaching

WARM_UP = 1  # runs


def load(url: str, local: Path, groups: int, cores: int, spark: SparkSession | None) -> BootstrapReport:
    """One load of the table in a place into an empty folder of the same place."""
    index = open_storage(f"{url}/index")
    index.delete_tree("loaded")
    shutil.rmtree(local, ignore_errors=True)
    return bootstrap_index(
        HoodieTable.open(f"{url}/table"),
        StateLayout(index.below("loaded"), str(local)),
        balanced_labels(groups, max(1, cores)),
        1,
        clock_ms=lambda: time.time_ns() // 1_000_000,
        ordering_type=pa.int64(),
        spark=spark,
    )


def line(run: int, where: str, report: BootstrapReport, watch: Watch) -> str:
    """A row of the printed table."""
    assert (report.live, report.rows, report.mismatched, report.twice) == (report.rows, report.expected_rows, [], 0)
    parts = ", ".join(f"{name} {cost.cpu:.1f}" for name, cost in sorted(watch.costs.items()))
    memory = " / ".join(f"{watch.peak(name):,.0f}" for name in ("worker", "JVM", "driver"))
    return (
        f"| {report.live:,} | {where} | {run} | {report.seconds:.2f} s | {report.keys_per_second:,.0f} | {watch.cpu:.1f} "
        f"({parts}) | {report.live / watch.cpu:,.0f} | {report.bytes_per_key:.1f} | {memory} |"
    )


def figures(run: int, where: str, report: BootstrapReport, watch: Watch) -> dict[str, Any]:
    """The same figures as a JSON line."""
    found = {"seconds": report.seconds, "keys_per_second": report.keys_per_second, "cpu_seconds": watch.cpu}
    found |= {"bytes_per_key": report.bytes_per_key}
    found |= {f"peak_mib_{name}": watch.peak(name) for name in ("worker", "JVM", "driver")}
    rounded = {name: round(value, 3) for name, value in found.items()}
    return {"kind": "bootstrap", "run": run, "place": where, "keys": report.live, **rounded}


def compared(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Rows of a Markdown table: each place compared with the first one, by the medians after the warm-up."""
    places = dict.fromkeys(line["place"] for line in lines)
    medians = {}
    for name in places:
        seconds = [line["seconds"] for line in lines if line["place"] == name]
        medians[name] = statistics.median(seconds[WARM_UP:] or seconds)
    first, keys = next(iter(medians.values())), lines[0]["keys"]
    rows = [f"| {keys:,} keys | s (median) | keys/s | of {next(iter(medians))} |", "|---|---|---|---|"]
    return rows + [f"| {name} | {s:.2f} | {keys / s:,.0f} | {first / s:.0%} |" for name, s in medians.items()]


@contextmanager
def session(folder: Path, args: argparse.Namespace) -> Iterator[SparkSession | None]:
    """Spark with its workers started, for the stores in use now. One JVM is used for all sessions."""
    if not args.cores:
        yield None
        return
    conf = {"spark.master": f"local[{args.cores}]", "spark.local.dir": str(folder / "spark")}
    conf |= dict(pair.split("=", 1) for pair in args.conf)
    spark = start_session("bench", jars=[], conf=conf, env=os.environ)
    try:
        spark.sparkContext.parallelize(range(args.cores), args.cores).map(str).collect()
        yield spark
    finally:
        spark.stop()


def measure(where: Place, keys: int, folder: Path, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Load the table of a place ``--runs`` times and return the figures of each run."""
    lines = []
    with reaching(where.settings), session(folder, args) as spark:
        for run in range(1, args.runs + 1):
            if where.proxy is not None:
                where.proxy.reset()
            with Watch(spark) as watch:
                report = load(where.url, folder / "state", args.groups, args.cores, spark)
            print(line(run, where.name, report, watch), flush=True)
            lines.append(figures(run, where.name, report, watch))
            if where.proxy is not None:
                lines[-1]["requests"] = dict(where.proxy.counts)
    assert lines[-1]["keys"] == keys
    append_lines(args.json, lines)
    return lines


def main(argv: Sequence[str] | None = None) -> None:
    """Make the tables, load them, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--rows-per-file", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument(
        "--stores", nargs="*", choices=(S3, HDFS, HDFS_COMMITTED), default=[], help="after the local disk"
    )
    parser.add_argument("--delays", type=float, nargs="+", default=[0], help="of the stores, ms (default: %(default)s)")
    parser.add_argument("--folder", default=None, help="where to make tables and indexes; kept if given")
    parser.add_argument("--json", type=Path, help="add the figures to this file of JSON lines")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="further settings of Spark")
    args = parser.parse_args(argv)
    folder = Path(args.folder or tempfile.mkdtemp(prefix="bench-bootstrap-")).absolute()
    try:
        print(
            f"{args.cores or 'no'} Spark cores of {os.cpu_count()} ({platform.machine()}), {args.groups} key groups\n"
        )
        columns = "keys | place | run | time | keys/s | CPU s | keys per CPU s | bytes a key"
        print(f"| {columns} | peak MiB: worker / JVM / driver |\n|---|---|---|---|---|---|---|---|---|")
        places = [(LOCAL, 0.0), *((store, delay) for store in args.stores for delay in args.delays)]
        for keys in args.keys:
            table = folder / str(keys) / "table"
            if not (table / ".hoodie").exists():
                make_table(str(table), keys, args.partitions, args.rows_per_file)
            lines = []
            for kind, delay in places:
                with place(kind, delay, folder / str(keys), counted=delay > 0) as where:
                    where.copy_up(table, "table")
                    lines += measure(where, keys, folder, args)
            print("", *compared(lines), "", sep="\n", flush=True)
    finally:
        if args.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
