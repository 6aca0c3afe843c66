"""The tables that the writers continue: made once by real Hudi on Spark from a workload's existing rows, then copied."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from bench.inputs.workload import Workload
from bench.peers import home
from bench.writers.case import HUDI_SPARK, Writer
from bench.writers.process import run_process
from bench.writers.run import HUDI, TABLE_NAME, TABLE_VERSION, command, environment, index_options

_ROWS_PER_TASK = 250_000  # of the bulk_insert; a task writes a file for each partition it has rows of


def base_table(
    workload: Workload, folder: Path, table_type: str, *, bucketed: bool, codec: str, cache: Path, timeout_s: float
) -> Path:
    """The table, made if it is not there; it appears by one rename when it is whole. BenchError when Hudi fails."""
    shape = "buckets" if bucketed else "plain"
    table = cache / f"{table_type.lower()}-{shape}-{codec}-v{TABLE_VERSION}-{workload.load_name}"
    if table.is_dir():
        return table
    place = cache / ("." + table.name)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    writer = Writer(HUDI_SPARK, "BUCKET" if bucketed else "GLOBAL_SIMPLE")
    order = {
        "do": "load",
        "bundle": str(home.bundle(HUDI)),
        "work": str(place / "work"),
        "events": str(place / "events.jsonl"),
        "name": TABLE_NAME,
        "table_type": table_type,
        "table_version": TABLE_VERSION,
        "parallelism": max(4, workload.keys // _ROWS_PER_TASK),
        "options": {"hoodie.parquet.compression.codec": codec, **index_options(writer)},
        "rows": str(folder / "load.parquet"),
        "table": str(place / "table"),
    }
    (place / "order.json").write_text(json.dumps(order, indent=1), "utf-8")
    run_process(command(writer, place / "order.json"), environment(writer), place / "writer.log", timeout_s)
    (place / "table").rename(table)
    shutil.rmtree(place, ignore_errors=True)
    return table
