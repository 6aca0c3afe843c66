"""What a thousand small batches came to is a table and a plot; the tables of its checks stay as they were."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from bench.report.small_batches_plot import plot
from bench.small_batches import as_table
from bench.writers.small_batches import SmallBatches
from tests.support import events as ev

SAMPLES = [
    {"batch": n, "logs": n % 5, "files": 30, "bytes": 1 << 20, "instants": n, "driver_mib": 160.0} for n in (1, 4, 8)
]


def test_a_row_for_each_figure() -> None:
    end = {
        "seconds": [0.5] * 8, "early": 0.5, "late": 0.6, "logs": 4, "files": 30, "mib": 1.0, "instants": 8,
        "driver_mib": [150.0, 160.0], "starts": [(4, 11.0), (8, 12.5)], "checks": 3, "read_by_hudi": 3, "right": False,
    }  # fmt: skip
    console = Console(width=120, record=True)
    console.print(as_table([("MERGE_ON_READ", end)]))
    text = console.export_text()
    for told in ("0.60 (1.20 x)", "11.0, 12.5", "3, WRONG", "by real Hudi"):
        assert told in text


def test_a_plot_of_two_tables(tmp_path: Path) -> None:
    runs = {name: ([0.5] * 8, SAMPLES, [(4, 11.0), (8, 12.5)]) for name in ("MERGE_ON_READ", "COPY_ON_WRITE")}
    plot(runs, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_events_are_made_again_for_each_check(tmp_path: Path) -> None:
    args = argparse.Namespace(batches=3, records=10, keys=20, seed=7)
    run = SmallBatches(args, tmp_path, "MERGE_ON_READ")
    files = run.write_input()
    lines = [line for path in files for line in path.read_text().splitlines()]
    assert len(files) == 3
    assert [e.row() for e in run.events(2)] == [ev.Event.of_message("", line).row() for line in lines[:20]]
