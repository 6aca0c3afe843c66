"""A run's status that is told things by hand, with a clock of its own."""

from __future__ import annotations

from collections.abc import Mapping

from tagstream.streaming.batch.report import KINDS, BatchReport
from tagstream.streaming.monitor.health import Thresholds
from tagstream.streaming.monitor.run_status import RunStatus
from tagstream.streaming.monitor.snapshot import About

HOSTILE = '<script>alert("x")</script>&\x1b[31m\u202eevil\x00'
ABOUT = About(
    "events", "orders-topic", "/t/events", "/t/ck", "MERGE_ON_READ", "STATE", "kafka", "0.1.0", "4.2.0", "3.11"
)


class Clock:
    """Epoch milliseconds that stand still until they are moved."""

    def __init__(self, now_ms: int = 1_800_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def after(self, seconds: float) -> None:
        self.now_ms += int(seconds * 1000)


def run_status(clock: Clock, about: About = ABOUT, limits: Thresholds | None = None) -> RunStatus:
    return RunStatus(about, clock, limits or Thresholds())


def report(
    batch_id: int,
    *,
    records: int = 1_000,
    seconds: float = 2.0,
    instant: str | None = "20270115080000000",
    replayed: bool = False,
    groups: Mapping[int, Mapping[str, int]] | None = None,
    **kinds: int,
) -> BatchReport:
    """A batch whose kinds add up: what ``kinds`` leaves are inserts."""
    counts = dict.fromkeys(KINDS, 0) | kinds
    counts["inserts"] += records - sum(counts.values())
    phases = {"check": 0.1 * seconds, "prepare": 0.1 * seconds, "tasks": 0.7 * seconds, "commit": 0.1 * seconds}
    return BatchReport(
        batch_id=batch_id, instant=instant, replayed=replayed, records=records, **counts, files=3, bytes=4096,
        seconds=seconds, phases=phases, index_keys=0, index_tombstones=0, index_bytes=0, lag=None, groups=groups or {},
    )  # fmt: skip
