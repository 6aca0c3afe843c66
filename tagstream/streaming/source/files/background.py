"""The folder of a job that keeps running, looked at whenever the query has taken all that was planned."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from tagstream.streaming.source.files.lister import FileLister

_POLL_S = 0.05
_LEAST_S = 0.2  # from one look that found nothing to the next
_SHARE = 9  # times as long as a look took is waited for the next: a folder of many files takes a tenth of one core
_AHEAD_S = 0.5  # before the next batch may begin
_STUCK_S = 5.0
_TELL_S = 60.0


class ListerThread:
    """Calls ``lister.look`` until it is closed; what it fails with is raised by :meth:`check`.

    Plans are made one after the other, as batches are: planned ahead, a batch would have what was there long before it, and
    one that is slower than the looks would be followed by many small ones. ``planned``: batches that the query finds when
    it starts. ``interval_s``: least time from one batch to the next.
    """

    def __init__(self, lister: FileLister, planned: int, interval_s: float) -> None:
        self._lister = lister
        self._planned = planned
        self._interval_s = interval_s
        self._end = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="source-files", daemon=True)
        self._batches: Callable[[], tuple[int, bool]] = lambda: (0, False)

    def start(self, batches: Callable[[], tuple[int, bool]]) -> None:
        """Begin to look. ``batches``: how many the query has begun, and whether one is running."""
        self._batches = batches
        self._thread.start()

    def check(self) -> None:
        """Raise what a look has failed with."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """End, after the look that is under way."""
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        told = looked = moved = time.monotonic()
        pause = _LEAST_S
        before = 0
        warned: dict[str, int] = {}
        while not self._end.wait(_POLL_S):
            now = time.monotonic()
            begun, running = self._batches()
            if begun != before or running:
                before, moved = begun, now
            ready = begun >= self._planned and now >= moved + max(0.0, self._interval_s - _AHEAD_S)
            # A query that was killed may have taken two plans in one batch: then nothing is left to be begun.
            stuck = now >= moved + self._interval_s + _STUCK_S
            if running or now < looked + pause or not (ready or stuck):
                continue
            try:
                self._planned += self._lister.look()
            except Exception as e:
                self._failure = e
                return
            looked = time.monotonic()
            pause = max(_LEAST_S, _SHARE * (looked - now))
            if looked - told >= _TELL_S:
                told = looked
                if self._lister.waiting != warned:
                    warned = dict(self._lister.waiting)
                    self._lister.tell_waiting()
