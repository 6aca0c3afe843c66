"""The program that measures the status page's cost runs, and serves what it means to."""

from __future__ import annotations

from bench.status_cost import PATHS, full_status, measure
from tagstream.streaming.batch.report import KINDS


def test_every_path_is_measured() -> None:
    found = measure(2)
    assert set(found) == {f"/{path}" for path in PATHS}
    assert all(ms > 0 for ms in found.values())


def test_the_status_is_full() -> None:
    s = full_status().snapshot()
    assert (len(s.recent), len(s.groups), len(s.commits), len(s.warnings)) == (60, 1_024, 20, 20)
    assert sum(s.counts[kind] for kind in KINDS) == s.counts["records"]
