"""The folder of a job that keeps running, looked at again and again in the background."""

from __future__ import annotations

import threading
import time

from tagstream.streaming.source.files.lister import FileLister

_LEAST_S = 0.2
_SHARE = 9  # times as long as a look took is waited for the next: a folder of many files takes a tenth of one core
_TELL_S = 60.0


class ListerThread:
    """Calls ``lister.look`` until it is closed; what it fails with is raised by :meth:`check`."""

    def __init__(self, lister: FileLister) -> None:
        self._lister = lister
        self._end = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="source-files", daemon=True)

    def start(self) -> None:
        """Begin to look."""
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
        pause, told = _LEAST_S, time.monotonic()
        warned: dict[str, int] = {}
        while not self._end.wait(pause):
            began = time.monotonic()
            try:
                self._lister.look()
            except Exception as e:
                self._failure = e
                return
            now = time.monotonic()
            pause = max(_LEAST_S, _SHARE * (now - began))
            if now - told >= _TELL_S:
                told = now
                if self._lister.waiting != warned:
                    warned = dict(self._lister.waiting)
                    self._lister.tell_waiting()
