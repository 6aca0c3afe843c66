"""At most so many operations a second."""

from __future__ import annotations

from collections.abc import Callable


class RateLimiter:
    """Spreads operations over time: who comes next waits until those before are paid for at ``rate`` a second.

    In any span of t seconds at most ``rate * t`` operations and one batch begin. ``clock`` gives seconds.
    """

    def __init__(self, rate: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        if rate <= 0:
            raise ValueError(f"a rate of {rate} a second lets nothing through")
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._free_at = clock()

    def acquire(self, operations: int) -> None:
        """Wait until a batch of that many may begin."""
        while (wait := self._free_at - self._clock()) > 0:
            self._sleep(wait)
        self._free_at = max(self._free_at, self._clock()) + operations / self._rate
