"""The lock of a table, which Hudi's writers hold while they make an instant, plan a service or publish a commit.

A :class:`Lock` is one provider's. :class:`TableLock` shares it between the threads of this process, with the waits of
Hudi's LockManager. The lock is not held while data is written. A holder can lose it: its session ends, it is paused for
too long, or another program deletes it. So :meth:`TableLock.check` is called directly before a commit is published.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from tagstream.table.errors import LockError, LockLostError, LockTimeoutError
from tagstream.table.locks.options import LockOptions

LOG = logging.getLogger("tagstream")


# Holds the lock for a ``with`` block; the text says what is done under it.
Hold = Callable[[str], AbstractContextManager[None]]


def no_lock(_: str) -> AbstractContextManager[None]:
    """A :data:`Hold` that excludes nobody."""
    return nullcontext()


class Lock(Protocol):
    """One writer's handle on the lock of a table. It is not shared between threads."""

    place: str
    """Where the lock is, for messages."""

    def try_acquire(self, wait_s: float) -> bool:
        """Take the lock; False when another writer has had it for ``wait_s`` seconds. At least one attempt is made.

        LockError when the server or the disk refuses; CorruptFileError when the lock's own data cannot be read.
        """
        ...

    def is_held(self) -> bool:
        """Whether the server or the disk says now that the lock is this handle's, with enough validity to publish.

        False when nothing can be found out.
        """
        ...

    def holder(self) -> str:
        """Who has the lock, as far as it says, for messages. Raises nothing."""
        ...

    def release(self) -> None:
        """Give the lock back if it is this handle's. Raises nothing."""
        ...

    def close(self) -> None:
        """Release the lock, and end threads and connections. Raises nothing."""
        ...


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What locks need to know of the process.

    ``writer``: name of this writer for the messages of others (job, host, process). ``new_id``: a new unique text at
    each call. ``env``: the environment. ``wall_ms``: milliseconds since 1970. ``clock``: seconds, never set back.
    ``sleep``: waits for some seconds.
    """

    writer: str
    new_id: Callable[[], str]
    env: Mapping[str, str] = field(default_factory=dict)
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def try_for(self, attempt: Callable[[], bool], wait_s: float, pause_s: float) -> bool:
        """Repeat ``attempt`` until it is True or ``wait_s`` seconds are over, with pauses; at least one time."""
        began = self.clock()
        while not attempt():
            left = wait_s - (self.clock() - began)
            if left <= 0:
                return False
            self.sleep(min(pause_s, left))
        return True


class TableLock:
    """The lock of a table for all threads of this process.

    ``lock`` None: no other process is excluded, only threads. ``clock`` and ``sleep``: see :class:`Surroundings`.
    """

    def __init__(
        self,
        lock: Lock | None,
        options: LockOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._lock = lock
        self._options = options
        self._clock = clock
        self._sleep = sleep
        self._threads = threading.RLock()
        self._depth = 0

    @property
    def is_shared(self) -> bool:
        """Whether writers in other processes take the same lock."""
        return self._lock is not None and self._options.excludes_processes

    @property
    def is_entered(self) -> bool:
        """Whether a thread of this process is in a block of :meth:`hold`."""
        return self._depth > 0

    @property
    def place(self) -> str | None:
        """Where the lock is; None where there is none."""
        return None if self._lock is None else self._lock.place

    @contextmanager
    def hold(self, what: str) -> Iterator[None]:
        """Hold the lock in the block. A thread that has it enters again.

        ``what``: what is done under it, for messages. Raises LockTimeoutError when another writer keeps it, LockError
        when it cannot be taken. The block runs to its end when the lock is lost in between: see :meth:`check`.
        """
        with self._threads:
            if self._depth == 0 and self._lock is not None:
                self._acquire(self._lock, what)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1
                if self._depth == 0 and self._lock is not None:
                    self._lock.release()

    def check(self) -> None:
        """Raise LockLostError when there is a lock and this process does not hold it now."""
        lock = self._lock
        if lock is None or (self._depth > 0 and lock.is_held()):
            return
        if self._depth == 0:
            raise LockLostError(f"the lock at {lock.place} is not held here, so nothing may be published")
        raise LockLostError(
            f"this process has lost the lock at {lock.place} (now: {lock.holder()}), so it publishes nothing: another "
            "writer deleted the lock or took it, the server did not answer, or this process stood still for longer than "
            "the lock is valid. What was written is rolled back; read the timeline again and repeat the action"
        )

    def close(self) -> None:
        """Release the lock, and end its threads and connections. No thread may hold it or wait for it."""
        if self._lock is not None:
            self._lock.close()

    def _acquire(self, lock: Lock, what: str) -> None:
        """Hudi's LockManager: a number of tries, each of which waits, with pauses between them."""
        options = self._options
        began = self._clock()
        failure: LockError | None = None
        for number in range(options.client_retries + 1):
            if number:
                self._sleep(options.client_retry_wait_ms / 1000)
            try:
                if lock.try_acquire(options.wait_time_ms / 1000):
                    return
                failure = None
            except LockError as e:
                if not e.may_pass:
                    raise
                failure = e
            if number == 0 and options.client_retries:
                reason = str(failure) if failure else f"the lock at {lock.place} is held by {lock.holder()}"
                LOG.warning("%s waits: %s", what, reason)
        waited = self._clock() - began
        if failure is not None:
            raise LockError(f"{what}: no lock after {waited:.0f} s and {options.client_retries + 1} tries: {failure}")
        raise LockTimeoutError(
            f"{what}: the lock at {lock.place} was not free for {waited:.0f} s; it is held by {lock.holder()}. Wait until "
            "that writer has finished, or stop it; if it no longer runs, remove its lock. "
            "hoodie.write.lock.client.num_retries and hoodie.write.lock.wait_time_ms set how long to wait"
        )
