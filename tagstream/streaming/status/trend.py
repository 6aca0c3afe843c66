"""A measure over time in bounded memory: when it is full every second point goes and the spacing doubles."""

from __future__ import annotations

from itertools import islice


class Trend:
    """Points (time in ms, value), ``room`` at most, at least ``spacing_ms`` apart."""

    def __init__(self, room: int = 240, spacing_ms: int = 2_000) -> None:
        self._room = room
        self._spacing = spacing_ms
        self._points: list[tuple[int, int]] = []

    def add(self, at_ms: int, value: int) -> None:
        """Take a point; the newest within the spacing takes the place of the one before it."""
        points = self._points
        if len(points) > 1 and at_ms - points[-2][0] < self._spacing:
            points[-1] = (at_ms, value)
            return
        points.append((at_ms, value))
        if len(points) > self._room:
            self._points = list(islice(points, 0, None, 2))
            self._spacing *= 2

    def points(self) -> tuple[tuple[int, int], ...]:
        """Oldest first."""
        return tuple(self._points)
