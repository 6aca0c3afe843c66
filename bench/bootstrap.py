"""How fast an index is loaded from copy-on-write base files: `python -m bench.bootstrap --keys 1000000`.

Makes a table of `k0000001`... with a bigint ordering column (not timed), then loads it in Spark tasks on `--cores` cores
(`--cores 0`: in this process). Printed: keys a second of the whole run, bytes of the first snapshots a key, and the
greatest resident memory of this process or of a Python worker.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import threading
import time
from dataclasses import replace

import psutil
import pyarrow as pa

from bootstrap.run import bootstrap_index
from state.key_group import balanced_labels
from state.layout import StateLayout
from streaming.session import start_session
from table import commit
from table.commit_metadata import CommitMetadata
from table.file_writer import write_file_group
from table.hoodie_table import HoodieTable
from table.names import instant_from_ms, new_file_id
from table.schema import arrow_to_avro
from table.table_config import COPY_ON_WRITE, TableConfig
from table.write_context import WriteContext, WriterOptions

_START_MS = 1_767_225_600_000
_SCHEMA = pa.schema([
    ("id", pa.string()), ("city", pa.string()), ("ts", pa.int64()), ("name", pa.string()), ("amount", pa.float64()),
])  # fmt: skip


class PeakMemory:
    """Samples the memory of this process and of its Python children four times a second, and the CPU time of all."""

    def __init__(self) -> None:
        self.own = self.worker = 0
        self._cpu: dict[int, tuple[float, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(0.25):
            self.own = max(self.own, me.memory_info().rss)
            self._note(me)
            for child in me.children(recursive=True):
                try:
                    if child.name().startswith("python"):
                        self.worker = max(self.worker, child.memory_info().rss)
                    self._note(child)
                except psutil.Error:
                    continue

    def _note(self, process: psutil.Process) -> None:
        times = process.cpu_times()
        now = times.user + times.system
        self._cpu[process.pid] = (self._cpu.get(process.pid, (now, now))[0], now)

    @property
    def cpu(self) -> float:
        """Seconds of CPU of this process, the JVM and the workers while they were watched."""
        return sum(last - first for first, last in self._cpu.values())


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
    for n, start in enumerate(range(0, keys, per_file)):
        numbers = range(start, min(start + per_file, keys))
        city = f"city={n % partitions:03d}"
        ids = pa.array([f"k{i:07d}" for i in numbers])
        rows = pa.table({
            "id": ids,
            "city": pa.array([city] * len(numbers)),
            "ts": pa.array([_START_MS * 1000 + i for i in numbers]),
            "name": pa.array([f"name of {i}" for i in numbers]),
            "amount": pa.array([i / 7 for i in numbers]),
            "_is_insert": pa.array([True] * len(numbers)),
            "_hoodie_record_key": ids,
        })  # fmt: skip
        ctx = WriteContext(instant, "commit", n, f"{n}-1-1", _SCHEMA, avro, None, timeline, WriterOptions())
        statuses += write_file_group(table, ctx, city, new_file_id("bench", n), rows, none)
    commit.complete(table, instant, "commit", CommitMetadata.build(statuses, {}, avro))
    return table


def main() -> None:
    """Make the table, load it, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--rows-per-file", type=int, default=100_000)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--folder", default=None, help="where to make the table and the index; kept if given")
    args = parser.parse_args()
    folder = args.folder or tempfile.mkdtemp(prefix="bench-bootstrap-")
    try:
        began = time.perf_counter()
        table = make_table(folder, args.keys, args.partitions, args.rows_per_file)
        print(f"table of {args.keys:,} keys made in {time.perf_counter() - began:.1f} s")
        layout = StateLayout(os.path.join(folder, "index"), os.path.join(folder, "local"))
        labels = balanced_labels(args.groups, max(1, args.cores))
        spark = None
        if args.cores:
            conf = {"spark.master": f"local[{args.cores}]", "spark.local.dir": os.path.join(folder, "spark")}
            spark = start_session("bench", jars=[], conf=conf, env=os.environ)
            spark.sparkContext.parallelize(range(args.cores), args.cores).map(str).collect()  # workers are started
        with PeakMemory() as memory:
            report = bootstrap_index(
                table,
                replace(layout, durable_fsync=True),
                labels,
                1,
                clock_ms=lambda: time.time_ns() // 1_000_000,
                ordering_type=pa.int64(),
                spark=spark,
            )
        where = f"{args.cores} cores" if args.cores else "this process"
        print(
            f"{report.live:,} keys in {report.seconds:.2f} s on {where}: {report.keys_per_second:,.0f} keys/s, "
            f"{report.bytes_per_key:.1f} bytes a key, {memory.cpu:.1f} s of CPU; memory: driver {memory.own >> 20} MiB, "
            f"Python worker {memory.worker >> 20} MiB"
        )
        if spark is not None:
            spark.stop()
    finally:
        if args.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
