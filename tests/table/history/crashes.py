"""Runs something again and again, each time cut off one change later, until it comes to its end."""

from __future__ import annotations

from collections.abc import Callable

from tagstream.table.storage.storage import Storage
from tests.support.faulty_storage import CHANGES
from tests.table.stepping import Stepping
from tests.table.writer import CrashError


def cut_off_at_each_change(storage: Storage, work: Callable[[Storage], object], after: Callable[[int], None]) -> int:
    """`after` is called behind each cut with its number; how many changes an uncut run makes.

    Each run goes on from what the one before has left, as a process that is started again does.
    """
    allowed = 0
    while True:
        done = 0

        def before(kind: str, *rels: str, allowed: int = allowed) -> None:
            nonlocal done
            if kind not in CHANGES:
                return
            if done == allowed:
                raise CrashError
            done += 1

        try:
            work(Stepping(storage, before))
        except CrashError:
            after(allowed)
            allowed += 1
            continue
        after(allowed)
        return allowed
