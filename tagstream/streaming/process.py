"""The job's process as signals and drills steer it: its clock, its end after a batch, its named crash points.

The crash points are the steps of one batch in their order; ``streaming.job.sink`` says what each one is. In
production the plan is empty and :func:`CrashPlan.reach` does nothing. A drill sets
``TAGSTREAM_CRASH=<point>@<batch id>`` in the environment of the job. When the step is done, the process group of
the driver (Python and JVM) is killed with SIGKILL. ``@*`` means the first batch that reaches the point. With
``:pause`` after the batch id the group is stopped once with SIGSTOP instead, and continues at SIGCONT.
``TAGSTREAM_CRASH_NOTE`` names a file that is made just before, so that a drill can tell this death from another.

SIGTERM and SIGINT end the job after the batch that is running, with exit code 0.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tagstream.table.timeline.lease import process_stat

OFFSET_VARIABLE = "TAGSTREAM_CLOCK_OFFSET_MS"


def clock_from_env(env: Mapping[str, str]) -> Callable[[], int]:
    """Epoch milliseconds, plus ``TAGSTREAM_CLOCK_OFFSET_MS`` where a drill sets it.

    It is a number, or the path of a file that holds one and is read at each look, so that the clock can be moved while the
    job runs. ValueError or OSError when it is neither.
    """
    text = env.get(OFFSET_VARIABLE, "")
    if not text:
        return _now
    if text.removeprefix("-").isdigit():
        fixed = int(text)
        return lambda: _now() + fixed
    path = Path(text)
    return lambda: _now() + int(path.read_text())


def _now() -> int:
    return time.time_ns() // 1_000_000


_METADATA = ("metadata_begun", "metadata_files", "metadata_completed")
COMMIT_POINTS = (
    "profile_pinned",
    "requested",
    "inflight",
    "delta_durable",
    "state_committed",
    "files_written",
    "files_published",
    "manifest_durable",
    *_METADATA,
    "completed",
    "commit_log",
)
# Of the services after a batch: a compaction, a clean, an archiving.
SERVICE_POINTS = (
    *(f"compaction_{step}" for step in ("requested", "inflight", "files", "published", *_METADATA, "completed")),
    *(
        f"clustering_{step}"
        for step in ("requested", "inflight", "files", "published", *_METADATA, "completed", "known", "stopped")
    ),
    *(f"clean_{step}" for step in ("requested", "inflight", "deleted", *_METADATA[:2], "metadata", "completed")),
    *(f"archive_{step}" for step in ("written", "unfinished_removed", "removed")),
)
# Of a process that carries compactions out beside a job (`tagstream services run`).
WORKER_POINTS = ("worker_offered", "worker_staged", "worker_handed_in")
CRASH_POINTS = (*COMMIT_POINTS, *SERVICE_POINTS, *WORKER_POINTS)
ANY_BATCH = -2
STOPS_WITHIN_S = 5.0
POLL_S = 0.02


def steps_of(service: str, reach: Callable[[str], None]) -> Callable[[str], None]:
    """The steps of one service by names of their own: those of the metadata table have the same names in every action."""
    return lambda step: reach(step if step.startswith(f"{service}_") else f"{service}_{step}")


@dataclass(frozen=True)
class CrashPlan:
    """Where to die: ``point`` of batch ``batch_id``; ``process_group`` is the driver's. Empty point: never."""

    point: str = ""
    batch_id: int = -1
    process_group: int = 0
    pause: bool = False
    note: str = ""

    @classmethod
    def from_env(cls, env: Mapping[str, str], process_group: int) -> CrashPlan:
        """Read ``TAGSTREAM_CRASH``; ValueError on a name that is no crash point."""
        text = env.get("TAGSTREAM_CRASH", "")
        if not text:
            return cls()
        point, _, where = text.partition("@")
        batch, _, how = where.partition(":")
        if point not in CRASH_POINTS or how not in ("", "pause"):
            raise ValueError(
                f"TAGSTREAM_CRASH={text}: not <point>@<batch id> or <point>@<batch id>:pause with one of the points "
                f"{', '.join(CRASH_POINTS)}"
            )
        at = ANY_BATCH if batch == "*" else int(batch or 0)
        return cls(point, at, process_group, how == "pause", env.get("TAGSTREAM_CRASH_NOTE", ""))

    def reach(self, point: str, batch_id: int) -> None:
        """Kill or pause the driver's process group if this is the planned step of the planned batch."""
        if self.point != point or self.batch_id not in (batch_id, ANY_BATCH):
            return
        first = self._leave_note()
        if not self.pause:
            os.killpg(self.process_group, signal.SIGKILL)
            signal.pause()  # a worker outside the group must not run on while the driver dies
        elif first:  # several workers come past the same step; the one that wakes up must not stop again
            if os.getpgrp() != self.process_group:
                # Waiting and not stopped itself: a drill may stop it in between, and its own signal, sent when all goes on,
                # would leave it standing for ever.
                os.killpg(self.process_group, signal.SIGSTOP)
                _wait_while_stopped(self.process_group)
                return
            # To this thread: a signal to the process may go to another one, and this one would run on, past the step, until
            # that one is given a processor. Spark's half of a driver waits for this half; a drill stops it next.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def reach_logged(self, point: str, newest: int | None) -> None:
        """As :meth:`reach`, for a step another process did: ``newest`` is the last batch that has passed it."""
        if self.point == point and newest is not None and newest >= self.batch_id:
            self.reach(point, self.batch_id)

    def _leave_note(self) -> bool:
        """False when another process has left the note already."""
        if not self.note:
            return True
        try:
            handle = os.open(self.note, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        batch = "*" if self.batch_id == ANY_BATCH else self.batch_id
        os.write(handle, f"{self.point}@{batch}\n".encode())
        os.close(handle)
        return True


def _wait_while_stopped(pid: int) -> None:
    """Until a process that was just sent SIGSTOP has stopped and goes on; it may have done both already."""
    until = time.monotonic() + STOPS_WITHIN_S
    while not _is_stopped(pid) and time.monotonic() < until:
        time.sleep(POLL_S)
    while _is_stopped(pid):
        time.sleep(POLL_S)


def _is_stopped(pid: int) -> bool:
    fields = process_stat(pid)
    return fields is not None and fields[0] == "T"


LOG = logging.getLogger("tagstream")


class StopFlag:
    """Set by a signal; the sink refuses to begin another batch, the main loop stops the query between batches."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self.signal_name = ""
        self.batch: int | None = None  # the one that runs, which is finished first

    @property
    def requested(self) -> bool:
        return self._stop.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for the request for at most so long; True when it is there."""
        return self._stop.wait(seconds)

    def install(self) -> None:
        """Handle SIGTERM and SIGINT in the main thread; a second one ends at once, as is usual."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def request(self, why: str) -> None:
        """Ask for the end without a signal."""
        self.signal_name = why
        self._stop.set()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.requested:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.request(signal.Signals(number).name)
        what = "ending" if self.batch is None else f"finishing batch {self.batch}"
        LOG.warning("%s: %s; again to end at once (nothing is lost by that either)", self.signal_name, what)
