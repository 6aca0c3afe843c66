"""Prometheus metrics over HTTP, as a scraper sees them."""

from __future__ import annotations

import math
import socket
import urllib.request
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tagstream.streaming.progress.metrics import Metrics
from tagstream.table.errors import ConfigError
from tests.streaming.progress.test_progress import REPORT


@pytest.fixture
def served() -> Iterator[tuple[Metrics, list[float]]]:
    now = [1000.0]
    metrics = Metrics(0, clock=lambda: now[0])
    yield metrics, now
    metrics.close()


def scrape(metrics: Metrics) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {name: float(value) for name, value in (row.rsplit(" ", 1) for row in text.splitlines() if row[0] != "#")}


def test_what_a_scraper_sees(served: tuple[Metrics, list[float]]) -> None:
    metrics, now = served
    before = scrape(metrics)
    assert math.isnan(before["tagstream_lag_records"])
    assert math.isnan(before["tagstream_last_commit_age_seconds"])
    assert before['tagstream_rows_total{kind="late"}'] == 0
    metrics.batch(REPORT)
    metrics.batch(replace(REPORT, batch_id=8, seconds=3.0, index_keys=9))
    metrics.lag(17)
    now[0] += 5
    after = scrape(metrics)
    assert after["tagstream_lag_records"] == 17
    assert after['tagstream_rows_total{kind="inserts"}'] == 14_000
    assert after['tagstream_rows_total{kind="late"}'] == 60
    assert after['tagstream_rows_total{kind="quarantined"}'] == 10
    assert after["tagstream_records_total"] == 24_000
    assert (after["tagstream_batch_seconds_sum"], after["tagstream_batch_seconds_count"]) == (5.0, 2)
    assert (after["tagstream_index_keys"], after["tagstream_index_bytes"]) == (9, 25 << 20)
    assert after["tagstream_last_commit_age_seconds"] == 5


def test_a_replayed_batch_wrote_nothing(served: tuple[Metrics, list[float]]) -> None:
    metrics, _ = served
    metrics.batch(replace(REPORT, replayed=True))
    found = scrape(metrics)
    assert (found["tagstream_records_total"], found["tagstream_batches_total"]) == (0, 0)
    assert found["tagstream_replayed_batches_total"] == 1
    assert found["tagstream_index_keys"] == REPORT.index_keys
    assert math.isnan(found["tagstream_last_commit_age_seconds"])


def test_a_taken_port_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--metrics-port {port}: cannot listen there"):
            Metrics(port)


def test_only_the_address_that_was_asked_for_is_served() -> None:
    metrics = Metrics(0)
    try:
        with socket.create_connection(("127.0.0.1", metrics.port), 5):
            pass
        with pytest.raises(OSError):  # another address of this machine
            socket.create_connection(("127.0.0.2", metrics.port), 5)
    finally:
        metrics.close()
    everywhere = Metrics(0, "0.0.0.0")
    try:
        with socket.create_connection(("127.0.0.2", everywhere.port), 5):
            pass
    finally:
        everywhere.close()
    with pytest.raises(ConfigError, match="on --metrics-host 203.0.113.7"):
        Metrics(0, "203.0.113.7")


def test_two_runs_in_one_process_do_not_meet(served: tuple[Metrics, list[float]]) -> None:
    other = Metrics(0)
    served[0].batch(REPORT)
    assert scrape(other)["tagstream_records_total"] == 0
    other.close()
