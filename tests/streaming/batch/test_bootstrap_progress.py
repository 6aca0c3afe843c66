"""How the loading of the index shows itself."""

from __future__ import annotations

import io
from dataclasses import replace

from tagstream.bootstrap.report import BootstrapProgress
from tagstream.streaming.monitor.progress import Progress

SCAN = BootstrapProgress(
    stage="scan", done=3, total=10, keys=300_000, share=0.3, seconds=3.0, files=12, total_files=40
)  # fmt: skip
LOAD = replace(SCAN, stage="load", done=8, total=8, keys=1_000_000, share=1.0, files=40, seconds=2.0)


def test_speed_and_time_left() -> None:
    assert (SCAN.rate, SCAN.seconds_left) == (100_000.0, 7.0 + 10.0)  # the load takes as long as the scan
    assert (LOAD.rate, LOAD.seconds_left) == (500_000.0, 0.0)
    assert replace(SCAN, share=0.0, keys=0).seconds_left is None
    resumed = replace(SCAN, resumed_share=0.15)
    assert (round(resumed.rate), round(resumed.seconds_left or 0)) == (50_000, 14 + 20)


def test_a_log_gets_a_line_for_each_tenth() -> None:
    out = io.StringIO()
    with Progress(out, "orders", lambda: 0.0) as progress:
        progress.without_batches()
        for at in (SCAN, replace(SCAN, share=0.33), LOAD):
            progress.loading(at)
    told = [line.split("tagstream: ")[1] for line in out.getvalue().splitlines()]
    assert told == [
        "loading the index, step 1 of 2, reading files 30% · 12/40 files · 300,000 keys · 100,000 keys/s · 17 s left, "
        "step 2 included",
        "loading the index, step 2 of 2, loading key groups 100% · 8/8 groups · 40/40 files · 1,000,000 keys · "
        "500,000 keys/s · 0 s left",
    ]


def test_a_terminal_gets_a_bar_and_then_the_batches() -> None:
    out = io.StringIO()
    with Progress(out, "orders", lambda: 0.0, live=True) as progress:
        progress.loading(replace(SCAN, seconds=300.0))
        assert progress._live is not None
        progress._live.refresh()
        progress.loading(LOAD)
        progress.lag(None)
        progress._live.refresh()
    told = " ".join(out.getvalue().split())
    assert "orders: loading the index, step 1 of 2, reading files" in told
    assert "12/40 files · 300,000 keys · 1,000 keys/s · 28 min 20 s left, step 2 included" in told
    assert "30%" in told and "━" in told
    assert "orders: waiting for records" in told  # once it is loaded the line of the batches is back
