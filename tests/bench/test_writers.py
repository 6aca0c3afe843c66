"""Cases of a comparison: the processes they run in, which writers fit which workload, and one real case of ours."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.compare import parser, planned
from bench.inputs.workload import Workload
from bench.writers.case import BenchError, Writer
from bench.writers.process import reason, run_process
from bench.writers.run import run_case
from bench.writers.verdict import judge
from tests.bench.comparing import case_of
from tests.support.process import process_state

STARTS_ANOTHER = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], preexec_fn=os.setpgrp)
print(child.pid, flush=True)
"""


def run(program: str, log: Path, timeout_s: float = 60.0) -> float:
    return run_process([sys.executable, "-c", program], os.environ, log, timeout_s).python


def test_a_failed_process_is_named_with_its_last_error(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"exit code 1: ValueError: no such thing \(all in .*log\)"):
        run("raise ValueError('no such thing')", tmp_path / "log")


def test_the_cause_in_a_java_trace_comes_before_the_end_of_the_connection(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "HoodieException: no\n  at x\nCaused by: ClassNotFoundException: C\n  ... 9 more\nOSError: refused\n"
    )
    assert reason(log) == "Caused by: ClassNotFoundException: C"
    log.write_text("all is well\nthe end\n")
    assert reason(log) == "the end"
    log.write_text("")
    assert reason(log) == "(it said nothing)"


def test_what_a_process_has_started_ends_with_it(tmp_path: Path) -> None:
    run(STARTS_ANOTHER, tmp_path / "log")
    assert process_state(int((tmp_path / "log").read_text())) in ("", "Z", "X")


def test_a_process_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="not done after 1 s"):
        run(STARTS_ANOTHER + "child.wait()", tmp_path / "log", timeout_s=1)
    assert process_state(int((tmp_path / "log").read_text())) in ("", "Z", "X")


def test_the_peak_of_memory_is_seen(tmp_path: Path) -> None:
    held = "import time\nx = bytearray(200 << 20)\nend = time.monotonic() + 2.5\nwhile time.monotonic() < end: pass"
    assert 200 < run(held, tmp_path / "log") < 400


def test_cases_are_interleaved_and_only_what_can_be_right_is_run() -> None:
    writers = ["tagstream:STATE", "hudi-spark:BUCKET", "hudi-spark:bulk_insert"]
    args = parser().parse_args(
        ["--runs", "2", "--keys", "10", "--records", "5", "--table-types", "MERGE_ON_READ", "--workloads", "mixed",
         "insert", "update", "one-row", "--writers", *writers]
    )  # fmt: skip
    once = [
        ("mixed", "tagstream:STATE"),
        *(("insert", writer) for writer in writers),
        ("update", "tagstream:STATE"),
        ("update", "hudi-spark:BUCKET"),
        ("one-row", "tagstream:STATE"),
    ]
    assert [(p.run, p.workload.name, str(p.writer)) for p in planned(args)] == [(r, *p) for r in (1, 2) for p in once]
    assert {(p.workload.records, p.workload.batches) for p in planned(args)} == {(5, 8), (1, 25)}


def test_a_writer_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no writer 'hudi-flink:STATE'; there are tagstream:STATE, .*FLINK_STATE"):
        Writer.parse("hudi-flink:STATE")


@pytest.mark.extended("runs the benchmarks' programs")
@pytest.mark.spark
def test_our_writer_is_measured_and_its_rows_are_checked(tmp_path: Path) -> None:
    case = case_of(tmp_path, Workload("mixed", 2000, 500, 3, partitions=3), "tagstream:STATE")
    *batches, summary = run_case(case, 300)
    assert [(line["kind"], line["batch"]) for line in batches] == [("batch", 0), ("batch", 1), ("batch", 2)]
    for line in batches:
        assert 0 < line["phases"]["tasks"] < line["seconds"]
        assert sum(line["phases"].values()) == pytest.approx(line["seconds"], rel=0.2)
    assert (summary["rows"], summary["right"], summary["checked_by"]) == (2300, True, "hudi-rs")
    assert summary["median_seconds"] == batches[2]["seconds"]
    assert 0 < summary["bootstrap_seconds"] < summary["start_seconds"]
    assert min(summary["peak_mib"].values()) > 100
    # The check can fail: a row of the expectation that is another one is found.
    expected = pq.read_table(case.folder / "expected.parquet")
    other = expected.set_column(2, "ts", pa.array([1, *expected["ts"].to_pylist()[1:]]))
    pq.write_table(other, tmp_path / "expected.parquet")
    verdict = judge(replace(case, folder=tmp_path), 60)
    assert (verdict.right, "1 changed" in str(verdict.why) or "'ts': 1" in str(verdict.why)) == (False, True)
