"""Dates as text: patterns of Joda's DateTimeFormat and local times of time zones, column by column.

Patterns have ``y`` and ``Y`` (year), ``M`` (number), ``d``, ``H``, ``m``, ``s``, ``S`` (fraction of a second),
``Z`` (the offset) and text. Patterns for writing also have ``k``, ``K`` and ``h`` (hours from 1 to 24, from 0 to 11,
from 1 to 12). Names of months and days, halves of the day, week years and zone names depend on a locale or on tables
of zones; they are an error that names the letter. Years of two digits are an error for reading, because they depend on
the current day.

Arrow knows the offset changes of a zone up to 2037. After the last change its rule applies forever (RFC 9636, the
footer of a zone's file). Python's zoneinfo follows the rule, as Java does. It is called once for each quarter of an
hour that occurs in the values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import ConfigError

_YEAR = "yY"
_FIELDS = {"M": pc.month, "d": pc.day, "H": pc.hour, "m": pc.minute, "s": pc.second}
_HOURS = {"k": (24, 1), "K": (12, 0), "h": (12, 1)}  # by letter: number of hours, first hour
_NUMBERS = npt.NDArray[np.int64]
CYCLE_YEARS = 400
CYCLE_MS = 146_097 * 86_400_000
_YEAR_0_MS = -719_528 * 86_400_000
_FAR_MS = _YEAR_0_MS + 7 * CYCLE_MS  # the year 2800
_LAST_YEAR = 200_000_000  # its milliseconds fit into 64 bits


@dataclass(frozen=True)
class Part:
    """A run of one pattern letter, or a literal text (``letter`` empty)."""

    letter: str
    count: int = 0
    text: str = ""


@dataclass(frozen=True)
class Pattern:
    """A parsed pattern: ``text`` as it was given, and its parts."""

    text: str
    parts: tuple[Part, ...]

    @property
    def has_offset(self) -> bool:
        """Whether texts of this pattern have an offset from UTC."""
        return any(part.letter == "Z" for part in self.parts)

    @property
    def folders(self) -> int:
        """Number of folders in a path of this pattern."""
        return 1 + sum(part.text.count("/") for part in self.parts if not part.letter)

    def write(self, times: pa.Array) -> pa.Array:
        """Texts of timestamps in milliseconds of any year, in the time zone of their type; null for null."""
        near, cycles = near_times(times.cast(pa.int64()).fill_null(0).to_numpy())
        moved = pa.array(near, times.type, mask=times.is_null().to_numpy(zero_copy_only=False))
        years = pa.array(pc.year(moved).fill_null(0).to_numpy(zero_copy_only=False) + cycles * CYCLE_YEARS)
        columns = [self._text(part, moved, years) for part in self.parts]
        return pc.binary_join_element_wise(*columns, "") if len(columns) > 1 else columns[0]

    def _text(self, part: Part, times: pa.Array, years: pa.Array) -> pa.Array:
        if not part.letter:
            return pc.if_else(pc.is_valid(times), part.text, None)
        if part.letter in _YEAR:
            count, numbers = part.count, pc.if_else(pc.is_valid(times), years, None)
            if part.letter == "Y":  # year of era: the year before 1 is 1 B.C.
                numbers = pc.if_else(pc.less(numbers, 1), pc.subtract(1, numbers), numbers)
            if count == 2:
                numbers = pc.abs(numbers)
                return _padded(pc.subtract(numbers, pc.multiply(pc.divide(numbers, 100), 100)), 2)
            return _padded(numbers, count)
        if part.letter == "S":
            millis = pc.millisecond(times)
            digits = pc.utf8_slice_codeunits(_padded(millis, 3), 0, min(part.count, 3))
            return pc.binary_join_element_wise(digits, "0" * max(0, part.count - 3), "")
        if part.letter == "Z":
            offset = pc.strftime(times, "%z")
            if part.count == 1:
                return offset
            return pc.replace_substring_regex(offset, r"^(...)(..)$", r"\1:\2")
        if part.letter in _HOURS:
            return _padded(_hours(times, *_HOURS[part.letter]), part.count)
        return _padded(_FIELDS[part.letter](times), part.count)

    def expression(self) -> str:
        """A regular expression (RE2) for whole texts, with one named group for each field.

        Raises ConfigError for letters that can be written but not read, and for a field that occurs twice.
        """
        pieces, seen = [], set()
        for number, part in enumerate(self.parts):
            if not part.letter:
                pieces.append(re.escape(part.text))
                continue
            name = "y" if part.letter in _YEAR else part.letter
            if name in _HOURS:
                raise ConfigError(
                    f"the date pattern {self.text!r} has {part.letter * part.count!r}, which cannot be read; use H"
                )
            if name == "y" and part.count == 2:
                raise ConfigError(
                    f"the date pattern {self.text!r} has a year of two digits without a century; use yyyy"
                )
            if name in seen:
                raise ConfigError(f"the date pattern {self.text!r} has {part.letter!r} twice and cannot be read")
            seen.add(name)
            following = self.parts[number + 1] if number + 1 < len(self.parts) else None
            fixed = following is not None and following.letter not in ("", "Z")
            pieces.append(f"(?P<{name}>{_digits(part, fixed=fixed)})")
        return "^" + "".join(pieces) + "$"


def parse_pattern(text: str) -> Pattern:
    """Parse a pattern. ConfigError names the letters that are not supported."""
    parts: list[Part] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char == "'":
            end = text.find("'", position + 1)
            if end < 0:
                raise ConfigError(f"the date pattern {text!r} has a quote that is not closed")
            literal = text[position + 1 : end] or "'"
            position = end + 1
        elif char.isascii() and char.isalpha():
            count = len(text) - position - len(text[position:].lstrip(char))
            _check(text, char, count)
            parts.append(Part(char, count))
            position += count
            continue
        else:
            literal = char
            position += 1
        if parts and not parts[-1].letter:
            parts[-1] = Part("", 0, parts[-1].text + literal)
        else:
            parts.append(Part("", 0, literal))
    if not any(part.letter for part in parts):
        raise ConfigError(f"the date pattern {text!r} has no field of a date")
    return Pattern(text, tuple(parts))


def _check(text: str, letter: str, count: int) -> None:
    known = letter in _YEAR or letter in _FIELDS or letter in _HOURS or letter in "SZ"
    if not known or (letter == "M" and count > 2) or (letter == "Z" and count > 2):
        raise ConfigError(
            f"the date pattern {text!r} has {letter * count!r}, which is not supported; use y, M (number), d, H, k, K, h, "
            "m, s, S, Z and text in quotes"
        )


def _digits(part: Part, *, fixed: bool) -> str:
    if part.letter == "Z":
        return r"Z|[+-]\d{2}:?\d{2}"
    if part.letter == "S" or fixed:
        return rf"\d{{{part.count}}}" if fixed else r"\d{1,9}"
    if part.letter in _YEAR:
        return r"-?\d{1,6}"
    return r"\d{1,2}"


def _hours(times: pa.Array, count: int, first: int) -> pa.Array:
    """Hours counted from ``first``. Where they begin with 1, the hour 0 is the last one."""
    hours = pc.hour(times)
    rest = pc.subtract(hours, pc.multiply(pc.divide(hours, count), count))
    return pc.if_else(pc.less(rest, first), count, rest)


def _padded(numbers: pa.Array, width: int) -> pa.Array:
    """Digits with zeros in front. As in Joda, the sign of a negative number does not count towards the width."""
    digits = pc.utf8_lpad(pc.abs(numbers.cast(pa.int64())).cast(pa.string()), width, "0")
    return pc.binary_join_element_wise(pc.if_else(pc.less(numbers, 0), "-", ""), digits, "")


def near_times(ms: _NUMBERS) -> tuple[_NUMBERS, _NUMBERS]:
    """(times in the years 0 to 2799, number of 400-year cycles that each was moved by) of milliseconds since 1970.

    Arrow has years in 16 bits, so the year after 32767 is -32768. The calendar repeats after 400 years, including the
    day of the week. So do the offsets of a time zone before its first rule and after its last one.
    """
    cycles = np.where(
        ms >= _FAR_MS, (ms - _FAR_MS) // CYCLE_MS + 1, np.where(ms < _YEAR_0_MS, (ms - _YEAR_0_MS) // CYCLE_MS, 0)
    )
    return ms - cycles * CYCLE_MS, cycles


@dataclass(frozen=True)
class ReadTimes:
    """Times read from texts.

    ``wall_ms``: milliseconds of the local time since 1970. ``offset_ms``: offset from UTC, 0 where the text has none.
    ``good``: whether the text is a time.
    """

    wall_ms: _NUMBERS
    offset_ms: _NUMBERS
    good: npt.NDArray[np.bool_]


def read_times(pattern: Pattern, texts: pa.Array) -> ReadTimes:
    """Parse texts (without nulls) as times of the pattern. Fields that the pattern lacks have their least value."""
    found = pc.extract_regex(texts, pattern.expression())
    good = pc.is_valid(found).to_numpy(zero_copy_only=False)
    names = {field.name for field in found.type}
    count = len(texts)

    def numbers(name: str, default: int) -> _NUMBERS:
        if name not in names:
            return np.full(count, default, np.int64)
        values = pc.fill_null(pc.struct_field(found, name), str(default)).cast(pa.int64())
        return np.asarray(values.to_numpy(), np.int64)

    year = numbers("y", 1970)
    month, day = numbers("M", 1), numbers("d", 1)
    hour, minute, second = numbers("H", 0), numbers("m", 0), numbers("s", 0)
    good = good & (month >= 1) & (month <= 12) & (hour <= 23) & (minute <= 59) & (second <= 59) & (day >= 1)
    good = good & (np.abs(year) <= _LAST_YEAR)
    months = (np.where(good, year, 1970) - 1970) * 12 + np.where(good, month, 1) - 1
    first = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    after = (months + 1).astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
    good = good & (day <= after - first)
    wall = (((first + day - 1) * 24 + hour) * 60 + minute) * 60_000 + second * 1000
    if "S" in names:
        fraction = pc.utf8_slice_codeunits(pc.utf8_rpad(pc.fill_null(pc.struct_field(found, "S"), "0"), 3, "0"), 0, 3)
        wall = wall + fraction.cast(pa.int64()).to_numpy()
    return ReadTimes(wall, _offsets(found, names, count), good)


def _offsets(found: pa.Array, names: set[str], count: int) -> _NUMBERS:
    if "Z" not in names:
        return np.zeros(count, np.int64)
    text = pc.replace_substring(pc.fill_null(pc.struct_field(found, "Z"), "Z"), ":", "")
    text = pc.if_else(pc.equal(text, "Z"), "+0000", text)
    sign = np.where(pc.starts_with(text, "-").to_numpy(zero_copy_only=False), -1, 1)
    hours = pc.utf8_slice_codeunits(text, 1, 3).cast(pa.int64()).to_numpy()
    minutes = pc.utf8_slice_codeunits(text, 3, 5).cast(pa.int64()).to_numpy()
    return np.asarray(sign * (hours * 60 + minutes) * 60_000, np.int64)


_LATE_MS = 2_114_380_800_000  # 2037-01-01 UTC
_SLOT_MS = 900_000  # offsets have been whole quarters of an hour since long before 2037


def to_utc(wall_ms: _NUMBERS, zone: str | None) -> _NUMBERS:
    """Milliseconds since 1970 in UTC of local times of a zone.

    A local time that occurs twice (clock set back) is the first one. One that is skipped (clock set forward) is the
    time of the change.
    """
    if zone in (None, "UTC"):
        return wall_ms
    near, cycles = near_times(wall_ms)
    walls = pa.array(near, pa.timestamp("ms"))
    times = pc.assume_timezone(walls, zone, ambiguous="earliest", nonexistent="latest")
    found: _NUMBERS = times.cast(pa.int64()).to_numpy().astype(np.int64)
    late = near >= _LATE_MS
    if late.any() and not _is_fixed(zone):
        found = found.copy()
        found[late] = _by_slot(near[late], lambda slot: _wall_slot(slot, ZoneInfo(str(zone))))
    return found + cycles * CYCLE_MS


def by_offset(ms: _NUMBERS, zone: str) -> list[tuple[_NUMBERS, str]]:
    """Positions of times with the zone that Arrow can use for them: the zone's name or, from 2037 on, the offset."""
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


def _by_slot(ms: _NUMBERS, of_slot: Callable[[int], int], *, keeps_rest: bool = True) -> _NUMBERS:
    """A function's value for the start of each quarter of an hour; ``keeps_rest`` adds the rest of the quarter."""
    slots, place = np.unique(ms // _SLOT_MS * _SLOT_MS, return_inverse=True)
    told = np.array([of_slot(slot) for slot in slots.tolist()], np.int64)[place]
    return told + ms % _SLOT_MS if keeps_rest else told


def _minutes(ms: int, zone: ZoneInfo) -> int:
    offset = _moment(ms).astimezone(zone).utcoffset()
    assert offset is not None, "a zone has an offset"
    return int(offset.total_seconds()) // 60


def _wall_slot(wall_ms: int, zone: ZoneInfo) -> int:
    """UTC of the start of a quarter of an hour of local time. For a skipped local time: the time of the change."""
    wall = _moment(wall_ms).replace(tzinfo=zone)
    first, last = (wall.replace(fold=fold).utcoffset() for fold in (0, 1))
    assert first is not None and last is not None, "a zone has an offset"
    found = wall_ms - _ms(first)
    if first >= last:  # the local time exists, once or twice
        return found
    change = wall_ms - _ms(last)  # before the change, which comes within the skipped time
    while _minutes(change, zone) * 60_000 == _ms(first):
        change += _SLOT_MS
    return change


def _moment(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def _ms(offset: timedelta) -> int:
    return int(offset.total_seconds()) * 1000
