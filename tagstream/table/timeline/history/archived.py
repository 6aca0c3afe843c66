"""One action that is no longer on the active timeline, in the form both archives are read to and written from."""

from __future__ import annotations

from dataclasses import dataclass

from tagstream.table.timeline.instant import CLEAN, CLUSTERING, COMPACTION, LOG_COMPACTION, REPLACE_COMMIT

# Actions whose requested file is a plan that is archived with them.
PLANNED = frozenset({COMPACTION, LOG_COMPACTION, CLUSTERING, REPLACE_COMMIT, CLEAN})


@dataclass(frozen=True)
class ArchivedAction:
    """A completed action. ``action``: its name once completed (a compaction is a ``commit``); times as on the timeline.

    ``metadata`` and ``plan`` are files of timeline layout 2: the completed one (Avro), and the requested one of an action
    that carries out a plan. ``planned_by``: the action's name while it was unfinished.
    """

    time: str
    action: str
    completion_time: str | None
    metadata: bytes | None
    plan: bytes | None = None
    planned_by: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What names an action: a savepoint has the time of its commit."""
        return self.time, self.action
