"""Compactions that a process of their own carries out (`tagstream services run`): begun and completed here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tagstream.streaming.batch.context import JobContext
from tagstream.table.services.compaction.elsewhere import look, pending_plans
from tagstream.table.services.compaction.execute import base_files_of, begin_compaction, complete_compaction
from tagstream.table.services.compaction.operations import read_operations
from tagstream.table.timeline.write_status import WriteStatus

_LOOK_MS = 2_000


@dataclass(frozen=True)
class Compacted:
    """A compaction that was completed. ``seconds``: from its beginning to its end."""

    instant: str
    statuses: tuple[WriteStatus, ...]
    seconds: float


class CompactionsElsewhere:
    """What the job does for them, between two batches or while none runs."""

    def __init__(self, job: JobContext) -> None:
        self._job = job
        self._began: dict[str, int] = {}
        self._looked_ms = 0

    def turn(self, reach: Callable[[str], None], *, at_most_every_ms: int = 0) -> list[Compacted]:
        """Complete those whose result is there, begin those that a process offers to carry out."""
        job, now_ms = self._job, self._job.clock_ms()
        if now_ms - self._looked_ms < at_most_every_ms:
            return []
        self._looked_ms = now_ms
        table, done = job.table, []
        for instant in pending_plans(table):
            found = look(table, instant, now_ms)
            if found.begun and found.statuses is not None:
                if (
                    instant not in self._began
                ):  # a job before this one may have died while it gave the files their names
                    job.lease.check()
                    table.storage.delete_many(base_files_of(table, instant, read_operations(table, instant)))
                reach("compaction_files")
                complete_compaction(table, instant, found.statuses, job.clock_ms, job.lease.check, reach)
                began = self._began.pop(instant, now_ms)
                done.append(Compacted(instant, found.statuses, (job.clock_ms() - began) / 1000))
            elif not found.begun and found.worker is not None:
                begin_compaction(table, instant, job.clock_ms, job.lease.check, reach)
                self._began[instant] = now_ms
        return done

    def idle(self, reach: Callable[[str], None]) -> list[Compacted]:
        """As :meth:`turn`, from a loop that comes by often."""
        return self.turn(reach, at_most_every_ms=_LOOK_MS)
