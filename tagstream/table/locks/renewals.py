"""The thread that keeps a lock or a lease valid while its holder works."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Renewals:
    """A thread that calls ``renew`` each ``every_s`` seconds until it returns False or :meth:`end` is called."""

    def __init__(self, every_s: float, renew: Callable[[], bool], name: str = "table lock renewals") -> None:
        self._end = threading.Event()
        self._every_s = every_s
        self._renew = renew
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop; returns after the renewal that runs now."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(self._every_s):
            if not self._renew():
                return
