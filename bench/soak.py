"""Kafka to table at a steady rate, for minutes: `python -m bench.soak --minutes 10 --peak 40000 --share 0.7`.

A real broker, a producer and the job `run_stream.py --continuous` run in separate processes. The table has `--keys` rows
before. Samples every five seconds: lag of the commits behind the topic, memory by kind of process, bytes of the index. Then
the producer stops, the job reads the rest and is ended by SIGTERM, and hudi-rs reads the table, which must match the events
exactly (exit code 1 on a difference).
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from hudi import HudiReadOptions, HudiTableBuilder
from kafka import KafkaConsumer, TopicPartition
from rich.console import Console
from rich.table import Table

from bench.inputs.kafka_feed import TopicFeed, at_rate
from bench.inputs.lines import append_lines
from bench.inputs.soak_events import AVRO, INSERTS, SoakEvents, make_table
from bench.inputs.soak_samples import KINDS, batches_of, bytes_below, memory_mib, summary
from tagstream.streaming.batch.commit_record import all_extra_metadata, parse
from tagstream.streaming.source.connector import PROJECT
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tests.support.compare import Differences, compare
from tests.support.kafka_broker import KafkaBroker
from tests.support.process import Process

TOPIC, TOPIC_PARTITIONS = "events", 4
START_S, DRAIN_S = 600.0, 600.0
# Retention of the topic for each partition in minutes, at least: an hour of all records would fill a disk.
_KEPT = {"retention.bytes": str(2 << 30), "segment.bytes": str(256 << 20)}
_FIRST = 1_000  # records that are committed before the clock starts


@dataclass
class Soak:
    """One run: its folder, table and broker, and its samples so far."""

    args: argparse.Namespace
    folder: Path
    table: HoodieTable
    broker: KafkaBroker
    samples: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._consumer = KafkaConsumer(**self.broker.python_client())
        self._partitions = [TopicPartition(TOPIC, p) for p in range(TOPIC_PARTITIONS)]

    def produced(self) -> int:
        """Records in the topic."""
        return sum(self._consumer.end_offsets(self._partitions).values())

    def committed(self) -> int:
        """Records in the stream's newest commit and those before it. Commits of services have no count."""
        told = (parse(extra) for _, extra in all_extra_metadata(self.table, self.table.timeline()))
        newest = next((record for record in told if record is not None), None)
        return 0 if newest is None else sum(newest.end_offsets[TOPIC].values())

    def sample(self, job: Process, at: float) -> None:
        """Take a sample. Commits are read first: records produced in between count as lag."""
        committed = self.committed()
        produced = self.produced()
        self.samples.append(
            {
                "at": round(at, 2),
                "produced": produced,
                "committed": committed,
                "lag": produced - committed,
                "mib": memory_mib(job.pid),
                "local_bytes": bytes_below(self.folder / "local"),
                "durable_bytes": bytes_below(self.folder / "checkpoint" / "tagstream" / "index"),
            }
        )

    def command(self) -> list[str]:
        """The job's command line."""
        properties = {
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "part",
            "hoodie.table.ordering.fields": "ts",
            "hoodie.streamer.source.kafka.topic": TOPIC,
            "hoodie.streamer.schemaprovider.source.schema.file": str(self.folder / "event.avsc"),
            "index.local.dir": str(self.folder / "local"),
            "spark.master": self.args.master,
            "spark.local.dir": str(self.folder / "spark"),
            **self.broker.java_client(),
        }
        out = [sys.executable, str(PROJECT / "run_stream.py"), "--continuous", "--source-class", "JsonKafkaSource"]
        out += ["--target-base-path", str(self.folder / "table"), "--checkpoint-dir", str(self.folder / "checkpoint")]
        out += ["--target-table", "soak", "--table-type", self.args.table_type]
        for pair in [*(f"{k}={v}" for k, v in properties.items()), *self.args.conf]:
            out += ["--hoodie-conf", pair]
        return out

    def close(self) -> None:
        """Stop the broker."""
        self._consumer.close()


def main() -> int:
    """Run it; exit code 1 when the table is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=float, help="records a second")
    parser.add_argument("--peak", type=float, help="measured records per second of the writer")
    parser.add_argument("--share", type=float, default=0.7, help="of the peak")
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument(
        "--inserts",
        type=float,
        default=INSERTS,
        help="share of new keys; 0 keeps the table's rows (default: %(default)s)",
    )
    parser.add_argument("--table-type", default="MERGE_ON_READ", choices=["COPY_ON_WRITE", "MERGE_ON_READ"])
    parser.add_argument("--master", default="local[2,4]")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two samples")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--run", type=int, default=1, help="number of the run, for the JSON lines")
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder by default")
    parser.add_argument("--json", type=Path, help="add the figures to this file of JSON lines")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="further --hoodie-conf")
    args = parser.parse_args()
    if (args.rate is None) == (args.peak is None):
        parser.error("give --rate, or --peak (and --share)")
    args.rate = args.rate or args.peak * args.share
    folder = Path(tempfile.mkdtemp(prefix="soak-", dir=args.folder))
    try:
        lines = soak(args, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    append_lines(args.json, lines)
    Console(width=None if sys.stdout.isatty() else 150).print(as_table(lines[-1]))
    return 0 if lines[-1]["right"] else 1


def soak(args: argparse.Namespace, folder: Path) -> list[dict[str, Any]]:
    """The lines of a run, the summary last."""
    (folder / "event.avsc").write_text(AVRO)
    events = SoakEvents(args.keys, args.partitions, args.seed, args.inserts)
    table = make_table(folder / "table", events, args.table_type, time.time_ns() // 1_000_000)
    lines = folder / "events.tsv.zst"
    events.write(lines, _FIRST + int(args.rate * args.minutes * 60) + 1)
    with KafkaBroker(folder / "broker") as broker:
        broker.create_topic(TOPIC, TOPIC_PARTITIONS, _KEPT)
        run = Soak(args, folder, table, broker)
        try:
            with Process(run.command(), folder / "job.log", cwd=PROJECT) as job:
                seconds = steady(run, job, lines)
                job.wait_for(lambda: run.committed() == run.produced(), DRAIN_S, "the end of the topic")
                drained = time.monotonic() - seconds[1]
                sent = run.produced()
                job.send(signal.SIGTERM)
                code = job.wait(DRAIN_S)
                log = job.output()
        finally:
            run.close()
    wrong, rows = check(events, sent, run)
    size = {
        "keys": args.keys,
        "inserts": args.inserts,
        "rate": args.rate,
        "table_type": args.table_type,
        "run": args.run,
    }
    end = {
        "summary": True,
        "seconds": round(seconds[0], 1),
        "records": sent,
        "drain_seconds": round(drained, 1),
        "exit_code": code,
        "rows": rows,
        "right": code == 0 and not wrong,
        "wrong": str(wrong) if wrong else "",
        **summary(run.samples, batches_of(log)[1:]),
    }
    return [{"kind": "soak", **size, **s} for s in (*run.samples, end)]


def steady(run: Soak, job: Process, lines: Path) -> tuple[float, float]:
    """Feed the topic at the rate and sample the job. Returns the seconds, and the time of the end."""
    with (
        BufferedReader(pa.input_stream(lines, compression="zstd")) as source,
        TopicFeed(run.broker.address(), TOPIC, run.folder / "feed.log") as feed,
    ):

        def take(count: int) -> bytes:
            if job.returncode is not None:
                raise RuntimeError(f"the job ended with {job.returncode}:\n{job.output()[-4000:]}")
            return b"".join(islice(source, count))

        feed.write(take(_FIRST))
        job.wait_for(lambda: run.committed() >= _FIRST, START_S, "the first commit")
        begun, done = time.monotonic(), threading.Event()

        def look() -> None:
            run.sample(job, 0.0)
            while not done.wait(run.args.every):
                run.sample(job, time.monotonic() - begun)

        with ThreadPoolExecutor(1) as pool:
            watching = pool.submit(look)
            try:
                at_rate(take, feed, run.args.rate, run.args.minutes * 60)
            finally:
                done.set()
            watching.result()
    return time.monotonic() - begun, time.monotonic()


def check(events: SoakEvents, sent: int, run: Soak) -> tuple[Differences, int]:
    """Compare the rows read by hudi-rs with the events, partition by partition, because the logs of minutes are many."""
    reader = HudiTableBuilder.from_base_uri(run.table.base_path).build()
    expected = events.expected(sent)
    parts = []
    for partition in run.table.view().partitions():
        wanted = HudiReadOptions(filters=[("part", "=", partition)], projection=expected.column_names)
        parts += reader.read(wanted)
    found = pa.Table.from_batches(parts).select(expected.column_names)
    return compare(expected, found, ["id"]), found.num_rows


def as_table(end: dict[str, Any]) -> Table:
    """The summary."""
    table = Table(
        "", "", title=f"{end['seconds']:,.0f} s at {end['rate']:,.0f} records/s, {end['table_type']}", show_header=False
    )
    grown = {kind: end["memory_slope"][kind] for kind in KINDS}
    for name, value in (
        ("records", f"{end['records']:,}"),
        ("rows read by hudi-rs", f"{end['rows']:,}: {'every one is right' if end['right'] else end['wrong']}"),
        ("lag (records): median, greatest", f"{end['lag_median']:,.0f}, {end['lag_greatest']:,}"),
        ("lag grows by (records/s)", str(end["lag_slope"])),
        ("memory grows by (MiB a minute)", ", ".join(f"{k} {v}" for k, v in grown.items())),
        ("greatest memory (MiB)", ", ".join(f"{k} {v}" for k, v in end["memory_greatest"].items())),
        ("batches", f"{end['batches']}, of {end['batch_records']:,.0f} records in {end['batch_seconds']} s (median)"),
        ("longest batch (s)", str(end["batch_seconds_greatest"])),
        ("to read the rest (s)", str(end["drain_seconds"])),
    ):
        table.add_row(name, value)
    return table


if __name__ == "__main__":
    raise SystemExit(main())
