"""A stream that runs in parallel with the user's code: its thread, and the query object for that code."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TextIO

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

from tagstream.bootstrap.report import BootstrapProgress
from tagstream.streaming.batch.report import FIRST, BatchReport, LoadLog, line
from tagstream.streaming.process import StopFlag

LOG = logging.getLogger("tagstream")


class LogLines:
    """The progress of a run as lines of the ``tagstream`` logger. The terminal belongs to the user."""

    def __init__(self) -> None:
        self._loading = LoadLog()
        self._begun = False
        self.batches = 0

    def step(self, text: str) -> None:
        """Log what the run does before its first batch."""
        LOG.info("%s", text)

    def begin(self, batch_id: int) -> None:
        """A batch has begun."""
        if not self._begun:
            self._begun = True
            LOG.info(FIRST, batch_id)

    def batch(self, report: BatchReport) -> None:
        """A batch is done."""
        self.batches += 1
        LOG.info("%s", line(report))

    def lag(self, records: int | None) -> None:
        """Records in the source that no batch has read; ignored here."""

    def loading(self, at: BootstrapProgress) -> None:
        """Log the progress of an index load."""
        self._loading(at)


class _OwnLines(logging.StreamHandler[TextIO]):
    """Writes lines of the ``tagstream`` logger to standard error, until the program has set up logging itself."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the line, unless the program has log handlers."""
        if not logging.getLogger().handlers:
            super().emit(record)


def show_lines() -> None:
    """Show the log lines of streams in a program that has not set up Python's logging.

    The program's handlers, on ``tagstream`` or on the root logger, and its log level are not changed.
    """
    if LOG.hasHandlers():
        return
    handler = _OwnLines()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    LOG.addHandler(handler)
    if LOG.level == logging.NOTSET:
        LOG.setLevel(logging.INFO)


class Run:
    """One run of a stream in a thread. ``work`` gets the run and streams until its end."""

    def __init__(self, work: Callable[[Run], None], name: str) -> None:
        self.stop = StopFlag()
        self.failure: Exception | None = None
        self._changed = threading.Condition()
        self._query: StreamingQuery | None = None
        self._ended = False
        self._work = work
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def start(self) -> StreamingQuery:
        """Start, and wait for the first query. Raises the error that prevented it."""
        self.begin()
        with self._changed:
            self._changed.wait_for(lambda: self._query is not None or self._ended)
        if self._query is None:
            raise self.failure or RuntimeError("the stream ended before its query began")
        return UpsertQuery(self)

    def begin(self) -> None:
        """Start without waiting."""
        self._thread.start()

    def started(self, query: StreamingQuery) -> None:
        """A query of this run has started."""
        with self._changed:
            self._query = query
            self._changed.notify_all()

    @property
    def query(self) -> StreamingQuery:
        """Spark's current query: the newest that has started."""
        assert self._query is not None, "callers get the run after its first query has started"
        return self._query

    @property
    def ended(self) -> bool:
        """Whether the run has ended and released its lease."""
        return self._ended

    def goes_on_after(self, query: StreamingQuery) -> bool:
        """Wait until another query has replaced this one (True), or the run has ended (False)."""
        with self._changed:
            self._changed.wait_for(lambda: self._query is not query or self._ended)
        return not self._ended

    def wait(self, seconds: float | None) -> bool:
        """Wait for the end, at most ``seconds``. True when the run has ended."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ended, seconds)

    def _main(self) -> None:
        try:
            self._work(self)
        except Exception as e:
            self.failure = e
            LOG.error("the stream has ended: %s", e)
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()


class UpsertQuery(StreamingQuery):
    """The query of a run, whichever of Spark's queries it uses: after another writer's commit the run starts a new one
    on the same checkpoint.

    ``stop`` ends it after the running batch. The error that made the run fail is raised unchanged, because the
    project's errors say what to do next.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def _jsq(self) -> object:  # used by Spark's methods
        return self._run.query._jsq  # noqa: SLF001

    @property
    def isActive(self) -> bool:  # noqa: N802 (Spark's name)
        """Whether the run has not ended."""
        return not self._run.ended

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 (Spark's name)
        """Wait for the end, at most ``timeout`` seconds; then return whether it has ended. Raises the error that made
        the run fail.
        """
        over = self._run.wait(timeout)
        if over and self._run.failure is not None:
            raise self._run.failure
        return None if timeout is None else over

    def processAllAvailable(self) -> None:  # noqa: N802 (Spark's name)
        """Wait until the table has all records that the sources have now."""
        while True:
            query = self._run.query
            try:
                query.processAllAvailable()
                return
            except PySparkException:
                if not self._run.goes_on_after(query):
                    raise (self._run.failure or RuntimeError("the stream has ended")) from None

    def stop(self) -> None:
        """End after the running batch. The lease on the table is free when this returns."""
        self._run.stop.request("stop()")
        self._run.wait(None)

    def exception(self) -> Exception | None:  # type: ignore[override] # any error, not only one that Spark has wrapped
        """The error that made the run fail; None while it runs, and after an end without an error."""
        return self._run.failure
