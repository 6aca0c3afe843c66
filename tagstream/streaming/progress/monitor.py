"""What the job shows while it runs: batch reports to the progress line and the metrics, and the source's lag."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Protocol

from pyspark.sql.streaming.query import StreamingQuery

from tagstream.bootstrap.report import BootstrapProgress
from tagstream.streaming.progress.report import BatchReport


class Watcher(Protocol):
    """Who else learns of it (``streaming.watch``)."""

    def batch(self, report: BatchReport) -> None:
        """A batch is done."""

    def lag(self, records: int | None) -> None:
        """Records the source holds that no batch has taken; None: unknown."""

    def loading(self, at: BootstrapProgress) -> None:
        """How far the loading of the index is."""


class RunWatcher(Watcher, Protocol):
    """A watcher that looks at Spark, too."""

    def query(self, run_id: str) -> None:
        """Spark's query has begun: jobs of its batches have ``run_id`` as their group."""


class Display(Watcher, Protocol):
    """What shows a run to people (``streaming.progress.progress``, or the lines of a log)."""

    def begin(self, batch_id: int) -> None:
        """A batch has begun."""


class Monitor:
    """``progress`` is the terminal or the log, ``watcher`` the status page and the metrics."""

    def __init__(self, progress: Display, watcher: RunWatcher) -> None:
        self._progress = progress
        self._watcher = watcher
        self._lag: int | None = None
        self._seen: Any = None
        self._query: StreamingQuery | None = None

    def on_report(self, report: BatchReport) -> None:
        """A batch is done (called in the sink's thread)."""
        shown = replace(report, lag=self._lag)
        self._progress.batch(shown)
        self._watcher.batch(shown)

    def loading(self, at: BootstrapProgress) -> None:
        """How far the loading of the index is."""
        self._progress.loading(at)
        self._watcher.loading(at)

    def tick(self, query: StreamingQuery) -> None:
        """Look at Spark's newest progress for the lag (records the source has and no batch has taken)."""
        if query is not self._query:
            self._query = query
            self._watcher.query(str(query.runId))
        progress = query.lastProgress
        if progress is None or progress["timestamp"] == self._seen:
            return
        self._seen = progress["timestamp"]
        self._lag = source_lag(progress["sources"][0])
        self._progress.lag(self._lag)
        self._watcher.lag(self._lag)


def source_lag(source: Any) -> int | None:
    """Records between the batch's end and the source's newest offsets; None for files, which do not tell.

    ``source``: one of the sources of PySpark's progress. Its offsets are dicts up to PySpark 4.0, and JSON text later.
    """
    end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
    if end is None or latest is None:
        return None
    return sum(max(0, offset - end.get(key, offset)) for key, offset in latest.items())


def _offsets(value: Any) -> dict[tuple[str, str], int] | None:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if not isinstance(value, dict) or not all(isinstance(v, dict) for v in value.values()):
        return None
    try:
        return {(topic, part): int(offset) for topic, parts in value.items() for part, offset in parts.items()}
    except (TypeError, ValueError):  # of another source than Kafka
        return None
