"""A stream that runs beside the user's own code: its thread, and the query that it is to that code."""

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
    """What a run tells, as lines of the ``tagstream`` logger; the terminal is the user's."""

    def __init__(self) -> None:
        self._loading = LoadLog()
        self._begun = False
        self.batches = 0

    def step(self, text: str) -> None:
        """What the run is at before its first batch."""
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
        """Records the source holds that no batch has taken."""

    def loading(self, at: BootstrapProgress) -> None:
        """How far the loading of the index is."""
        self._loading(at)


class _OwnLines(logging.StreamHandler[TextIO]):
    """Lines of the ``tagstream`` logger on standard error, as long as the program has set up no logging itself."""

    def emit(self, record: logging.LogRecord) -> None:
        """Leave the line to the program's own handlers where there are some."""
        if not logging.getLogger().handlers:
            super().emit(record)


def show_lines() -> None:
    """A program that has not set up Python's logging sees what its streams do, all the same.

    Its own handlers, on ``tagstream`` or on the root logger, and a level that it has set, stay as they are.
    """
    if LOG.hasHandlers():
        return
    handler = _OwnLines()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    LOG.addHandler(handler)
    if LOG.level == logging.NOTSET:
        LOG.setLevel(logging.INFO)


class Run:
    """One run of a stream in a thread of its own. ``work`` streams until its end, and is given the run."""

    def __init__(self, work: Callable[[Run], None], name: str) -> None:
        self.stop = StopFlag()
        self.failure: Exception | None = None
        self._changed = threading.Condition()
        self._query: StreamingQuery | None = None
        self._ended = False
        self._work = work
        self._thread = threading.Thread(target=self._main, name=name, daemon=True)

    def start(self) -> StreamingQuery:
        """Begin, and wait for the first query; raises what kept the run from one."""
        self.begin()
        with self._changed:
            self._changed.wait_for(lambda: self._query is not None or self._ended)
        if self._query is None:
            raise self.failure or RuntimeError("the stream ended before its query began")
        return UpsertQuery(self)

    def begin(self) -> None:
        """Begin, and wait for nothing."""
        self._thread.start()

    def started(self, query: StreamingQuery) -> None:
        """A query of this run has begun."""
        with self._changed:
            self._query = query
            self._changed.notify_all()

    @property
    def query(self) -> StreamingQuery:
        """Spark's query of now: the newest that has begun."""
        assert self._query is not None, "given to nobody before there is one"
        return self._query

    @property
    def ended(self) -> bool:
        """Whether the run is over, with its lease given back."""
        return self._ended

    def goes_on_after(self, query: StreamingQuery) -> bool:
        """Wait until another query has taken this one's place (True), or the run is over."""
        with self._changed:
            self._changed.wait_for(lambda: self._query is not query or self._ended)
        return not self._ended

    def wait(self, seconds: float | None) -> bool:
        """Wait for the end; True when the run is over."""
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
    """Spark's query of a run, whichever it is at: after another writer's commit the run begins a new one on the same
    checkpoint.

    ``stop`` ends it after the batch that is running. What made the run fail is raised as it is: the project's own errors say
    what to do next.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def _jsq(self) -> object:  # what Spark's own methods ask
        return self._run.query._jsq  # noqa: SLF001

    @property
    def isActive(self) -> bool:  # noqa: N802 (Spark's name)
        """Whether the run goes on."""
        return not self._run.ended

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 (Spark's name)
        """Wait for the end, at most ``timeout`` seconds: then whether it is over. Raises what made the run fail."""
        over = self._run.wait(timeout)
        if over and self._run.failure is not None:
            raise self._run.failure
        return None if timeout is None else over

    def processAllAvailable(self) -> None:  # noqa: N802 (Spark's name)
        """Wait until all that the sources have is in the table."""
        while True:
            query = self._run.query
            try:
                query.processAllAvailable()
                return
            except PySparkException:
                if not self._run.goes_on_after(query):
                    raise (self._run.failure or RuntimeError("the stream has ended")) from None

    def stop(self) -> None:
        """End after the batch that is running; its lease on the table is free when this returns."""
        self._run.stop.request("stop()")
        self._run.wait(None)

    def exception(self) -> Exception | None:  # type: ignore[override] # any error, not only one that Spark has wrapped
        """What made the run fail; None while it goes on, and after a good end."""
        return self._run.failure
