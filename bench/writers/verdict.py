"""Whether a table has exactly the rows of its workload, by a reader that is not part of this project.

hudi-rs compares row by row. A table that it cannot read, or that does not fit in memory, is checked with Hudi on Spark:
rows, distinct keys and the sum of the ordering column. A peer's table of another format is read by the peer itself.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from bench.peers import home
from bench.writers.case import DELTA_RS, BenchError, Case, read_events
from bench.writers.command import FLINK_PEERS, command, environment, java
from bench.writers.process import run_process
from tests.support.compare import compare

IN_MEMORY_ROWS = 6_000_000


@dataclass(frozen=True)
class Verdict:
    """`right` None: the table could not be read; `why` has the reason."""

    rows: int | None
    right: bool | None
    by: str
    why: str | None = None


def judge(case: Case, timeout_s: float) -> Verdict:
    """Read the case's table."""
    expected = case.folder / "expected.parquet"
    if case.writer.table_format != "hudi":
        try:
            return _by_itself(case, expected, timeout_s)
        except BenchError as e:
            return Verdict(None, None, "nobody", str(e))
    why = f"more than {IN_MEMORY_ROWS:,} rows"
    if pq.read_metadata(expected).num_rows * case.workload.columns <= IN_MEMORY_ROWS * 8:
        answer = case.place / "hudi-rs.json"
        program = [sys.executable, "-m", "bench.writers.verdict", str(case.table), str(expected), str(answer)]
        env = dict(os.environ) | {"PYTHONPATH": str(home.PROJECT)}
        try:
            run_process(program, env, case.place / "hudi-rs.log", timeout_s)
            return Verdict(**json.loads(answer.read_text("utf-8")))
        except BenchError as e:
            why = f"hudi-rs: {e}"
    try:
        return _count(case, expected, timeout_s)
    except BenchError as e:
        return Verdict(None, None, "nobody", f"{why}; Hudi: {e}")


def _by_itself(case: Case, expected: Path, timeout_s: float) -> Verdict:
    """Compare key, partition and time of all rows, read by the peer's own reader."""
    out, order = case.place / "rows", case.place / "rows.json"
    asked = {"do": "rows", "table": str(case.table), "out": str(out), "work": str(case.place / "work")}
    order.write_text(json.dumps(asked), "utf-8")
    if case.writer.name == DELTA_RS:
        program = command(case.writer, order)
    else:
        program = java(FLINK_PEERS[case.writer.name], order, "PaimonRows")
    run_process(program, environment(case.writer), case.place / "rows.log", timeout_s)
    wanted = pq.read_table(expected)
    found = pq.read_table(out) if case.writer.name == DELTA_RS else csv.read_csv(out)
    found = found.select(wanted.column_names).cast(wanted.schema)
    wrong = compare(wanted, found, ["id"])
    return Verdict(found.num_rows, not wrong, case.writer.name, str(wrong) if wrong else None)


def _count(case: Case, expected: Path, timeout_s: float) -> Verdict:
    events, order = case.place / "count.jsonl", case.place / "count.json"
    order.write_text(json.dumps({
        "do": "count", "table": str(case.table), "events": str(events), "work": str(case.place / "work"),
        "bundle": str(home.bundle("1.2.0")),
    }), "utf-8")  # fmt: skip
    program = [str(home.python()), str(Path(home.__file__).with_name("spark_program.py")), str(order)]
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    run_process(program, env, case.place / "count.log", timeout_s)
    (counted,) = (e for e in read_events(events) if e["event"] == "counted")
    ts = pq.read_table(expected, columns=["ts"])["ts"]
    found = (counted["rows"], counted["keys"], counted["ts"])
    wanted = (len(ts), len(ts), pc.sum(ts).as_py())
    why = None if found == wanted else f"rows, keys, sum(ts) are {found}, not {wanted}"
    return Verdict(counted["rows"], why is None, "Hudi on Spark (counts)", why)


def by_hudi_rs(table: Path, expected: Path) -> Verdict:
    """Every row compared."""
    from tests.support.hudi_rs import read_table

    wanted = pq.read_table(expected)
    found = read_table(table, meta_columns=False)
    wrong = compare(wanted, found, ["id"])
    return Verdict(found.num_rows, not wrong, "hudi-rs", str(wrong) if wrong else None)


if __name__ == "__main__":
    verdict = by_hudi_rs(Path(sys.argv[1]), Path(sys.argv[2]))
    Path(sys.argv[3]).write_text(json.dumps(asdict(verdict)), "utf-8")
