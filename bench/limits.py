"""The limits of this machine, without a writer: `python -m bench.limits --keys 500000 2000000 --runs 3`.

- rocksdict multi-get: the keys of a batch, from stores that were just opened, in the form of the tag step's stores
- parquet write: the rows of a mixed batch with Hudi's five meta columns, a zstd file per partition, by pyarrow in one thread
- kafka read and file read: Spark's connector and its text reader to the no-op sink, on two cores

The first run of each is not counted. Rates of lookups and of Parquet are by processor time of the one thread that does the
work, so that other processes matter less. Those of Spark are by elapsed time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

from bench.inputs.event_rows import event_rows, json_lines
from bench.inputs.kafka_feed import TopicFeed, keyed_lines
from bench.inputs.lines import append_lines
from bench.tag_step import batches, make_batch, profile_of
from tagstream.state.durable_files import Pointer
from tagstream.state.key_crc import state_key_groups
from tagstream.state.layout import StateLayout, balanced_labels
from tagstream.state.local_store import open_at
from tagstream.state.tag_group import tag_key_group
from tagstream.streaming.job.session import start_session
from tagstream.streaming.source.connector import connector_jars
from tagstream.table.file_group.names import base_file_name, new_file_id, seqnos
from tagstream.table.file_group.parquet_options import writer_options
from tagstream.table.schema.schema import META_COLUMNS
from tagstream.table.storage.posix import PosixStorage
from tests.support.kafka_broker import KafkaBroker

NAMES = ("multi-get", "parquet", "kafka", "files")
_FIRST_MS, _INSTANT, _SEED = 1_700_000_000_000, "20260101000000000", 7
_LOAD = 500_000
_FEED = 100_000


def main() -> None:
    """Measure the requested limits, print and store the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--keys", type=int, nargs="+", default=[500_000], help="existing keys of the lookups")
    parser.add_argument("--records", type=int, default=100_000, help="of a batch, in lookups and Parquet")
    parser.add_argument("--read", type=int, default=1_000_000, help="records in the topic and in the files")
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--groups", type=int, default=8, help="key groups")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to work; a temporary folder by default")
    parser.add_argument("--json", type=Path, help="add the figures to this file of JSON lines")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-limits-", dir=args.folder))
    lines: list[dict[str, Any]] = []
    try:
        if "multi-get" in args.only:
            for keys in args.keys:
                lines += multi_get(folder / f"state-{keys}", keys, args.records, args.groups, args.runs)
        if "parquet" in args.only:
            lines += parquet_write(folder / "parquet", args.records, args.partitions, args.runs)
        if {"kafka", "files"} & set(args.only):
            lines += spark_reads(folder, args.read, args.runs, args.only)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    append_lines(args.json, lines)
    Console(width=None if sys.stdout.isatty() else 150).print(as_table(lines))


def limit(name: str, run: int, per_second: float, unit: str, note: str, keys: int | None = None) -> dict[str, Any]:
    """A line of figures."""
    figures = {"keys": keys, "per_second": round(per_second, 1), "unit": unit, "note": note}
    return {"kind": "limit", "run": run, "limit": name, **figures}


def multi_get(folder: Path, keys: int, records: int, groups: int, runs: int) -> list[dict[str, Any]]:
    """Keys per second that one thread gets, in the order of a batch and in the store's order."""
    layout = StateLayout(PosixStorage(str(folder / "durable"), sync=False), str(folder / "local"))
    labels = balanced_labels(groups, 2)
    pointers: dict[int, bytes | None] = dict.fromkeys(labels)
    for batch_id, numbers in enumerate(np.array_split(np.arange(keys), -(-keys // _LOAD))):
        for label, mine in _by_group(numbers, labels):
            rows = make_batch(mine, mine % 20, batch_id, 20)
            pointers[label] = tag_key_group(label, pointers[label], rows, profile_of(batch_id, labels), layout).pointer
    note = f"{groups} stores, {records:,} keys, just opened, thread's processor time"
    found = []
    for run, (numbers, _) in enumerate(batches(np.random.default_rng(_SEED), keys, records, runs + 1, 20)):
        for name, ordered in (("rocksdict multi-get", False), ("rocksdict multi-get, keys sorted", True)):
            seconds = sum(
                _get(layout, label, pointers[label], mine, ordered) for label, mine in _by_group(numbers, labels)
            )
            if run:
                found.append(limit(name, run, records / seconds, "keys/s", note, keys))
    return found


def _by_group(numbers: np.ndarray, labels: tuple[int, ...]) -> Iterator[tuple[int, np.ndarray]]:
    groups = state_key_groups(pa.array([b"\0k%07d" % i for i in numbers.tolist()], pa.binary()), len(labels))
    yield from ((label, numbers[groups == index]) for index, label in enumerate(labels))


def _get(layout: StateLayout, label: int, pointer: bytes | None, numbers: np.ndarray, ordered: bool) -> float:
    """Seconds of one multi-get."""
    assert pointer is not None
    store, _ = open_at(layout, label, Pointer.from_bytes(pointer, label))
    keys = [b"\x01k%07d" % i for i in numbers.tolist()]
    if ordered:
        keys.sort()
    with store:
        clock = time.thread_time()
        store.get(keys)
        return time.thread_time() - clock


def parquet_write(folder: Path, records: int, partitions: int, runs: int) -> list[dict[str, Any]]:
    """Rows per second that pyarrow writes, with 13 columns."""
    folder.mkdir(parents=True)
    note = (
        f"13 columns, zstd, {partitions} files of {records // partitions:,} rows, not synced, thread's processor time"
    )
    found = []
    for run in range(runs + 1):
        parts = list(hudi_rows(records, partitions, run))
        clock = time.thread_time()
        for name, rows in parts:
            pq.write_table(rows, folder / name, **writer_options("zstd", rows))
        if run:
            found.append(limit("parquet write", run, records / (time.thread_time() - clock), "rows/s", note))
    return found


def hudi_rows(records: int, partitions: int, seed: int) -> Iterator[tuple[str, pa.Table]]:
    """File name and rows of each partition, with the meta columns before the events' columns."""
    random = np.random.default_rng([_SEED, seed])
    numbers = random.choice(records * 20, records, replace=False)
    places = random.integers(0, partitions, records)
    for partition in range(partitions):
        mine = numbers[places == partition]
        rows = event_rows(mine, np.full(len(mine), partition), _FIRST_MS + mine, 8, random)
        name = base_file_name(new_file_id("limits", partition), f"{partition}-1-{seed}", _INSTANT)
        meta = {
            "_hoodie_commit_time": pa.repeat(_INSTANT, len(mine)),
            "_hoodie_commit_seqno": seqnos(_INSTANT, partition, 0, len(mine)),
            "_hoodie_record_key": rows["id"].combine_chunks(),
            "_hoodie_partition_path": rows["part"].combine_chunks(),
            "_hoodie_file_name": pa.repeat(name, len(mine)),
        }
        columns = [meta[column] for column in META_COLUMNS]
        yield name, pa.table([*columns, *rows.columns], names=[*META_COLUMNS, *rows.column_names])


def spark_reads(folder: Path, records: int, runs: int, only: Sequence[str]) -> list[dict[str, Any]]:
    """Records per second that Spark reads from a topic, and from files of JSON lines, without further use."""
    jars = [str(jar) for jar in connector_jars()] if "kafka" in only else []
    conf = {"spark.master": "local[2]", "spark.local.dir": str(folder / "spark"), "spark.driver.memory": "1g"}
    found: list[dict[str, Any]] = []
    spark = start_session("limits", jars=jars, conf=conf, env=os.environ)
    try:
        if "kafka" in only:
            with full_topic(folder, records) as options:
                note = f"{records:,} records, 4 partitions, local[2], broker on the same two cores"
                read = lambda: spark.read.format("kafka").options(**options).load()  # noqa: E731
                found += [limit("kafka read", r, x, "records/s", note) for r, x in rates(read, records, runs)]
        if "files" in only:
            files = event_files(folder / "in", records)
            note = f"{records:,} JSON lines in {len(files)} files as text, local[2]"
            read_files = lambda: spark.read.format("text").load(files)  # noqa: E731
            found += [limit("file read", r, x, "records/s", note) for r, x in rates(read_files, records, runs)]
    finally:
        spark.stop()
    return found


def rates(read: Callable[[], DataFrame], records: int, runs: int) -> Iterator[tuple[int, float]]:
    """(run, records per second) of reading all records to the no-op sink."""
    if (there := read().count()) != records:
        raise ValueError(f"the source holds {there:,} records, not {records:,}")
    for run in range(runs + 1):
        clock = time.perf_counter()
        read().write.format("noop").mode("overwrite").save()
        if run:
            yield run, records / (time.perf_counter() - clock)


@contextmanager
def full_topic(folder: Path, records: int) -> Iterator[dict[str, str]]:
    """A broker with `records` events in a topic. Yields the options of Spark's reader."""
    with KafkaBroker(folder / "broker") as broker:
        broker.create_topic("limits", 4)
        with TopicFeed(broker.address(), "limits", folder / "feed.log") as feed:
            for rows in _events(records):
                feed.write(keyed_lines(rows["id"].combine_chunks(), json_lines(rows)))
        yield {"subscribe": "limits", "kafka.bootstrap.servers": broker.address(), "startingOffsets": "earliest"}


def event_files(folder: Path, records: int) -> list[str]:
    """Files of a hundred thousand lines."""
    folder.mkdir()
    paths: list[str] = []
    for rows in _events(records):
        paths.append(str(folder / f"events-{len(paths):05d}.json"))
        Path(paths[-1]).write_bytes(json_lines(rows))
    return paths


def _events(records: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(_SEED)
    for start in range(0, records, _FEED):
        numbers = np.arange(start, min(start + _FEED, records))
        yield event_rows(numbers, random.integers(0, 10, len(numbers)), _FIRST_MS + numbers, 8, random)


def as_table(lines: list[dict[str, Any]]) -> Table:
    """A row per limit: median, least and greatest of the runs."""
    table = Table("limit", "keys", "a second", "least", "greatest", "unit", "of")
    for name, keys in dict.fromkeys((line["limit"], line["keys"]) for line in lines):
        mine = [line for line in lines if (line["limit"], line["keys"]) == (name, keys)]
        found = [line["per_second"] for line in mine]
        median = float(statistics.median(found))
        figures = (median, min(found), max(found))
        table.add_row(
            name, f"{keys:,}" if keys else "", *(f"{x:,.0f}" for x in figures), mine[0]["unit"], mine[0]["note"]
        )
    return table


if __name__ == "__main__":
    main()
