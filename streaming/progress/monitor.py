"""What the job shows while it runs: batch reports to the progress line and the metrics, and the source's lag."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from tagstream.streaming.progress.metrics import Metrics
from tagstream.streaming.progress.progress import Progress
from tagstream.streaming.progress.report import BatchReport


class Monitor:
    """``progress`` is the terminal or the log; ``metrics`` is None when no port was asked for."""

    def __init__(self, progress: Progress, metrics: Metrics | None) -> None:
        self._progress = progress
        self._metrics = metrics
        self._lag: int | None = None

    def on_report(self, report: BatchReport) -> None:
        """A batch is done (called in the sink's thread)."""
        shown = replace(report, lag=self._lag)
        self._progress.batch(shown)
        if self._metrics is not None:
            self._metrics.batch(shown)

    def tick(self, query: StreamingQuery) -> None:
        """Look at Spark's newest progress for the lag (records the source has and no batch has taken)."""
        progress = query.lastProgress
        if progress is None:
            return
        self._lag = source_lag(progress["sources"][0])
        self._progress.lag(self._lag)
        if self._metrics is not None:
            self._metrics.lag(self._lag)


def source_lag(source: Any) -> int | None:
    """Records between the batch's end and the source's newest offsets; None for files, which do not tell."""
    end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
    if end is None or latest is None:
        return None
    return sum(max(0, offset - end.get(key, offset)) for key, offset in latest.items())


def _offsets(value: Any) -> dict[tuple[str, str], int] | None:
    if not isinstance(value, dict) or not all(isinstance(v, dict) for v in value.values()):
        return None
    return {(topic, part): int(offset) for topic, parts in value.items() for part, offset in parts.items()}
