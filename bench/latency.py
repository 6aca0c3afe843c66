"""The fixed cost of a batch, step by step: `python -m bench.latency --keys 2000000`.

Batches of one record over a table of K keys, through the job's own entry points. A batch's time is Spark's, from the trigger
to its commit log. The steps are Spark's own durations, the sink's, and from Spark's event log the stages (decode, tag, and
write where the driver does not write itself), which no report of a running query lists separately. Prints the median of
each step after the warm-up.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.base_tables import base_table
from bench.inputs.lines import append_lines
from bench.inputs.workload import Workload, make_workload
from bench.writers.case import TABLE_TYPES, WARM_UP_ONE_ROW, Case, Writer, batch_lines, read_events
from bench.writers.command import command, environment
from bench.writers.process import run_process
from bench.writers.run import order_of, prepare
from bench.writers.verdict import judge

STAGES = ("decode", "tag", "write")
# Spark's names of a batch's parts, in their order, and the names in the printed table
BEFORE = {
    "latestOffset": "list the source, log what is new",
    "walCommit": "write the offset log",
    "getBatch": "plan the batch",
    "queryPlanning": "plan the batch",
    "check": "look at the lease and the timeline",
    "prepare": "pin the profile, request the instant",
}
AFTER = {
    "commit": "publish files, manifest and instant",
    "addBatch, the rest": "around the sink (Spark, py4j)",
    "commitOffsets": "write the commit log",
}


@dataclass
class BatchStages:
    """Milliseconds since 1970 of a batch's stages, in their order."""

    began: list[int] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)


def read_stages(event_log: Iterable[str]) -> dict[int, BatchStages]:
    """Stages by batch from the lines of Spark's event log."""
    batch_of: dict[int, int] = {}
    found: dict[int, BatchStages] = {}
    for line in event_log:
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart":
            batch = (event.get("Properties") or {}).get("streaming.sql.batchId")
            if batch is not None:
                batch_of |= dict.fromkeys(event["Stage IDs"], int(batch))
        elif event["Event"] == "SparkListenerStageCompleted":
            stage = event["Stage Info"]
            if stage["Stage ID"] in batch_of and "Completion Time" in stage:
                stages = found.setdefault(batch_of[stage["Stage ID"]], BatchStages())
                stages.began.append(stage["Submission Time"])
                stages.ended.append(stage["Completion Time"])
    return found


def steps_of(batch: dict[str, Any], stages: BatchStages) -> dict[str, float]:
    """Seconds of each step of one batch, in order. Their sum is the sum of Spark's parts."""
    phases: dict[str, float] = batch["phases"]
    steps: dict[str, float] = {}
    for name, step in BEFORE.items():
        steps[step] = steps.get(step, 0.0) + phases.get(name, 0.0)
    spans = [(b - a) / 1000 for a, b in zip(stages.began, stages.ended, strict=True)]
    if len(spans) not in (len(STAGES), len(STAGES) - 1):  # the driver writes small batches
        raise ValueError(f"batch {batch['batch']} ran {len(spans)} stages and not {', '.join(STAGES)}")
    for name, span in zip(STAGES, spans, strict=False):
        steps[f"stage: {name}"] = span
    steps["around the stages (plan, schedule, collect, writing in the driver)"] = max(
        0.0, phases.get("tasks", 0.0) - sum(spans)
    )
    for name, step in AFTER.items():
        steps[step] = phases.get(name, 0.0)
    steps["the rest of the trigger"] = max(0.0, batch["seconds"] - sum(steps.values()))
    return steps


def measure(case: Case, timeout_s: float) -> list[dict[str, Any]]:
    """Run the case and return a line per batch after the warm-up. BenchError when it could not be measured."""
    prepare(case)
    logs = case.place / "spark-events"
    logs.mkdir()
    spark = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": logs.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    order = case.place / "order.json"
    order.write_text(json.dumps(order_of(case) | {"spark": spark}, indent=1), "utf-8")
    run_process(command(case.writer, order), environment(case.writer), case.place / "writer.log", timeout_s)
    batches = batch_lines(case, read_events(case.events))
    (log,) = [path for path in logs.iterdir() if not path.name.startswith(".")]
    stages = read_stages(log.read_text("utf-8").splitlines())
    right = judge(case, timeout_s).right
    return [
        {**batch, "kind": "latency", "steps": steps_of(batch, stages[batch["batch"]]), "right": right}
        for batch in batches[WARM_UP_ONE_ROW:]
    ]


def as_table(lines: Sequence[dict[str, Any]]) -> Table:
    """Medians over the batches."""
    first = lines[0]
    seconds = [line["seconds"] for line in lines]
    table = Table(
        title=f"{first['table_type']}, {first['keys']:,} keys, one row per batch, {len(lines)} batches: median "
        f"{statistics.median(seconds) * 1000:,.0f} ms, least {min(seconds) * 1000:,.0f}, greatest {max(seconds) * 1000:,.0f}"
    )
    table.add_column("step")
    table.add_column("ms", justify="right")
    for step in first["steps"]:
        table.add_row(step, f"{statistics.median(line['steps'][step] for line in lines) * 1000:,.0f}")
    return table


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; exit code 1 when the table is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out", type=Path, default=Path("out/bench"), help="cache, logs, results (default: %(default)s)"
    )
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--batches", type=int, default=30, help=f"the first {WARM_UP_ONE_ROW} are not counted")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--table-types", nargs="+", choices=TABLE_TYPES, default=list(TABLE_TYPES))
    parser.add_argument("--case-timeout", type=float, default=1800.0, metavar="S")
    args = parser.parse_args(argv)
    out, workload = args.out.absolute(), Workload("one-row", args.keys, 1, args.batches)
    folder = make_workload(workload, out / "cache")
    wrong = 0
    for run in range(1, args.runs + 1):
        for table_type in args.table_types:
            base = base_table(
                workload, folder, table_type, bucketed=False, codec="zstd", cache=out / "cache" / "tables",
                timeout_s=args.case_timeout,
            )  # fmt: skip
            place = out / "cases" / f"latency-{args.keys}-{table_type}-{run}".lower()
            case = Case(run, workload, folder, table_type, Writer.parse("tagstream:STATE"), base, place)
            lines = measure(case, args.case_timeout)
            append_lines(out / "results.jsonl", lines)
            Console(width=120 if not sys.stdout.isatty() else None).print(as_table(lines))
            wrong += not lines[0]["right"]
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
