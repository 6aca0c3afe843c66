"""How fast a compaction is, compared with real Hudi's of the same plan: `python -m bench.compaction --runs 3`.

Makes a merge-on-read table (not timed): `--groups` file groups with one base file each and `--logs` log files. Each log file
updates a `--share` of the group's rows and deletes one in a hundred of these. Then one plan over the whole table is executed
on copies of the table: here in one process, task by task, and by Hudi 1.2.0 on Spark with two cores. The first run of each
side is not counted, because pages and JVM are cold. Prints a Markdown table: seconds, processor seconds, and per processor
second the live rows and the MB read (base files and logs). The rows of both sides are compared at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.inputs.event_rows import avro_schema, event_rows, keys_of
from bench.inputs.lines import append_lines
from bench.peers import home
from bench.writers.case import read_events
from tagstream.table.file_group.names import instant_from_ms, new_file_id
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import MERGE_ON_READ, TableConfig
from tagstream.table.read.snapshot import read_snapshot
from tagstream.table.schema.schema import avro_json, avro_to_arrow
from tagstream.table.services.compaction import begin_compaction, compaction_tasks, complete_compaction
from tagstream.table.services.compaction_plan import schedule_compaction
from tagstream.table.services.options import CompactionOptions, Strategy
from tagstream.table.timeline.commit_metadata import CommitMetadata
from tagstream.table.timeline.instant import COMPACTION, DELTA_COMMIT
from tagstream.table.write import commit
from tagstream.table.write.file_writer import write_file_group
from tagstream.table.write.write_context import WriteContext, WriterOptions

_START_MS, _SEED, _MIB = 1_767_225_600_000, 7, 1 << 20
_PARTITIONS = 4
_KEY, _INSERT = "_hoodie_record_key", "_is_insert"
_OPTIONS = WriterOptions(inserts_to_base_files=True)


@dataclass(frozen=True)
class Run:
    """One execution of the plan."""

    who: str
    seconds: float
    cpu_seconds: float


def now_ms() -> int:
    """The machine's clock."""
    return time.time_ns() // 1_000_000


def make_table(folder: Path, args: argparse.Namespace) -> HoodieTable:
    """The table with its logs, and the plan on its timeline."""
    schema = avro_json(avro_schema(args.columns))
    config = TableConfig(
        name="bench", table_type=MERGE_ON_READ, record_key_fields=("id",), partition_fields=("part",),
        ordering_fields=("ts",), create_schema=schema, version=args.version,
    )  # fmt: skip
    table = HoodieTable.create(str(folder), config, _START_MS)
    random = np.random.default_rng(_SEED)
    for number in range(args.logs + 1):
        _write(table, schema, number, _batches(random, args, number))
    options = CompactionOptions(strategy=Strategy.UNBOUNDED)
    assert schedule_compaction(table, options, now_ms, force=True) is not None
    return table


def _batches(
    random: np.random.Generator, args: argparse.Namespace, number: int
) -> Iterator[tuple[int, pa.Table, pa.Table]]:
    """(group, upserts, deletes) of a commit. The first commit has all rows."""
    each, share = args.rows // args.groups, args.share
    for group in range(args.groups):
        chosen = np.arange(each) if number == 0 else np.sort(random.choice(each, int(each * share), replace=False))
        gone = chosen[::100] if number else chosen[:0]
        numbers = np.setdiff1d(chosen, gone) + group * each
        time_of = np.full(len(numbers), 1_700_000_000_000 + number)
        rows = event_rows(numbers, np.full(len(numbers), group % _PARTITIONS), time_of, args.columns, random)
        rows = rows.append_column(_KEY, rows["id"]).append_column(_INSERT, pa.array(np.full(len(numbers), number == 0)))
        orderings = pa.array(np.full(len(gone), 1_700_000_000_000 + number), pa.int64())
        yield group, rows, pa.table({_KEY: keys_of(gone + group * each), "_ordering": orderings})


def _write(table: HoodieTable, schema: str, number: int, batches: Iterator[tuple[int, pa.Table, pa.Table]]) -> None:
    timeline, view = table.timeline(), table.view()
    instant = instant_from_ms(_START_MS + 60_000 * (number + 1), table.config.timezone_utc)
    commit.request(table, instant, DELTA_COMMIT)
    commit.inflight(table, instant, DELTA_COMMIT)
    statuses = []
    for group, rows, gone in batches:
        partition, file_id = f"p{group % _PARTITIONS:02d}", new_file_id("bench", group)
        context = WriteContext(instant, DELTA_COMMIT, group, f"{group}-1-1", avro_to_arrow(schema), schema,
                               timeline.newest_completed, timeline, _OPTIONS)  # fmt: skip
        found = view.latest_slice(partition, file_id)
        statuses += write_file_group(table, context, partition, file_id, found, rows, gone)
    commit.publish_files(table, instant, statuses)
    at_ms = _START_MS + 60_000 * (number + 1) + 1_000
    metadata = CommitMetadata.build(statuses, {}, schema)
    commit.complete(table, instant, DELTA_COMMIT, metadata, clock_ms=lambda: at_ms)


def run_here(table: HoodieTable, codec: str = "gzip") -> Run:
    """Execute the plan in this process."""
    (plan,) = [i for i in table.timeline().pending if i.action == COMPACTION]
    started, cpu = time.monotonic(), time.process_time()
    begin_compaction(table, plan.time, now_ms)
    statuses = [task.run() for task in compaction_tasks(table, plan.time, 1, files=WriterOptions(codec=codec))]
    complete_compaction(table, plan.time, statuses, now_ms)
    return Run("here", time.monotonic() - started, time.process_time() - cpu)


def run_peer(work: Path, tables: list[Path], version: int, codec: str) -> list[Run]:
    """Execute the plans with real Hudi, all in one JVM."""
    work.mkdir()
    events = work / "events.jsonl"
    options = {
        "hoodie.write.table.version": str(version), "hoodie.write.auto.upgrade": "false", "hoodie.metadata.enable": "false",
        "hoodie.parquet.compression.codec": codec,
    }  # fmt: skip
    order = {
        "do": "compact", "work": str(work), "bundle": str(home.bundle(home.HUDI_VERSIONS[-1])), "events": str(events),
        "tables": [str(path) for path in tables], "options": options,
    }  # fmt: skip
    path = work / "order.json"
    path.write_text(json.dumps(order))
    program = Path(home.__file__).with_name("spark_program.py")
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    subprocess.run([str(home.python()), str(program), str(path)], check=True, env=env)
    done = [line for line in read_events(events) if line["event"] == "compacted"]
    return [Run("Hudi 1.2.0", line["seconds"], line["cpu_seconds"]) for line in done]


def content(path: Path) -> tuple[int, int]:
    """Rows, and the sum of their ordering values."""
    rows = read_snapshot(HoodieTable.open(str(path)), ["ts"])
    return rows.num_rows, pc.sum(rows["ts"]).as_py()


def main(argv: Sequence[str] | None = None) -> None:
    """Make the table, execute the plan on copies of it, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--logs", type=int, default=5)
    parser.add_argument("--share", type=float, default=0.05, help="of a group's rows that each log changes")
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--version", type=int, default=9, choices=[6, 8, 9])
    parser.add_argument("--codec", default="gzip", help="of the new base files; Hudi's default is gzip")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only-here", action="store_true", help="leave real Hudi out")
    parser.add_argument("--json", type=Path, help="add the figures to this file of JSON lines")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="bench-compaction-") as name:
        folder = Path(name)
        made = folder / "table"
        table = make_table(made, args)
        inputs = [task.bytes for task in compaction_tasks(table, table.timeline().pending[0].time, 0)]
        wanted = content(made)
        print(f"{wanted[0]:,} live rows, {sum(inputs) / _MIB:,.0f} MiB in {len(inputs)} slices, version {args.version}")
        tables = {who: [folder / f"{who}{n}" for n in range(args.runs + 1)] for who in ("here", "hudi")}
        for paths in tables.values():
            for path in paths:
                shutil.copytree(made, path)
        runs = [run_here(HoodieTable.open(str(path)), args.codec) for path in tables["here"]][1:]
        if not args.only_here:
            home.set_up()
            runs += run_peer(folder / "work", tables["hudi"], args.version, args.codec)[1:]
        print("\n| who | time | CPU s | rows a CPU s | MB a CPU s |\n|---|---|---|---|---|")
        for who in dict.fromkeys(run.who for run in runs):
            mine = [run for run in runs if run.who == who]
            figures = _figures(who, mine, wanted[0], sum(inputs))
            print(
                f"| {who} | {figures['seconds']:.2f} s | {figures['cpu_seconds']:.2f} | "
                f"{figures['rows_per_cpu_second']:,.0f} | {figures['mb_per_cpu_second']:.1f} |"
            )
            append_lines(args.json, [figures])
        checked = [paths[-1] for who, paths in tables.items() if who == "here" or not args.only_here]
        assert all(content(path) == wanted for path in checked), "a compaction changed the rows"


def _figures(who: str, runs: list[Run], rows: int, size: int) -> dict[str, Any]:
    """Medians over the runs."""
    seconds = statistics.median(run.seconds for run in runs)
    cpu = statistics.median(run.cpu_seconds for run in runs)
    return {
        "kind": "compaction", "who": who, "runs": len(runs), "rows": rows, "bytes": size, "seconds": seconds,
        "cpu_seconds": cpu, "rows_per_cpu_second": rows / cpu, "mb_per_cpu_second": size / 1e6 / cpu,
    }  # fmt: skip


if __name__ == "__main__":
    main()
