"""How a run shows its progress: a live line on a terminal, otherwise one log line per batch, and a summary at the end.

Batch reports also go to the metrics, with the source's lag.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePath
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console, RenderableType
from rich.highlighter import NullHighlighter
from rich.live import Live
from rich.logging import RichHandler
from rich.table import Table
from rich.text import Text

from tagstream.bootstrap.report import BootstrapProgress
from tagstream.streaming.batch.report import FIRST, BatchReport, LoadLog, RunTotals, bar, line, size, summary
from tagstream.streaming.options.options import Options

LOG = logging.getLogger("tagstream")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Progress:
    """Shows the progress of a run. A context manager for the whole run. It also gives the ``tagstream`` logger its
    handler.

    ``clock`` returns seconds. It is only used for ages on the live line. ``live``: show the live line; None: if
    ``stream`` is a terminal.
    """

    def __init__(self, stream: TextIO, title: str, clock: Callable[[], float], live: bool | None = None) -> None:
        self.totals = RunTotals()
        self._title = title
        self._clock = clock
        self._started = clock()
        self._committed: float | None = None
        self._batch: tuple[int, float] | None = None
        self._begun = self._any_batch = False
        self._lag: int | None = None
        self._load: BootstrapProgress | None = None
        self._load_log = LoadLog()
        self._ends_with_summary = True
        self._level = LOG.level
        terminal = stream.isatty() if live is None else live
        self._console = Console(file=stream, force_terminal=terminal) if terminal else None
        self._live: Live | None = None
        self._handler: logging.Handler
        if self._console is None:
            self._handler = logging.StreamHandler(stream)
            self._handler.setFormatter(logging.Formatter(_FORMAT))
        else:
            self._handler = RichHandler(console=self._console, show_path=False, highlighter=NullHighlighter())

    @classmethod
    def open(cls, options: Options) -> Self:
        """Progress of a job on standard error."""
        return cls(sys.stderr, options.table.name or PurePath(options.table.base_path).name, time.monotonic)

    def __enter__(self) -> Self:
        LOG.addHandler(self._handler)
        if LOG.getEffectiveLevel() > logging.INFO:
            LOG.setLevel(logging.INFO)
        if self._console is not None:
            self._live = Live(get_renderable=self._shown, console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        if self._ends_with_summary and (self.totals.batches or self.totals.replayed or kind is None):
            self._summarise()
        LOG.removeHandler(self._handler)
        LOG.setLevel(self._level)
        self._handler.close()

    def step(self, text: str) -> None:
        """Log what the run does before its first batch. Otherwise the log would have no line for a minute or longer."""
        if self._console is None:
            LOG.info("%s", text)

    def begin(self, batch_id: int) -> None:
        """A batch has begun."""
        if self._console is None and not self._any_batch:
            LOG.info(FIRST, batch_id)
        self._begun = self._any_batch = True
        self._batch = batch_id, self._clock()

    def batch(self, report: BatchReport) -> None:
        """A batch is done."""
        self._begun, self._batch = True, None
        self.totals.add(report)
        if report.lag is not None:
            self._lag = report.lag
        if not report.replayed and report.instant is not None:
            self._committed = self._clock()
        if self._console is None or report.quarantined or report.replayed:
            LOG.info("%s", line(report))

    def lag(self, records: int | None) -> None:
        """Set the lag: records in the source that no batch has read; None: unknown."""
        self._begun, self._lag = True, records

    def loading(self, at: BootstrapProgress) -> None:
        """Show the progress of an index load, before the first batch or between two batches."""
        if self._console is None:
            self._load_log(at)
        self._load = None if at.stage == "load" and at.done == at.total else at

    def without_batches(self) -> None:
        """No batch will come, so no summary is shown at the end."""
        self._ends_with_summary = False

    def _shown(self) -> RenderableType:
        if self._load is not None:
            return bar(self._title, self._load)
        # Show nothing before the query runs: the JVM writes to the terminal while it starts.
        return self._line() if self._begun or not self._ends_with_summary else Text()

    def _line(self) -> Text:
        """What the job does now, as one line for the terminal. Parts that do not fit are left out, none is cut."""
        last, now = self.totals.last, self._clock()
        if self._batch is not None:
            parts = [f"batch {self._batch[0]}, {now - self._batch[1]:.0f} s"]
        elif not self._ends_with_summary:
            parts = [f"{now - self._started:.0f} s"]
        else:
            parts = ["waiting for records"]
        if self._committed is not None:
            parts.append(f"last commit {now - self._committed:.0f} s ago")
        if self._lag is not None:  # unknown for files
            parts.append(f"lag {self._lag:,}")
        if last is not None:
            parts.append(f"{last.rate:,.0f} records/s")
            parts += [f"index {last.index_keys:,} keys {size(last.index_bytes)}"] if last.index_bytes else []
        assert self._console is not None
        return Text(fitting(self._title, parts, self._console.width), no_wrap=True, overflow="ellipsis")

    def _summarise(self) -> None:
        rows = summary(self.totals)
        if self._console is None:
            LOG.info("end of run: %s", ", ".join(f"{name} {value}" for name, value in rows))
            return
        table = Table(title=self._title, show_header=False)
        table.add_column()
        table.add_column(justify="right")
        for name, value in rows:
            table.add_row(name, value)
        self._console.print(table)


def fitting(title: str, parts: list[str], width: int) -> str:
    """``title: part · part``, without the last parts where the line would be longer than ``width``."""
    room = max(8, width - len(parts[0]) - 2)
    line = f"{title if len(title) <= room else title[: room - 1] + '…'}: {parts[0]}"
    for part in parts[1:]:
        if len(line) + len(part) + 3 > width:
            break
        line += f" · {part}"
    return line


class Watcher(Protocol):
    """Receives the progress of a run (``streaming.monitor.watch``)."""

    def batch(self, report: BatchReport) -> None:
        """A batch is done."""

    def lag(self, records: int | None) -> None:
        """Set the lag: records in the source that no batch has read; None: unknown."""

    def loading(self, at: BootstrapProgress) -> None:
        """Receive the progress of an index load."""


class RunWatcher(Watcher, Protocol):
    """A watcher that also reads Spark's jobs."""

    def query(self, run_id: str) -> None:
        """Spark's query has started. The jobs of its batches have ``run_id`` as their group."""


class Display(Watcher, Protocol):
    """Shows a run to people: ``Progress``, or log lines."""

    def begin(self, batch_id: int) -> None:
        """A batch has begun."""


class Monitor:
    """Passes reports on to ``progress`` (the terminal or the log) and ``watcher`` (the status page and the metrics)."""

    def __init__(self, progress: Display, watcher: RunWatcher) -> None:
        self._progress = progress
        self._watcher = watcher
        self._lag: int | None = None
        self._seen: Any = None
        self._query: StreamingQuery | None = None

    def on_report(self, report: BatchReport) -> None:
        """A batch is done. Called in the sink's thread."""
        shown = replace(report, lag=self._lag)
        self._progress.batch(shown)
        self._watcher.batch(shown)

    def loading(self, at: BootstrapProgress) -> None:
        """Pass on the progress of an index load."""
        self._progress.loading(at)
        self._watcher.loading(at)

    def tick(self, query: StreamingQuery) -> None:
        """Read the lag from Spark's newest progress: records in the source that no batch has read."""
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
    """Records between the batch's end and the source's newest offsets; None for files, where it is unknown.

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
