"""Archiving of the timeline between two batches."""

from __future__ import annotations

import logging
from typing import ClassVar

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.services.service import TableService, Turn
from tagstream.table.services.archiving import archive_table
from tagstream.table.services.options import CleanOptions

LOG = logging.getLogger("tagstream")


class Archiving(TableService):
    """The archiving of one run."""

    name: ClassVar[str] = "archiving"
    steps: ClassVar[str] = "archive"

    def __init__(self, job: JobContext) -> None:
        self._job = job

    def turn(self, now: Turn) -> list[str]:
        """Archive what is due; the newest archived instant."""
        job, options = self._job, self._job.options.services
        if options.archive is None:
            return []
        with now.hold(self.name):
            done = archive_table(
                job.table,
                options.archive,
                options.clean or CleanOptions(),
                job.env.clock_ms,
                job.env.check,
                now.reach,
                timeline=now.look(),
            )
        if done is None:
            return []
        LOG.info("archived %s actions, up to %s", f"{len(done.instants):,}", done.instants[-1].time)
        return [done.instants[-1].time]
