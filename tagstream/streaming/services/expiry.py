"""Deletes partitions whose time to live has passed, between two batches.

Hudi looks at all partitions after each commit. Here the next look is when the first partition can expire: one that is
written meanwhile expires later. The commit is like one of another writer: the next batch finds it, and the index forgets
the keys of these partitions.
"""

from __future__ import annotations

import logging
from typing import ClassVar

from tagstream.streaming.batch.context import JobContext
from tagstream.streaming.services.service import TableService, Turn
from tagstream.table.services.replaced_partitions import delete_expired

LOG = logging.getLogger("tagstream")


class Expiry(TableService):
    """The expiry of partitions of one run."""

    name: ClassVar[str] = "expiry"
    steps: ClassVar[str] = "ttl"

    def __init__(self, job: JobContext) -> None:
        self._job = job
        self._next_ms = 0

    def turn(self, now: Turn) -> list[str]:
        """Delete what has expired. Returns nothing: the index does not have the commit yet."""
        job, options = self._job, self._job.options.services.ttl
        if options is None or job.env.clock_ms() < self._next_ms:
            return []
        with now.hold(self.name):
            instant, found = delete_expired(
                job.table, options, job.env.clock_ms, job.env.check, now.reach, timeline=now.look()
            )
        self._next_ms = found.next_ms
        if instant is not None:
            LOG.info(
                "deleted %s partitions that are older than %s days, in commit %s: %s",
                f"{len(found.partitions):,}",
                f"{options.days:,}",
                instant,
                ", ".join(found.partitions[:10]) + (", ..." if len(found.partitions) > 10 else ""),
            )
        return []
