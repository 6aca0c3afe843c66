"""The tables that the writers continue: made once from a workload's existing rows, then copied.

Real Hudi on Spark makes the Hudi tables. A table of another format is made by the peer itself.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.inputs.event_rows import json_lines
from bench.inputs.workload import Workload
from bench.peers import home
from bench.writers.case import DELTA_RS, HUDI_SPARK, OLD_VERSION, Writer
from bench.writers.command import command, environment
from bench.writers.process import run_process
from bench.writers.run import HUDI, METADATA_OPTIONS, TABLE_NAME, codec_option, columns_of, index_options

_ROWS_PER_TASK = 250_000  # of the bulk_insert; a task writes a file for each of its partitions


# The options of a Paimon table: its defaults for upserts across partitions.
_PAIMON_TABLE = {"bucket": "-1", "merge-engine": "deduplicate", "file.format": "parquet"}


def base_of(
    writer: Writer, workload: Workload, folder: Path, table_type: str, *, codec: str, cache: Path, timeout_s: float,
    version: int = OLD_VERSION,
) -> Path:  # fmt: skip
    """The table that a writer continues, in the writer's format. BenchError when it cannot be made."""
    if writer.table_format == "hudi":
        return base_table(
            workload, folder, table_type, bucketed=writer.bucketed, codec=codec, cache=cache, timeout_s=timeout_s,
            version=writer.version(version), metadata=writer.metadata,
        )  # fmt: skip
    table = cache / f"{writer.table_format}-{codec}-{workload.load_name}"
    if writer.name == DELTA_RS:
        order: dict[str, Any] = {
            "do": "load",
            "rows": str(folder / "load.parquet"),
            "options": codec_option(writer, codec),
        }
        return _made(table, writer, order, timeout_s)
    kinds = columns_of(folder)
    order = {"create": True, "columns": list(kinds), "types": list(kinds.values())}
    order["options"] = {**codec_option(writer, codec), **_PAIMON_TABLE}
    return _made(table, writer, order, timeout_s, folder / "load.parquet")


def base_table(
    workload: Workload, folder: Path, table_type: str, *, bucketed: bool, codec: str, cache: Path, timeout_s: float,
    version: int = OLD_VERSION, metadata: bool = False,
) -> Path:  # fmt: skip
    """The Hudi table, made if it does not exist. BenchError when Hudi fails."""
    shape = "buckets" if bucketed else "plain"
    writer = Writer(HUDI_SPARK, "BUCKET" if bucketed else "GLOBAL_SIMPLE")
    order = {
        "do": "load",
        "bundle": str(home.bundle(HUDI)),
        "name": TABLE_NAME,
        "table_type": table_type,
        "table_version": version,
        "parallelism": max(4, workload.keys // _ROWS_PER_TASK),
        "options": {**codec_option(writer, codec), **index_options(writer), **(METADATA_OPTIONS if metadata else {})},
        "rows": str(folder / "load.parquet"),
    }
    shape += "-metadata" * metadata
    table = cache / f"{table_type.lower()}-{shape}-{codec}-v{version}-{workload.load_name}"
    return _made(table, writer, order, timeout_s)


def _made(table: Path, writer: Writer, order: dict[str, Any], timeout_s: float, as_lines: Path | None = None) -> Path:
    """The table, made by the writer's program if it does not exist. It is renamed into place when it is complete.

    ``as_lines``: write the rows as a file of JSON lines, for a program that reads nothing else.
    """
    if table.is_dir():
        return table
    place = table.with_name("." + table.name)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if as_lines is not None:
        order["files"] = [str(_lines_of(as_lines, place / "load.json"))]
    order |= {"work": str(place / "work"), "events": str(place / "events.jsonl"), "table": str(place / "table")}
    (place / "order.json").write_text(json.dumps(order, indent=1), "utf-8")
    run_process(command(writer, place / "order.json"), environment(writer), place / "writer.log", timeout_s)
    (place / "table").rename(table)
    shutil.rmtree(place, ignore_errors=True)
    return table


def _lines_of(rows: Path, lines: Path) -> Path:
    with lines.open("wb") as out:
        for batch in pq.ParquetFile(rows).iter_batches(100_000):
            out.write(json_lines(pa.Table.from_batches([batch])))
    return lines
