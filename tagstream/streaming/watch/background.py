"""Looks that a run takes beside its batches, in a thread of its own that keeps to a small share of the time."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

LOG = logging.getLogger("tagstream")
_SHARE = 0.01  # of the time the thread may be at work: a look that takes 50 ms is followed by 5 s without one
_EVERY_S = 15.0
_PATIENCE_S = 2.0


class Background:
    """Runs every look at once, then again when woken, or after 15 s; an error of a look is logged once and ends nothing.

    ``monotonic``: seconds.
    """

    def __init__(self, monotonic: Callable[[], float], share: float = _SHARE, every_s: float = _EVERY_S) -> None:
        self._monotonic = monotonic
        self._share, self._every_s = share, every_s
        self._looks: list[Callable[[], None]] = []
        self._failed: set[int] = set()
        self._wake, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="status-looks", daemon=True)

    def add(self, look: Callable[[], None]) -> None:
        """One more look; the first starts the thread."""
        self._looks.append(look)
        if not self._thread.is_alive() and not self._end.is_set():
            self._thread.start()
        self.wake()

    def wake(self) -> None:
        """There is something new to see."""
        self._wake.set()

    def close(self) -> None:
        """End; waits a little for the look that is being taken, for a broker may not answer."""
        self._end.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        while not self._end.is_set():
            self._wake.clear()
            began = self._monotonic()
            for look in list(self._looks):
                if not self._end.is_set():
                    self._take(look)
            if not self._end.wait((self._monotonic() - began) / self._share):
                self._wake.wait(self._every_s)

    def _take(self, look: Callable[[], None]) -> None:
        try:
            look()
        except Exception as e:
            if id(look) not in self._failed and not self._end.is_set():  # the same will be said by every look
                self._failed.add(id(look))
                LOG.warning("the status page lacks something, the stream goes on: %s: %s", type(e).__name__, e)
