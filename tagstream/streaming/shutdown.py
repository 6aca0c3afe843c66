"""SIGTERM and SIGINT end the job after the batch that is running, with exit code 0."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType

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
