"""A first load from Parquet files, then a stream: `python -m bench.bulk_load --rows 20000000`.

Makes Parquet files of events (not timed), all in random order of their keys. Each writer loads them into a new table in a
process of its own: this project's job with the operation BULK_INSERT, Hudi 1.2.0 on Spark with bulk_insert, both sorted over
all files (GLOBAL_SORT) with as many tasks, and delta-rs with one append. A load's seconds are those of reading and writing,
without the start of the process. Then the job continues its table as a stream of updates: it loads its index and takes a
few batches. Hudi on Spark counts rows, keys and the sum of the ordering column of its own table and of ours; of the table of
delta-rs the footers are counted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from bench.inputs.event_rows import avro_schema, event_rows, json_lines
from bench.inputs.lines import append_lines
from bench.peers import home
from bench.writers.case import (
    DELTA_RS,
    HUDI_SPARK,
    OLD_VERSION,
    TABLE_TYPES,
    TAGSTREAM,
    BenchError,
    Writer,
    read_events,
)
from bench.writers.command import command, environment
from bench.writers.process import Peak, run_process
from bench.writers.run import HUDI, TABLE_NAME, codec_option

US = Writer(TAGSTREAM, "STATE")
WRITERS = (US, Writer(HUDI_SPARK, "bulk_insert"), Writer(DELTA_RS, "MERGE"))
_COLUMNS, _SEED, _FIRST_TS = 8, 7, 1_767_225_600_000
_ROWS_PER_FILE, _MIB = 1_000_000, 1 << 20
_ALL_FILES = str(1 << 50)  # bytes of a batch: all files in one
_UPDATES_TS = _FIRST_TS + (1 << 40)


@dataclass(frozen=True)
class Input:
    """The files of a load, the updates after it, and what the table must then have."""

    folder: Path
    rows: int
    ts_sum: int
    ts_sum_after: int

    @property
    def avro(self) -> Path:
        """The schema of the events."""
        return self.folder / "event.avsc"


def make_input(folder: Path, rows: int, partitions: int, batches: int, records: int) -> Input:
    """Write the Parquet files and the updates. A key's timestamp tells its number, so that the sums need no table."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "load").mkdir(parents=True)
    (folder / "updates").mkdir()
    random = np.random.default_rng(_SEED)
    order = random.permutation(rows)
    for n, start in enumerate(range(0, rows, _ROWS_PER_FILE)):
        numbers = order[start : start + _ROWS_PER_FILE]
        made = event_rows(numbers, numbers % partitions, numbers + _FIRST_TS, _COLUMNS, random)
        pq.write_table(made, folder / "load" / f"part-{n:04d}.parquet", compression="zstd")
    newest = np.arange(rows, dtype=np.int64) + _FIRST_TS
    ts_sum = int(newest.sum())
    for batch in range(batches):
        numbers = np.sort(random.choice(rows, min(records, rows), replace=False))
        newest[numbers] = _UPDATES_TS + batch
        made = event_rows(numbers, numbers % partitions, newest[numbers], _COLUMNS, random)
        (folder / "updates" / f"{batch:04d}.json").write_bytes(json_lines(made))
    made_input = Input(folder, rows, ts_sum, int(newest.sum()))
    made_input.avro.write_text(json.dumps(avro_schema(_COLUMNS)), "utf-8")
    return made_input


def load_order(writer: Writer, given: Input, place: Path, table_type: str, tasks: int) -> dict[str, Any]:
    """The order for the writer's program that loads the files."""
    files = str(given.folder / "load")
    order: dict[str, Any] = {
        "table": str(place / "table"), "events": str(place / "events.jsonl"), "work": str(place / "work"),
        "name": TABLE_NAME, "table_type": table_type, "options": codec_option(writer, "zstd"),
    }  # fmt: skip
    if writer.name != TAGSTREAM:
        more = {"do": "load", "rows": files, "parallelism": tasks, "table_version": OLD_VERSION}
        return order | more | {"bundle": str(home.bundle(HUDI))}
    order["options"] |= {
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.write.table.version": str(OLD_VERSION),
        "hoodie.bulkinsert.sort.mode": "GLOBAL_SORT",
        "hoodie.bulkinsert.shuffle.parallelism": str(tasks),
    }
    flags = ["--op", "BULK_INSERT", "--source-class", "ParquetDFSSource", "--source-limit", _ALL_FILES]
    return order | {"batches": files, "avro": str(given.avro), "flags": flags}


def stream_order(given: Input, place: Path, table_type: str) -> dict[str, Any]:
    """The order for the job that continues the loaded table."""
    return {
        "table": str(place / "table"), "events": str(place / "stream.jsonl"), "work": str(place / "stream"),
        "name": TABLE_NAME, "table_type": table_type, "avro": str(given.avro),
        "options": codec_option(US, "zstd") | {"hoodie.datasource.write.streaming.disable.compaction": "true"},
        "batches": str(given.folder / "updates"),
    }  # fmt: skip


def run(writer: Writer, order: dict[str, Any], log: Path, timeout_s: float) -> Peak:
    """Run the writer's program on an order."""
    path = log.with_suffix(".json")
    path.write_text(json.dumps(order, indent=1), "utf-8")
    return run_process(command(writer, path), environment(writer), log, timeout_s)


def load(writer: Writer, given: Input, place: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Load the files with a writer; the figures. BenchError when it fails or the table has other rows."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    tasks = max(1, given.rows // _ROWS_PER_FILE)
    peak = run(writer, load_order(writer, given, place, args.table_type, tasks), place / "load.log", args.timeout)
    events = read_events(place / "events.jsonl")
    # Of ours a batch is from the trigger to the commit log. The peers measure their call.
    seconds = sum(e["seconds"] for e in events if e["event"] in ("batch", "loaded"))
    sizes = sorted(f.stat().st_size for f in (place / "table").rglob("*.parquet"))
    if writer.name == DELTA_RS:
        found = sum(pq.read_metadata(f).num_rows for f in (place / "table").rglob("*.parquet"))
        if found != given.rows:
            raise BenchError(f"{writer}: {found:,} rows in place of {given.rows:,}; see {place}")
    else:
        check(place, given.rows, given.ts_sum, args.timeout)
    return {
        "kind": "bulk-load", "writer": str(writer), "table_type": args.table_type, "rows": given.rows,
        "seconds": seconds, "rows_per_second": given.rows / seconds, "files": len(sizes), "bytes": sum(sizes),
        "least_file": sizes[0], "median_file": sizes[len(sizes) // 2], "greatest_file": sizes[-1],
        "peak_mib": {"jvm": round(peak.jvm), "python": round(peak.python)},
    }  # fmt: skip


def check(place: Path, rows: int, ts_sum: int, timeout_s: float) -> None:
    """Compare the table's rows, keys and sum of timestamps as Hudi on Spark reads them. BenchError when they differ."""
    events = place / "count.jsonl"
    events.unlink(missing_ok=True)
    order = {
        "do": "count", "table": str(place / "table"), "events": str(events), "work": str(place / "count"),
        "bundle": str(home.bundle(HUDI)),
    }  # fmt: skip
    run(Writer(HUDI_SPARK, "bulk_insert"), order, place / "count.log", timeout_s)
    (found,) = [e for e in read_events(events) if e["event"] == "counted"]
    if (found["rows"], found["keys"], found["ts"]) != (rows, rows, ts_sum):
        raise BenchError(f"{place} has {found}, not {rows:,} rows and keys with {ts_sum}")


def continue_stream(given: Input, place: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Continue our table with the updates; the figures. BenchError when its rows are wrong then."""
    peak = run(US, stream_order(given, place, args.table_type), place / "stream.log", args.timeout)
    events = read_events(place / "stream.jsonl")
    seconds = [e["seconds"] for e in events if e["event"] == "batch"]
    check(place, given.rows, given.ts_sum_after, args.timeout)
    return {
        "kind": "bulk-load-stream", "rows": given.rows, "table_type": args.table_type, "records": args.records,
        "index_seconds": next(e["bootstrap_seconds"] for e in events if e["event"] == "ready"),
        "first_batch_seconds": seconds[0], "median_seconds": statistics.median(seconds[1:] or seconds),
        "peak_mib": {"jvm": round(peak.jvm), "python": round(peak.python)},
    }  # fmt: skip


def as_table(lines: Sequence[dict[str, Any]]) -> Table:
    """The loads as a table."""
    table = Table("writer", "seconds", "rows/s", "files", "MiB", "files of MiB", "peak MiB")
    for line in lines:
        sizes = " / ".join(f"{line[name] / _MIB:.0f}" for name in ("least_file", "median_file", "greatest_file"))
        table.add_row(
            line["writer"], f"{line['seconds']:.1f}", f"{line['rows_per_second']:,.0f}", str(line["files"]),
            f"{line['bytes'] / _MIB:,.0f}", sizes, f"{sum(line['peak_mib'].values()):,}",
        )  # fmt: skip
    return table


def main(argv: Sequence[str] | None = None) -> None:
    """Make the input, load it with each writer, continue ours, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="(default: %(default)s)")
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--records", type=int, default=100_000, help="of a batch of the stream")
    parser.add_argument("--batches", type=int, default=5, help="of the stream")
    parser.add_argument("--table-type", choices=TABLE_TYPES, default="MERGE_ON_READ")
    parser.add_argument("--writers", nargs="+", type=Writer.parse, default=list(WRITERS), metavar="ENGINE:INDEX")
    parser.add_argument("--timeout", type=float, default=3600.0, metavar="S", help="of a process")
    parser.add_argument("--keep", action="store_true", help="keep the tables")
    args = parser.parse_args(argv)
    home.set_up([], delta=any(writer.name == DELTA_RS for writer in args.writers))
    work = args.out.absolute() / "bulk-load"
    results = args.out.absolute() / "results.jsonl"
    console = Console(width=150)
    given = make_input(work / "input", args.rows, args.partitions, args.batches, args.records)
    console.print(f"{args.rows:,} rows in {len(list((work / 'input' / 'load').iterdir()))} files")
    lines = []
    for writer in args.writers:
        place = work / str(writer).replace(":", "-")
        lines.append(load(writer, given, place, args))
        append_lines(results, lines[-1:])
        console.print(as_table(lines[-1:]))
        if writer == US:
            after = continue_stream(given, place, args)
            append_lines(results, [after])
            console.print(
                f"then a stream: index in {after['index_seconds']:.1f} s, first batch {after['first_batch_seconds']:.1f} s, "
                f"the others {after['median_seconds']:.2f} s (median)"
            )
        if not args.keep:
            shutil.rmtree(place)
    console.print(as_table(lines))


if __name__ == "__main__":
    main()
