"""Compactions that a process of their own carries out (`tagstream services run`): begun and completed here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tagstream.streaming.batch.context import JobContext
from tagstream.table.services.compaction.elsewhere import complete_after_another, look, pending_plans
from tagstream.table.services.compaction.execute import begin_compaction, complete_compaction
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
                reach("compaction_files")
                complete = complete_compaction if instant in self._began else complete_after_another
                complete(table, instant, found.statuses, job.clock_ms, job.lease.check, reach)
                began = self._began.pop(instant, now_ms)
                done.append(Compacted(instant, found.statuses, (job.clock_ms() - began) / 1000))
            elif not found.begun and found.worker is not None:
                begin_compaction(table, instant, job.clock_ms, job.lease.check, reach)
                self._began[instant] = now_ms
        return done

    def idle(self, reach: Callable[[str], None]) -> list[Compacted]:
        """As :meth:`turn`, from a loop that comes by often."""
        return self.turn(reach, at_most_every_ms=_LOOK_MS)
