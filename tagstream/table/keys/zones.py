"""Wall clocks of time zones, also after 2037: up to there Arrow knows a zone's changes, and later ones it leaves out.

The rule of a zone's last change holds for ever (RFC 9636, the footer of a zone's file); Python's zoneinfo follows it, as
Java does. It is asked once for each quarter of an hour that occurs.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.keys.joda_pattern import CYCLE_MS, near_times

NUMBERS = npt.NDArray[np.int64]
_LATE_MS = 2_114_380_800_000  # 2037-01-01 UTC
_SLOT_MS = 900_000  # offsets are whole quarters of an hour since long before that


def to_utc(wall_ms: NUMBERS, zone: str | None) -> NUMBERS:
    """Milliseconds since 1970 of times of a zone's wall clock.

    An hour that the clock passes twice counts as the first one; one that it leaves out as the time after it.
    """
    if zone in (None, "UTC"):
        return wall_ms
    near, cycles = near_times(wall_ms)
    walls = pa.array(near, pa.timestamp("ms"))
    times = pc.assume_timezone(walls, zone, ambiguous="earliest", nonexistent="latest")
    found: NUMBERS = times.cast(pa.int64()).to_numpy().astype(np.int64)
    late = near >= _LATE_MS
    if late.any() and not _is_fixed(zone):
        found = found.copy()
        found[late] = _by_slot(near[late], lambda slot: _wall_slot(slot, ZoneInfo(str(zone))))
    return found + cycles * CYCLE_MS


def by_offset(ms: NUMBERS, zone: str) -> list[tuple[NUMBERS, str]]:
    """The places of times that Arrow may be told in a zone, with the zone: its name, or of late times their offset."""
    near, _ = near_times(ms)
    late = near >= _LATE_MS
    if not late.any() or _is_fixed(zone):
        return [(np.arange(len(ms)), zone)]
    parts = [(np.flatnonzero(~late), zone)] if not late.all() else []
    at = np.flatnonzero(late)
    minutes = _by_slot(near[at], lambda slot: _minutes(slot, ZoneInfo(zone)), keeps_rest=False)
    for offset in np.unique(minutes).tolist():
        sign = "-" if offset < 0 else "+"
        parts.append((at[minutes == offset], f"{sign}{abs(offset) // 60:02}:{abs(offset) % 60:02}"))
    return parts


def _is_fixed(zone: str | None) -> bool:
    return zone is None or zone == "UTC" or zone[0] in "+-"


def _by_slot(ms: NUMBERS, of_slot: Callable[[int], int], *, keeps_rest: bool = True) -> NUMBERS:
    """What a function says of the beginning of each quarter of an hour; ``keeps_rest``: with what comes behind it."""
    slots, place = np.unique(ms // _SLOT_MS * _SLOT_MS, return_inverse=True)
    told = np.array([of_slot(slot) for slot in slots.tolist()], np.int64)[place]
    return told + ms % _SLOT_MS if keeps_rest else told


def _minutes(ms: int, zone: ZoneInfo) -> int:
    offset = _moment(ms).astimezone(zone).utcoffset()
    assert offset is not None, "a zone has an offset"
    return int(offset.total_seconds()) // 60


def _wall_slot(wall_ms: int, zone: ZoneInfo) -> int:
    """The beginning of a quarter of an hour of a wall clock; of one that it leaves out, when the clock was set."""
    wall = _moment(wall_ms).replace(tzinfo=zone)
    first, last = (wall.replace(fold=fold).utcoffset() for fold in (0, 1))
    assert first is not None and last is not None, "a zone has an offset"
    found = wall_ms - _ms(first)
    if first >= last:  # it is there, once or twice
        return found
    change = wall_ms - _ms(last)  # before the change; it comes within the time that is left out
    while _minutes(change, zone) * 60_000 == _ms(first):
        change += _SLOT_MS
    return change


def _moment(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def _ms(offset: timedelta) -> int:
    return int(offset.total_seconds()) * 1000
