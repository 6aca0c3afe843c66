"""A clock that only sleep moves."""

from __future__ import annotations


class FakeClock:
    """Seconds from 0 on; ``slept`` are the pauses asked for."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
