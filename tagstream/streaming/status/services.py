"""What is known of the table services of a run: by their turns after batches, and by looks at the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tagstream.streaming.status.snapshot import ServiceLine

SERVICES = ("compaction", "clustering", "cleaning", "archiving")


class Services:
    """Held by the status, under its lock."""

    def __init__(self) -> None:
        self._lines = {name: ServiceLine(name, 0) for name in SERVICES}

    def turn(self, name: str, completed: int, error: str | None, now_ms: int) -> None:
        """A service has had its turn: how many actions it completed, and what its error was."""
        before = self._lines[name]
        last_ms = now_ms if completed else before.last_ms
        self._lines[name] = replace(
            before, completed=before.completed + completed, last_ms=last_ms, failing=error or "", tried=True
        )

    def look(self, due: Mapping[str, str], last_ms: Mapping[str, int]) -> None:
        """When each is due next, in words, and when the table has seen it last."""
        for name, before in self._lines.items():
            seen = max((at for at in (before.last_ms, last_ms.get(name)) if at is not None), default=None)
            self._lines[name] = replace(before, due=due.get(name, before.due), last_ms=seen)

    def lines(self) -> tuple[ServiceLine, ...]:
        """Each service in a row."""
        return tuple(self._lines.values())
