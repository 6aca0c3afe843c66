"""How a run shows itself: a live line on a terminal, a log line a batch elsewhere, and a summary at the end."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from pathlib import PurePath
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, RenderableType
from rich.highlighter import NullHighlighter
from rich.live import Live
from rich.logging import RichHandler
from rich.table import Table
from rich.text import Text

from tagstream.bootstrap.report import BootstrapProgress
from tagstream.streaming.options.options import Options
from tagstream.streaming.progress.bootstrap_progress import LoadLog, bar
from tagstream.streaming.progress.report import FIRST, BatchReport, RunTotals, line, size, summary

LOG = logging.getLogger("tagstream")
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


class Progress:
    """A context manager for the length of a run; it also gives the ``tagstream`` logger its handler.

    ``clock`` gives seconds and is only used for ages on the live line.
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
        return cls(sys.stderr, options.target_table or PurePath(options.target_base_path).name, time.monotonic)

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
        """What the run is at before its first batch: a line of a log, which would be silent for a minute and more."""
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
        """Records the source holds that no batch has taken; None: unknown."""
        self._begun, self._lag = True, records

    def loading(self, at: BootstrapProgress) -> None:
        """How far the loading of the index is, before the first batch or between two."""
        if self._console is None:
            self._load_log(at)
        self._load = None if at.stage == "load" and at.done == at.total else at

    def without_batches(self) -> None:
        """No batch will come: nothing is to be summed up at the end."""
        self._ends_with_summary = False

    def _shown(self) -> RenderableType:
        if self._load is not None:
            return bar(self._title, self._load)
        # Nothing before the query runs: the JVM writes to the terminal while it starts.
        return self._line() if self._begun or not self._ends_with_summary else Text()

    def _line(self) -> Text:
        """What the job is at, in one line of the terminal: what does not fit is left out, and nothing is cut."""
        last, now = self.totals.last, self._clock()
        if self._batch is not None:
            parts = [f"batch {self._batch[0]}, {now - self._batch[1]:.0f} s"]
        elif not self._ends_with_summary:
            parts = [f"{now - self._started:.0f} s"]
        else:
            parts = ["waiting for records"]
        if self._committed is not None:
            parts.append(f"last commit {now - self._committed:.0f} s ago")
        if self._lag is not None:  # files do not tell theirs
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
