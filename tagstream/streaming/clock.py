"""The job's clock: the system's, or one that a drill has set wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

OFFSET_VARIABLE = "TAGSTREAM_CLOCK_OFFSET_MS"


def clock_from_env(env: Mapping[str, str]) -> Callable[[], int]:
    """Epoch milliseconds, plus ``TAGSTREAM_CLOCK_OFFSET_MS`` where a drill sets it.

    It is a number, or the path of a file that holds one and is read at each look, so that the clock can be moved while the
    job runs. ValueError or OSError when it is neither.
    """
    text = env.get(OFFSET_VARIABLE, "")
    if not text:
        return _now
    if text.removeprefix("-").isdigit():
        fixed = int(text)
        return lambda: _now() + fixed
    path = Path(text)
    return lambda: _now() + int(path.read_text())


def _now() -> int:
    return time.time_ns() // 1_000_000
