"""How a run shows itself, on a terminal and in a log."""

from __future__ import annotations

import io
import logging
from dataclasses import replace

import pytest
from rich.text import Text

from tagstream.streaming.batch.report import COUNTS, KINDS, BatchReport, RunTotals, line, size, summary
from tagstream.streaming.monitor.progress import LOG, Progress, fitting

REPORT = BatchReport(
    batch_id=7, instant="20240102030405006", replayed=False, records=12_000, inserts=7_000, updates=4_000, deletes=900,
    moves=50, late=30, superseded=15, unknown_deletes=3, quarantined=2, files=8, bytes=3 << 20, seconds=2.0,
    phases={"prepare": 0.25, "tasks": 1.5, "commit": 0.25}, index_keys=1_234_567, index_tombstones=12,
    index_bytes=25 << 20, lag=4_321,
)  # fmt: skip


def test_one_line_a_batch() -> None:
    assert line(REPORT) == (
        "batch 7 (20240102030405006) 12,000 records in 2.0 s (6,000/s): 7,000 inserts, 4,000 updates, 900 deletes, "
        "50 moves, 30 late, 15 superseded, 3 unknown deletes, 2 quarantined; 8 files, 3.0 MiB; index 1,234,567 keys, "
        "25.0 MiB; lag 4,321 "
        "[prepare 0.25 s, tasks 1.50 s, commit 0.25 s]"
    )
    assert "replayed in 2.0 s, the table already had it" in line(replace(REPORT, replayed=True))
    assert "nothing committed" in line(replace(REPORT, instant=None))
    assert "lag" not in line(replace(REPORT, lag=None))
    assert replace(REPORT, seconds=0.0).rate == 0.0


def test_sums_leave_replayed_batches_out() -> None:
    totals = RunTotals()
    for report in (replace(REPORT, batch_id=6, replayed=True), REPORT, replace(REPORT, batch_id=8, inserts=1)):
        totals.add(report)
    rows = dict(summary(totals))
    assert (rows["batches"], rows["inserts"], rows["quarantined"]) == ("2 (and 1 replayed)", "7,001", "4")
    assert rows["unknown deletes"] == "6"
    assert rows["time in batches"] == "4.0 s, 6,000 records/s"
    assert rows["bytes"] == "6.0 MiB"
    assert rows["index"] == "1,234,567 keys, 12 tombstones, 25.0 MiB"
    assert dict(summary(RunTotals()))["batches"] == "0"


def test_every_record_has_one_kind() -> None:
    assert sum(getattr(REPORT, kind) for kind in KINDS) == REPORT.records
    assert set(KINDS) < set(COUNTS)


def test_sizes() -> None:
    assert [size(n) for n in (0, 1023, 1024, 5 << 30, 3 << 40)] == ["0 B", "1023 B", "1.0 KiB", "5.0 GiB", "3.0 TiB"]


def test_a_log_gets_one_line_a_batch_and_the_summary() -> None:
    out = io.StringIO()
    with Progress(out, "orders", lambda: 0.0) as progress:
        progress.batch(REPORT)
        progress.lag(3)
        logging.getLogger("tagstream").warning("careful")
    told = out.getvalue().splitlines()
    assert len(told) == 3
    assert "INFO tagstream: batch 7 (" in told[0]
    assert "WARNING tagstream: careful" in told[1]
    assert "end of run: batches 1, records 12,000, inserts 7,000" in told[2]
    assert LOG.handlers == []


def test_a_terminal_gets_a_live_line_and_a_table() -> None:
    out, now = io.StringIO(), [0.0]
    with Progress(out, "orders", lambda: now[0], live=True) as progress:
        assert progress._shown() == Text(), "the JVM writes to the terminal while it starts"
        progress.lag(12)
        now[0] = 100.0
        assert progress._line().plain == "orders: waiting for records · lag 12"
        progress.begin(7)
        now[0] = 138.0
        assert progress._line().plain == "orders: batch 7, 38 s · lag 12"  # from the batch's begin, not the query's
        progress.batch(REPORT)
        progress.lag(99)
        progress.begin(8)
        now[0] = 145.0
        assert progress._line().plain == "orders: batch 8, 7 s · last commit 7 s ago · lag 99 · 6,000 records/s"
        progress.lag(None)
        assert "lag" not in progress._line().plain
    told = " ".join(out.getvalue().split())
    assert "7,000" in told
    assert "quarantined;" in told  # a batch with bad records is worth a line of its own


@pytest.mark.parametrize("width", [20, 40, 80, 120])
def test_the_live_line_fits_and_cuts_nothing_but_a_long_title(width: int) -> None:
    parts = [
        "batch 12345, 38 s",
        "last commit 12 s ago",
        "lag 1,234,567",
        "6,000 records/s",
        "index 1,234,567 keys 25.0 MiB",
    ]
    for title in ("orders", "a table of a very long name, longer than a line of any terminal is " * 3):
        line_ = fitting(title, parts, width)
        assert len(line_) <= max(width, 8 + 2 + len(parts[0]))
        assert all(part in parts for part in line_.partition(": ")[2].split(" · "))


def test_what_was_done_is_said_when_the_run_fails_too() -> None:
    out = io.StringIO()
    with pytest.raises(RuntimeError), Progress(out, "orders", lambda: 0.0) as progress:
        progress.batch(REPORT)
        raise RuntimeError
    assert "end of run" in out.getvalue()
    out = io.StringIO()
    with pytest.raises(RuntimeError), Progress(out, "orders", lambda: 0.0):
        raise RuntimeError
    assert out.getvalue() == ""


def test_a_log_is_not_silent_until_the_first_batch_is_done() -> None:
    out = io.StringIO()
    with Progress(out, "orders", lambda: 0.0) as progress:
        progress.step("starting Spark")
        progress.begin(7)
        progress.batch(REPORT)
        progress.begin(8)
    told = [line.split("tagstream: ")[1] for line in out.getvalue().splitlines()]
    assert told[:2] == ["starting Spark", "batch 7 begins, the first batch of this run"]
    assert len(told) == 4, "the batch, and the end of the run: later batches are told when they are done"
    out = io.StringIO()
    with Progress(out, "orders", lambda: 0.0, live=True) as progress:
        progress.step("starting Spark")
        progress.begin(7)
    assert "starting Spark" not in out.getvalue() and "begins" not in out.getvalue()
