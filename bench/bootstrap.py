"""How fast an index is loaded from copy-on-write base files: `python -m bench.bootstrap --keys 1000000 10000000`.

Makes a table of `k0000001`... with a bigint ordering column (not timed), then loads it `--runs` times in Spark tasks on
`--cores` cores (`--cores 0`: in this process). A run is the whole of it: listing, planning, scan, load, the mark that it is
complete, with every file of the index synced. Python's workers and the JVM are there when the first run begins; it is the
one in which the JVM compiles. Printed as a Markdown table: time, keys a second, processor seconds by process, bytes of the
first snapshots a key, and the greatest resident memory that a Python worker, the JVM and this process ever had.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from bench.inputs.lines import append_lines
from tagstream.bootstrap.report import BootstrapReport
from tagstream.bootstrap.run import bootstrap_index
from tagstream.state.key_group import balanced_labels
from tagstream.state.layout import StateLayout
from tagstream.streaming.job.session import start_session
from tagstream.table.file_group.bloom import SIMPLE, BloomParams
from tagstream.table.file_group.names import instant_from_ms, new_file_id
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import COPY_ON_WRITE, TableConfig
from tagstream.table.schema.schema import arrow_to_avro
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.write import commit
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.write_context import WriteContext, WriterOptions

_START_MS = 1_767_225_600_000
_SCHEMA = pa.schema([
    ("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("name", pa.string()), ("amount", pa.float64()),
])  # fmt: skip
_SMALL_BLOOM = BloomParams(SIMPLE, 1_000, 0.1)  # nothing reads the filters here, and full ones take most of the time


@dataclass
class Cost:
    """Processor seconds and the greatest resident bytes of one kind of process."""

    cpu: float = 0.0
    peak: int = 0


@dataclass
class Watch:
    """Processor time and memory of this process, the JVM and the Python workers while the ``with`` block lasts."""

    costs: dict[str, Cost] = field(default_factory=dict)

    def __enter__(self) -> Watch:
        self._stop = threading.Event()
        self._first: dict[int, float] = {}
        self._last: dict[int, tuple[str, float]] = {}
        self._look(begun_before=True)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()
        for pid, (kind, seconds) in self._last.items():
            self._cost(kind).cpu += seconds - self._first[pid]

    @property
    def cpu(self) -> float:
        """Processor seconds of all."""
        return sum(cost.cpu for cost in self.costs.values())

    def peak(self, kind: str) -> float:
        """MiB."""
        return self._cost(kind).peak / (1 << 20)

    def _watch(self) -> None:
        while not self._stop.wait(0.5):
            self._look()

    def _look(self, *, begun_before: bool = False) -> None:
        me = psutil.Process()
        for process in [me, *me.children(recursive=True)]:
            try:
                name = "driver" if process.pid == me.pid else "worker" if process.name().startswith("python") else "JVM"
                times = process.cpu_times()
                self._first.setdefault(process.pid, times.user + times.system if begun_before else 0.0)
                self._last[process.pid] = (name, times.user + times.system)
                self._cost(name).peak = max(self._cost(name).peak, _greatest_rss(process.pid))
            except (psutil.Error, OSError):
                continue

    def _cost(self, kind: str) -> Cost:
        return self.costs.setdefault(kind, Cost())


def _greatest_rss(pid: int) -> int:
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        return next((int(line.split()[1]) << 10 for line in f if line.startswith("VmHWM:")), 0)


def make_table(folder: str, keys: int, partitions: int, per_file: int) -> HoodieTable:
    """A table of one commit: `keys` rows in files of `per_file`, spread over the partitions."""
    avro = json.dumps(arrow_to_avro(_SCHEMA, "bench"))
    config = TableConfig(
        name="bench",
        table_type=COPY_ON_WRITE,
        record_key_fields=("id",),
        partition_fields=("city",),
        ordering_fields=("ts",),
        create_schema=avro,
    )
    table = HoodieTable.create(os.path.join(folder, "table"), config, _START_MS)
    timeline, instant = table.timeline(), instant_from_ms(_START_MS + 1000, True)
    commit.request(table, instant, "commit")
    commit.inflight(table, instant, "commit")
    statuses = []
    none = pa.table({"_hoodie_record_key": pa.array([], pa.string()), "_ordering": pa.array([], pa.int64())})
    options = WriterOptions(bloom=_SMALL_BLOOM)
    for n, start in enumerate(range(0, keys, per_file)):
        numbers = pa.array(range(start, min(start + per_file, keys)), pa.int64())
        text = pc.cast(numbers, pa.string())
        city = f"city={n % partitions:03d}"
        ids = pc.binary_join_element_wise("k", pc.utf8_lpad(text, 7, "0"), "")
        rows = pa.table({
            "id": ids,
            "city": pa.repeat(city, len(numbers)),
            "ts": pc.add(numbers, _START_MS * 1000),
            "name": pc.binary_join_element_wise("name of ", text, ""),
            "amount": pc.divide(pc.cast(numbers, pa.float64()), 7.0),
            "_is_insert": pa.repeat(True, len(numbers)),
            "_hoodie_record_key": ids,
        })  # fmt: skip
        ctx = WriteContext(instant, "commit", n, f"{n}-1-1", _SCHEMA, avro, None, timeline, options)
        statuses += write_file_group(table, ctx, city, new_file_id("bench", n), rows, none)
    commit.publish_files(table, instant, statuses)
    commit.complete(table, instant, "commit", CommitMetadata.build(statuses, {}, avro))
    return table


def load(folder: str, table: HoodieTable, groups: int, cores: int, spark: SparkSession | None) -> BootstrapReport:
    """One load into an empty folder."""
    for name in ("index", "local"):
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
    return bootstrap_index(
        table,
        StateLayout(PosixStorage(os.path.join(folder, "index")), os.path.join(folder, "local")),
        balanced_labels(groups, max(1, cores)),
        1,
        clock_ms=lambda: time.time_ns() // 1_000_000,
        ordering_type=pa.int64(),
        spark=spark,
    )


def line(run: int, report: BootstrapReport, watch: Watch) -> str:
    """A row of the table."""
    assert (report.live, report.rows, report.mismatched, report.twice) == (report.rows, report.expected_rows, [], 0)
    parts = ", ".join(f"{name} {cost.cpu:.1f}" for name, cost in sorted(watch.costs.items()))
    memory = " / ".join(f"{watch.peak(name):,.0f}" for name in ("worker", "JVM", "driver"))
    return (
        f"| {report.live:,} | {run} | {report.seconds:.2f} s | {report.keys_per_second:,.0f} | {watch.cpu:.1f} ({parts}) | "
        f"{report.live / watch.cpu:,.0f} | {report.bytes_per_key:.1f} | {memory} |"
    )


def figures(run: int, report: BootstrapReport, watch: Watch) -> dict[str, Any]:
    """The same as a JSON line."""
    found = {"seconds": report.seconds, "keys_per_second": report.keys_per_second, "cpu_seconds": watch.cpu}
    found |= {"bytes_per_key": report.bytes_per_key}
    found |= {f"peak_mib_{name}": watch.peak(name) for name in ("worker", "JVM", "driver")}
    rounded = {name: round(value, 3) for name, value in found.items()}
    return {"kind": "bootstrap", "run": run, "keys": report.live, **rounded}


def main() -> None:
    """Make the tables, load them, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--rows-per-file", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--folder", default=None, help="where to make tables and indexes; kept if given")
    parser.add_argument("--json", type=Path, help="add the figures to this file of JSON lines")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="further settings of Spark")
    args = parser.parse_args()
    folder = args.folder or tempfile.mkdtemp(prefix="bench-bootstrap-")
    spark = None
    try:
        if args.cores:
            conf = {"spark.master": f"local[{args.cores}]", "spark.local.dir": os.path.join(folder, "spark")}
            conf |= dict(pair.split("=", 1) for pair in args.conf)
            spark = start_session("bench", jars=[], conf=conf, env=os.environ)
            spark.sparkContext.parallelize(range(args.cores), args.cores).map(str).collect()  # workers are started
        print(f"{args.cores or 'no'} Spark cores of {os.cpu_count()} ({platform.machine()}), {args.groups} key groups")
        print(
            "\n| keys | run | time | keys/s | CPU s | keys per CPU s | bytes a key | peak MiB: worker / JVM / driver |"
        )
        print("|---|---|---|---|---|---|---|---|")
        for keys in args.keys:
            place = os.path.join(folder, str(keys))
            made = os.path.join(place, "table", ".hoodie")
            table = HoodieTable.open(os.path.dirname(made)) if os.path.exists(made) else None
            if table is None:
                table = make_table(place, keys, args.partitions, args.rows_per_file)
            for run in range(1, args.runs + 1):
                with Watch() as watch:
                    report = load(place, table, args.groups, args.cores, spark)
                print(line(run, report, watch), flush=True)
                append_lines(args.json, [figures(run, report, watch)])
    finally:
        if spark is not None:
            spark.stop()
        if args.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
