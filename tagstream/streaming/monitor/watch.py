"""The monitoring of a run from its start to its end: status, server, and probes in the background.

The probes run in one thread, which uses a small share of the time. Without ``--status-port`` there is no server and no
probe. The end of a run is always recorded.
"""

from __future__ import annotations

import logging
import os
import platform
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import PurePath
from types import TracebackType
from typing import Self

import pyspark
from pyspark.sql import SparkSession

from tagstream.bootstrap.report import BootstrapProgress
from tagstream.state.checkpoint import META_FILE
from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.batch.report import BatchReport
from tagstream.streaming.batch.spark_checkpoint import unfinished_batch
from tagstream.streaming.monitor.health import Begun, Stops, Thresholds, read_stops, write_stops
from tagstream.streaming.monitor.probes import IndexProbe, LagProbe, QuarantineProbe, TaskProbe
from tagstream.streaming.monitor.run_status import RunStatus
from tagstream.streaming.monitor.server import Pages, StatusServer
from tagstream.streaming.monitor.snapshot import About
from tagstream.streaming.monitor.table_probe import TableProbe, services_due
from tagstream.streaming.monitor.values import moment
from tagstream.streaming.options.options import Options
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.opening import open_storage


def log_place(env: Mapping[str, str], host: str, pid: int, descriptor: int = 2) -> str:
    """Where standard error goes: a file, the journal, a pod's log, a terminal, or a pipe to the parent process.

    ``descriptor``: its file descriptor. Empty where that is unknown.
    """
    try:
        found = os.fstat(descriptor)
        target = os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""
    if env.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}":  # systemd sets it where it has connected the two
        return f"the journal: journalctl _PID={pid}"
    if stat.S_ISREG(found.st_mode):
        return target
    if env.get("KUBERNETES_SERVICE_HOST"):
        return f"the pod's log: kubectl logs {host} (--previous: of the run before)"
    if stat.S_ISCHR(found.st_mode):
        return "nowhere (/dev/null)" if target == "/dev/null" else f"the terminal {target}"
    return "the log of the program that started the process: its standard error is a pipe"


LOG = logging.getLogger("tagstream")
_SHARE = 0.01  # the thread's share of the time: after probes that take 50 ms it waits 5 s
_EVERY_S = 15.0
_PATIENCE_S = 2.0


class Background:
    """Runs all probes at once, then again when woken or after 15 s. An error of a probe is logged once and ends
    nothing.

    ``monotonic`` returns seconds.
    """

    def __init__(self, monotonic: Callable[[], float], share: float = _SHARE, every_s: float = _EVERY_S) -> None:
        self._monotonic = monotonic
        self._share, self._every_s = share, every_s
        self._probes: list[Callable[[], None]] = []
        self._failed: set[int] = set()
        self._wake, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="status-looks", daemon=True)

    def add(self, look: Callable[[], None]) -> None:
        """Add a probe. The first one starts the thread."""
        self._probes.append(look)
        if not self._thread.is_alive() and not self._end.is_set():
            self._thread.start()
        self.wake()

    def wake(self) -> None:
        """Run the probes soon, because something has changed."""
        self._wake.set()

    def close(self) -> None:
        """Stop. Waits only a little for a running probe, since a broker may not answer."""
        self._end.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        while not self._end.is_set():
            self._wake.clear()
            began = self._monotonic()
            for look in list(self._probes):
                if not self._end.is_set():
                    self._take(look)
            if not self._end.wait((self._monotonic() - began) / self._share):
                self._wake.wait(self._every_s)

    def _take(self, look: Callable[[], None]) -> None:
        try:
            look()
        except Exception as e:
            if id(look) not in self._failed and not self._end.is_set():  # the probe would report the same each time
                self._failed.add(id(look))
                LOG.warning("the status page is incomplete, the stream continues: %s: %s", type(e).__name__, e)


class Watch:
    """The monitoring of a run. A context manager for the whole run. It receives warnings from the ``tagstream`` logger.

    ``on_step``: called with what the run does before its first batch.
    """

    def __init__(
        self, options: Options, clock_ms: Callable[[], int], on_step: Callable[[str], None] = lambda _: None
    ) -> None:
        self._on_step = on_step
        self._options, self._clock_ms = options, clock_ms
        limits = Thresholds(options.status.stuck_after, options.status.behind_after)
        self.status = RunStatus(_about(options), clock_ms, limits)
        self._handler = _WarningLog(self.status)
        self._background: Background | None = None
        self._server: StatusServer | None = None
        self._job: JobContext | None = None
        self._stops = Stops()
        self._query: str | None = None
        self._index: tuple[str, int] | None = None
        self._probes_added = self._table_known = False
        self._may_write = True
        if options.status.port is not None:
            pages = Pages(self.status.snapshot, time.monotonic)
            self._server = StatusServer(options.status.port, options.status.host, pages)
            self._background = Background(time.monotonic)

    def __enter__(self) -> Self:
        LOG.addHandler(self._handler)
        if self._server is not None:
            LOG.info("status page: http://%s:%d/", self._options.status.host, self._server.port)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        LOG.removeHandler(self._handler)
        self._handler.close()
        if self._background is not None:
            self._background.close()
        if self._server is not None:
            self._server.close()

    # Called by the job

    def step(self, text: str) -> None:
        """Set what the run does before its first batch."""
        self.status.step(text)
        self._on_step(text)

    def table_opened(self, table: HoodieTable) -> None:
        """The table exists: its facts are known from now on. A second call changes nothing."""
        if self._table_known:
            return
        self._table_known = True
        options = self._options
        self.status.know(table=table.config.name, base_path=table.base_path, table_type=table.config.table_type)
        self._note(read_stops(open_storage(options.run.checkpoint_dir)))
        if self._background is not None:
            folder, _, name = META_FILE.rpartition("/")
            made = (open_storage(options.run.checkpoint_dir), folder, name)
            stream = lambda: self._job.env.meta.stream_id if self._job is not None else options.stream_id  # noqa: E731
            limit = options.file_sizes.small_file_limit
            due = lambda now, timeline: services_due(  # noqa: E731
                now, timeline, options.services, self._clock_ms(), continuous=options.run.continuous
            )
            self._background.add(TableProbe(self.status, table, stream, limit, made, self._clock_ms, due))

    def attach(self, job: JobContext) -> None:
        """The run has the lease and its context."""
        self._job = job
        job.hooks.step = self.status.step
        job.hooks.service = self.status.service
        self.status.know(stream=job.env.meta.stream_id, checkpoint=job.env.checkpoint.root)
        self.status.began(job.run)
        self._begin(job)

    def ready(self, spark: SparkSession) -> None:
        """Index and table are consistent, and the query starts."""
        job = self._job
        assert job is not None
        self.status.began(job.run)
        index = (job.query_folder.files.root, job.position.index_load)
        if index != self._index:
            self._index = index
            self.status.new_index(len(job.env.meta.labels))
        self.status.query_started()
        self._on_step("the query has started: waiting for records")
        if self._background is not None and not self._probes_added:
            self._probes_added = True
            self._background.add(IndexProbe(self.status, job))
            self._background.add(LagProbe(self.status, job, spark))
            self._background.add(TaskProbe(self.status, spark, lambda: self._query, self._clock_ms))
            self._background.add(QuarantineProbe(self.status, job.env.checkpoint, self.status.bad_records))

    def batch(self, report: BatchReport) -> None:
        """A batch is done."""
        self.status.batch(report)
        if (
            report.instant is not None
            and not report.replayed
            and not self._stops.knows_commit
            and self._job is not None
        ):
            self._note(self._stops.after_commit())
            write_stops(self._job.env.checkpoint, self._stops)
        if self._background is not None:
            self._background.wake()

    def lag(self, records: int | None) -> None:
        """Spark has reported the lag; None: it is unknown."""
        if records is not None:
            self.status.lag(records)

    def query(self, run_id: str) -> None:
        """Spark's query has started."""
        self._query = run_id

    def loading(self, at: BootstrapProgress) -> None:
        """Receive the progress of an index load."""
        self.status.loading(at)

    def failed(self, error: str, text: str, *, may_write: bool) -> None:
        """The run ends with an error. ``may_write``: it still has the lease, so it records the error in the checkpoint."""
        self._note(self._stops.one_more(error, text, self._clock_ms()))
        self.status.stopped(error)
        self._may_write = may_write
        if self._job is not None and may_write:
            with suppress(OSError):  # a full disk may have stopped the run
                write_stops(self._job.env.checkpoint, self._stops)

    def ended(self) -> None:
        """No more batch will come. The probes stop, because Spark stops next."""
        if self._background is not None:
            self._background.close()
        self.status.ended()
        if self._job is not None and self._may_write and self._stops.begun is not None:
            kind = sys.exc_info()[0]
            stop = self._job.env.stop
            why = f"stopped by {stop.signal_name}" if stop.requested else "all records of the source were read"
            self._note(self._stops.in_order(f"ended with {kind.__name__}" if kind else why, self._clock_ms()))
            with suppress(OSError):
                write_stops(self._job.env.checkpoint, self._stops)

    def _begin(self, job: JobContext) -> None:
        """Record that this run has begun. An earlier run that is still recorded so was killed."""
        stops = read_stops(job.env.checkpoint)
        if stops.begun is not None:
            stops = stops.killed(unfinished_batch(job.query_folder.files), job.env.lease.seen_ms)
            assert stops.last is not None
            which = "the run before was" if stops.killed_in_row == 1 else f"{stops.killed_in_row} runs were"
            LOG.warning("%s %s; last seen %s", which, stops.last.text, moment(stops.last.at_ms))
        me = self.status.about
        self._note(replace(stops, begun=Begun(job.run_owner, self._clock_ms(), me.host, me.pid or 0)))
        with suppress(OSError):
            write_stops(job.env.checkpoint, self._stops)

    def _note(self, stops: Stops) -> None:
        self._stops = stops
        self.status.stops(stops)


class _WarningLog(logging.Handler):
    """Passes warnings of the log to the status."""

    def __init__(self, status: RunStatus) -> None:
        super().__init__(logging.WARNING)
        self._status = status

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message without its traceback."""
        self._status.warned(record.levelname, record.getMessage())


def _about(options: Options) -> About:
    try:
        ours = version("tagstream")
    except PackageNotFoundError:  # a checkout that is not installed
        ours = "from sources"
    host, pid = socket.gethostname(), os.getpid()
    return About(
        table=options.table.name or PurePath(options.table.base_path).name,
        stream=options.stream_id,
        base_path=options.table.base_path,
        checkpoint=options.run.checkpoint_dir,
        table_type=options.table.type,
        index=options.index.type,
        source={"kafka": "kafka", "dfs": "files", "hudi": "table", "frame": "DataFrame"}[options.source.kind],
        version=ours,
        spark=pyspark.__version__,
        python=platform.python_version(),
        host=host,
        pid=pid,
        log=log_place(os.environ, host, pid),
    )
