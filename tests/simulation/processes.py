"""Simulated processes: who writes, at which of its storage calls it dies or stops, and what the others see of it.

All run in one real process. Storage calls of the one that is running pass a gate, which counts them. At a planned call the
gate raises :class:`Killed`, and every later call of that process raises it again without an effect: what a program does
while it is torn down (``finally``, ``except``) changes nothing, as after SIGKILL.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO

from tagstream.table.storage.common import joined
from tagstream.table.storage.posix import PosixStorage
from tagstream.table.timeline.lease import LeaseOwner

FIRST_PID = 1000


class Killed(BaseException):
    """The simulated process is dead. No Exception: nothing of the product may catch it and go on."""


class StorageError(OSError):
    """An answer of the storage that was lost or refused."""


@dataclass
class Process:
    """``kill_at``: number of the changing storage call before which it dies, or after which with ``after``; 0: never.
    ``kill_on``: it dies before the first call that names a file which ends so. ``fail_at``: of the call that has no effect
    and raises an error; ``lose_at``: of the one that has one and raises, too. ``pause_at``: of the one at which
    ``on_pause`` is called: what others do while it stands still; with ``pause_every`` also at each so many calls after it.
    """

    pid: int
    kill_at: int = 0
    after: bool = False
    fail_at: int = 0
    lose_at: int = 0
    kill_on: str = ""
    pause_at: int = 0
    pause_every: int = 0
    on_pause: Callable[[], None] = lambda: None
    calls: int = 0
    dead: bool = False
    done: list[str] = field(default_factory=list)

    def before(self, what: str) -> int:
        """A call that changes something is about to be made; its number."""
        if self.dead:
            raise Killed(f"process {self.pid} is dead")
        self.calls += 1
        if (self.calls == self.kill_at and not self.after) or (self.kill_on and what.endswith(self.kill_on)):
            self.die(f"before {what}")
        if self._pauses():
            self.done.append(f"paused before {what}")
            self.on_pause()
        if self.calls == self.fail_at:
            self.done.append(f"failed {what}")
            raise StorageError(f"{what} was refused")
        return self.calls

    def _pauses(self) -> bool:
        since = self.calls - self.pause_at
        return self.pause_at > 0 and (
            since == 0 or (since > 0 and self.pause_every > 0 and since % self.pause_every == 0)
        )

    def made(self, what: str, number: int) -> None:
        """The call was made."""
        if number == self.kill_at and self.after:
            self.die(f"after {what}")
        if number == self.lose_at:
            self.done.append(f"lost the answer of {what}")
            raise StorageError(f"the answer of {what} was lost")

    def die(self, where: str) -> None:
        """It is killed here."""
        self.dead = True
        self.done.append(f"killed {where}")
        raise Killed(f"process {self.pid} was killed {where}")


class Processes:
    """All processes of a world. The one that runs is the innermost of those that were begun and not ended. ``now_ms``: the
    clock of the machine that files get their times from. ``wait``: lets it go on; a process that writes a file again waits
    for that."""

    def __init__(self, now_ms: Callable[[], int] | None = None, wait: Callable[[], object] = lambda: None) -> None:
        self._now_ms, self._wait, self._writes, self._written = now_ms, wait, 0, ""
        self._running: list[Process] = []
        self._living: set[int] = set()
        self._next = FIRST_PID
        self.renewals: list[QuietRenewals] = []

    def renew(self) -> None:
        """The process that runs renews its leases."""
        for each in list(self.renewals):
            each.renew()

    @contextmanager
    def process(self, **plan: object) -> Iterator[Process]:
        """Run the body as a process of its own; it is gone at the end, however that comes."""
        process = Process(self._next, **plan)  # type: ignore[arg-type]
        self._next += 1
        self._running.append(process)
        self._living.add(process.pid)
        try:
            yield process
        finally:
            self._running.remove(process)
            self._living.discard(process.pid)
            self.renewals = [each for each in self.renewals if each.process is not process]

    def stamp(self, path: str, *, above: str) -> None:
        """Give a file that was written or deleted, and the folders over it up to ``above``, the time of the simulated clock;
        no two calls give the same."""
        if self._now_ms is None:
            return
        if path == self._written:
            self._wait()
        self._written = path
        self._writes += 1
        now = self._now_ms() * 1_000_000 + self._writes
        while len(path) > len(above):
            if os.path.exists(path):
                os.utime(path, ns=(now, now))
            path = os.path.dirname(path)

    @property
    def current(self) -> Process | None:
        """The process that runs; None where a check looks at what is there."""
        return self._running[-1] if self._running else None

    @property
    def newest(self) -> int:
        """The number of the process that was begun last."""
        return self._next - 1

    def owner(self, label: str = "") -> LeaseOwner:
        """Stands for ``LeaseOwner.this_process``."""
        pid = self.current.pid if self.current is not None else 0
        return LeaseOwner("host", "boot", pid, pid, label, "machine", "namespace")

    def start_of(self, pid: int) -> int | None:
        """Stands for the kernel's start time of a process; None where no process has that number."""
        current = self.current
        if current is not None and current.dead and current.pid == pid:
            return None
        return pid if pid in self._living else None

    def before(self, what: str) -> tuple[Process | None, int]:
        """A call that changes something is about to be made."""
        if threading.current_thread() is not threading.main_thread():
            raise AssertionError(f"{what} on a thread of its own: a simulation has one")
        process = self.current
        return process, process.before(what) if process is not None else 0


@dataclass(frozen=True)
class SimulatedStorage(PosixStorage):
    """Local files behind the gate; never forced to the disk, for nothing here outlives the machine."""

    processes: Processes = field(default_factory=Processes, compare=False)

    @staticmethod
    def of(path: str, processes: Processes) -> SimulatedStorage:
        """The storage of an absolute path."""
        return SimulatedStorage(path, sync=False, processes=processes)

    def below(self, rel: str) -> SimulatedStorage:
        return SimulatedStorage(joined(self.root, rel), self.sync, self.mode, self.processes)

    @contextmanager
    def _call(self, what: str, rel: str) -> Iterator[None]:
        path = os.path.join(self.root, rel)
        shown = f"{what} {path}"
        process, number = self.processes.before(shown)
        yield
        self.processes.stamp(path, above=self.root)
        if process is not None:
            process.made(shown, number)

    def write_new(self, rel: str, data: bytes) -> None:
        with self._call("write_new", rel):
            super().write_new(rel, data)

    def replace(self, rel: str, data: bytes) -> None:
        with self._call("replace", rel):
            super().replace(rel, data)

    @contextmanager
    def open_output(self, rel: str) -> Iterator[BinaryIO]:
        with self._call("open_output", rel), super().open_output(rel) as out:
            yield out

    def publish(self, pairs: Sequence[tuple[str, str]], *, are_free: bool = False) -> None:
        # A process can die between two links: each is a call.
        for pair in pairs:
            with self._call("publish", pair[1]):
                super().publish([pair], are_free=are_free)

    def delete(self, rel: str) -> bool:
        with self._call("delete", rel):
            return super().delete(rel)

    def delete_many(self, rels: Iterable[str]) -> None:
        for rel in rels:
            self.delete(rel)

    def delete_tree(self, rel: str) -> None:
        with self._call("delete_tree", rel):
            super().delete_tree(rel)

    def delete_empty(self, rel: str) -> None:
        with self._call("delete_empty", rel):
            super().delete_empty(rel)


class QuietRenewals:
    """No thread renews a lease: the clock of a simulation stands still while nothing happens. A process that waits renews
    its leases (``Processes.renew``), as its threads would."""

    def __init__(self, processes: Processes, renew: Callable[[], bool]) -> None:
        self._processes, self._renew = processes, renew
        self.process = processes.current
        processes.renewals.append(self)

    def renew(self) -> None:
        """Renew the lease, if it is one of the process that runs now."""
        if self.process is self._processes.current and not self._renew():
            self.end()

    def end(self) -> None:
        if self in self._processes.renewals:
            self._processes.renewals.remove(self)


class SimulatedLock:
    """The lock of a table as ZooKeeper's: it is free when its holder is dead, and not while that stands still."""

    place = "simulated"

    def __init__(self, processes: Processes, held_by: list[int]) -> None:
        self._processes, self._held_by = processes, held_by
        current = processes.current
        self._pid = current.pid if current is not None else 0

    def try_acquire(self, wait_s: float) -> bool:
        if self._held_by and self._processes.start_of(self._held_by[0]) is None:
            self._held_by.clear()
        if self._held_by:
            return False
        self._held_by.append(self._pid)
        return True

    def is_held(self) -> bool:
        return self._held_by == [self._pid]

    def holder(self) -> str:
        return f"process {self._held_by}"

    def release(self) -> None:
        if self.is_held():
            self._held_by.clear()

    def close(self) -> None:
        self.release()
