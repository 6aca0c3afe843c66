"""Named crash points of the commit protocol, for drills that kill the job at an exact step.

The names are the steps of one batch in their order; ``streaming.sink`` says what each one is. In production the plan is
empty and :func:`CrashPlan.reach` does nothing. A drill sets ``TAGSTREAM_CRASH=<point>@<batch id>`` in the environment
of the job; the process group of the driver (Python and JVM) is then killed with SIGKILL when the step has been done.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass

CRASH_POINTS = (
    "profile_pinned",
    "requested",
    "inflight",
    "delta_durable",
    "state_committed",
    "files_written",
    "manifest_durable",
    "completed",
    "commit_log",
)


@dataclass(frozen=True)
class CrashPlan:
    """Where to die: ``point`` of batch ``batch_id``; ``process_group`` is the driver's. Empty point: never."""

    point: str = ""
    batch_id: int = -1
    process_group: int = 0

    @classmethod
    def from_env(cls, env: Mapping[str, str], process_group: int) -> CrashPlan:
        """Read ``TAGSTREAM_CRASH``; ValueError on a name that is no crash point."""
        text = env.get("TAGSTREAM_CRASH", "")
        if not text:
            return cls()
        point, _, batch = text.partition("@")
        if point not in CRASH_POINTS:
            raise ValueError(f"TAGSTREAM_CRASH={text}: no such crash point; known: {', '.join(CRASH_POINTS)}")
        return cls(point, int(batch or 0), process_group)

    def reach(self, point: str, batch_id: int) -> None:
        """Kill the driver's process group if this is the planned step of the planned batch."""
        if self.point == point and self.batch_id == batch_id:
            os.killpg(self.process_group, signal.SIGKILL)
            signal.pause()  # a worker outside the group must not run on while the driver dies

    def reach_logged(self, point: str, newest: int | None) -> None:
        """As :meth:`reach`, for a step another process did: ``newest`` is the last batch that has passed it."""
        if self.point == point and newest is not None and newest >= self.batch_id:
            self.reach(point, self.batch_id)
