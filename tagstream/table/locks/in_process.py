"""Hudi's InProcessLockProvider: one lock for each table in this process. It does not exclude other processes."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from tagstream.table.locks.lock import Surroundings


@dataclass
class _Shared:
    """One table's lock: ``holder`` is the name of the writer that has it, empty when nobody has."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    holder: str = ""


_shared: dict[str, _Shared] = {}
_guard = threading.Lock()


class InProcessLock:
    """See Lock. ``base_path``: the table; handles of the same text share one lock."""

    def __init__(self, base_path: str, surroundings: Surroundings) -> None:
        self.place = f"this process, for {base_path}"
        self._writer = surroundings.writer
        self._held = False
        with _guard:
            self._shared = _shared.setdefault(base_path, _Shared())

    def try_acquire(self, wait_s: float) -> bool:
        """See Lock."""
        self._held = self._shared.lock.acquire(timeout=max(0.0, wait_s))
        if self._held:
            self._shared.holder = self._writer
        return self._held

    def is_held(self) -> bool:
        """See Lock."""
        return self._held

    def holder(self) -> str:
        """See Lock."""
        return self._shared.holder or "nobody"

    def release(self) -> None:
        """See Lock."""
        if self._held:
            self._held = False
            self._shared.holder = ""
            self._shared.lock.release()

    def close(self) -> None:
        """See Lock."""
        self.release()
