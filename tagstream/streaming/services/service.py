"""The interface of a table service of the stream. ``table_services`` has the list of them.

A service works between two batches, on the thread of the batches, or while no batch runs. Its tasks may run during
batches. So one thread of this job at a time writes to the timeline and to the metadata table. Against other writers a
service holds the table's lock while it plans and while it completes, and not while its tasks run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import ClassVar

from tagstream.table.timeline.timeline import FileGroupId, Timeline

Reach = Callable[[str], None]


@dataclass(frozen=True)
class Turn:
    """The state between two batches.

    ``batch_id``: the newest batch, None before the first batch of this run. ``reach`` is called after each step. ``look``
    returns the present timeline, which is read again after each step. ``on_commit`` is called with the instant of each
    write that the index has. ``hold`` holds the table's lock for a ``with`` block; its text names the work.
    """

    batch_id: int | None
    reach: Reach
    look: Callable[[], Timeline]
    on_commit: Callable[[str], None]
    hold: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext()


class TableService(ABC):
    """One table service of one run. ``name``: in messages and on the status page. ``steps``: the prefix of its steps'
    names."""

    name: ClassVar[str]
    steps: ClassVar[str]

    @property
    def running(self) -> bool:
        """Whether work runs during batches, or has ended and is not completed."""
        return False

    @abstractmethod
    def turn(self, now: Turn) -> list[str]:
        """After a batch: do all due work. Returns the completed instants; raises the error of a failure."""

    def finish(self, now: Turn, *, wait: bool = False) -> list[str]:  # noqa: ARG002 - for those that run during batches
        """Complete the work that has run during batches; ``wait``: for its end. Returns and raises as :meth:`turn`."""
        return []

    def give_way(self, groups: Collection[FileGroupId], reach: Reach) -> None:  # noqa: B027 - most run with any batch
        """Before a batch that writes to these file groups, or replaces them, gives its files their final names: undo running
        work on one of them.
        """

    def close(self) -> None:  # noqa: B027 - for those that run during batches
        """Stop the work during batches. Its plan is kept on the timeline, and a later start executes it."""


class PlannedService(TableService):
    """A service whose plan is written, executed and completed in order. ``is_async``: its work runs during batches."""

    is_async: bool

    def turn(self, now: Turn) -> list[str]:
        """Complete ended work, make a plan if one is due, and execute or begin it."""
        done = self.finish(now)
        if self.running:
            return done
        with self.ready(now), now.hold(f"planning of {self.name}"):
            instant = self.plan(now)
        if instant is None:
            return done
        self.run(instant, now)
        return done if self.is_async else done + self.finish(now, wait=True)

    def ready(self, now: Turn) -> AbstractContextManager[None]:  # noqa: ARG002 - for those that wait for other writers
        """Entered before the lock is taken for a plan, which is made in the block."""
        return nullcontext()

    @abstractmethod
    def plan(self, now: Turn) -> str | None:
        """The instant of a plan to execute: one that is on the timeline, else a new one. None if nothing is due."""

    @abstractmethod
    def run(self, instant: str, now: Turn) -> None:
        """Begin the plan of ``instant`` and its work."""
