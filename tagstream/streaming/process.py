"""The control of the job's process by signals and drills: its clock, its stop after a batch, its crash points.

The crash points are steps of ``table.steps``; ``streaming.job.sink`` lists those of a batch. In production the plan is
empty and :func:`CrashPlan.reach` does nothing. A drill sets ``TAGSTREAM_CRASH=<point>@<batch id>`` in the environment of
the job. After this step the process group of the driver (Python and JVM) is killed with SIGKILL. ``@*`` means the first
batch that reaches the point. With ``:pause`` after the batch id the group is stopped once with SIGSTOP instead, and
continues at SIGCONT. ``TAGSTREAM_CRASH_NOTE`` names a file that is written just before, so that a drill can distinguish
this death from another.

SIGTERM and SIGINT end the job after the running batch, with exit code 0.
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

from tagstream.table.steps import CRASH_POINTS
from tagstream.table.timeline.lease import process_stat

LOG = logging.getLogger("tagstream")
OFFSET_VARIABLE = "TAGSTREAM_CLOCK_OFFSET_MS"
ANY_BATCH = -2
STOPS_WITHIN_S = 5.0
POLL_S = 0.02


def clock_from_env(env: Mapping[str, str]) -> Callable[[], int]:
    """A clock in epoch milliseconds, plus ``TAGSTREAM_CLOCK_OFFSET_MS`` if a drill sets it.

    The variable is a number, or the path of a file with one. The file is read at each call, so that a drill can move the
    clock while the job runs. ValueError or OSError when it is neither.
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


@dataclass(frozen=True)
class CrashPlan:
    """Where to die: at ``point`` of batch ``batch_id``. ``process_group``: of the driver. Empty point: never."""

    point: str = ""
    batch_id: int = -1
    process_group: int = 0
    pause: bool = False
    note: str = ""

    @classmethod
    def from_env(cls, env: Mapping[str, str], process_group: int) -> CrashPlan:
        """Read ``TAGSTREAM_CRASH``; ValueError for a name that is not a crash point."""
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
            signal.pause()  # a worker outside the group must not continue while the driver dies
        elif first:  # several workers reach the same step; the one that is continued must not stop again
            if os.getpgrp() != self.process_group:
                # This process waits and is not stopped itself. A drill may stop it in between. Its own signal, delivered
                # when the drill continues it, would then stop it without end.
                os.killpg(self.process_group, signal.SIGSTOP)
                _wait_while_stopped(self.process_group)
                return
            # The signal goes to this thread. One to the process may go to another thread, and this thread would continue
            # past the step until the other one runs. Spark's half of a driver waits for this half; a drill stops it next.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def reach_logged(self, point: str, newest: int | None) -> None:
        """As :meth:`reach`, for a step of another process. ``newest``: the last batch that has passed the step."""
        if self.point == point and newest is not None and newest >= self.batch_id:
            self.reach(point, self.batch_id)

    def _leave_note(self) -> bool:
        """Write the note; False when another process has already written it."""
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
    """Wait until a process that was just sent SIGSTOP has stopped and continues. It may already have done both."""
    until = time.monotonic() + STOPS_WITHIN_S
    while not _is_stopped(pid) and time.monotonic() < until:
        time.sleep(POLL_S)
    while _is_stopped(pid):
        time.sleep(POLL_S)


def _is_stopped(pid: int) -> bool:
    fields = process_stat(pid)
    return fields is not None and fields[0] == "T"


class StopFlag:
    """Set by a signal. The sink then refuses to begin another batch, and the main loop stops the query between batches."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self.signal_name = ""
        self.batch: int | None = None  # the running batch, which is finished first

    @property
    def requested(self) -> bool:
        return self._stop.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for the request, at most ``seconds``. True when it was made."""
        return self._stop.wait(seconds)

    def install(self) -> None:
        """Handle SIGTERM and SIGINT in the main thread. A second one ends the process at once, as usual."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def request(self, why: str) -> None:
        """Request the stop without a signal."""
        self.signal_name = why
        self._stop.set()

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self.requested:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.request(signal.Signals(number).name)
        what = "ending" if self.batch is None else f"finishing batch {self.batch}"
        LOG.warning("%s: %s; send it again to end at once (nothing is lost either way)", self.signal_name, what)
