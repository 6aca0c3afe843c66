"""Numbers, dates and times as text: which literals a column's type can store without a loss.

Both paths of the decoder use these rules: the Arrow path accepts nothing that they reject.

A number keeps every digit. Dates and times are numbers in the Avro unit, or ISO texts. They are exact or rejected. In a
column of instants, a text without a zone is read as UTC. In a local column a text with a zone is rejected, since the
column could not store the zone.
"""

from __future__ import annotations

import math
import re
import struct
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

import numpy as np
import pyarrow as pa

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_ROUNDED = Context(prec=100, rounding=ROUND_HALF_UP)
NOT_NUMBERS = ("NaN", "Infinity", "-Infinity")  # as Jackson and Spark write them
_MAX_DIGITS = 40  # no column can store more digits before or after the point

EXACT_DOUBLE = 2.0**53
EXACT_FLOAT = 2.0**24
_SMALLEST_DOUBLE = 2.2250738585072014e-308
SMALLEST_FLOAT = 1.1754943508222875e-38


class Misfit(Exception):
    """A value that its column cannot store. The text says why, without the column's name."""


def shown(text: str) -> str:
    """A value for a message, shortened when long."""
    return text if len(text) <= 40 else text[:37] + "..."


def exact(text: str) -> Decimal:
    """The decimal value of a number's text. Misfit when it is not a number, or has an exponent that no column can
    store.
    """
    if not _NUMBER.fullmatch(text):
        raise Misfit(f"{shown(text)!r} is not a number")
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise Misfit(f"{shown(text)} is out of range") from None
    return value


def to_int(text: str, bits: int) -> int:
    """The whole number of ``text``, which may also be written 1.0 or 1e3."""
    value = exact(text)
    if not value:
        return 0
    if value.adjusted() > _MAX_DIGITS:
        raise Misfit(f"{shown(text)} does not fit {bits} bits")
    if value.adjusted() < 0 or value != value.to_integral_value():
        raise Misfit(f"{shown(text)} is not a whole number")
    number = int(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise Misfit(f"{shown(text)} does not fit {bits} bits")
    return number


def to_double(text: str, *, rounding: bool = False) -> float:
    """The double nearest to ``text``. Up to 17 significant digits, the most of a double, count as no loss.

    From 2**53 on, and below the smallest normal double, the double's decimal form must be equal to ``text``. With
    ``rounding`` any digits may be lost.
    """
    if text in NOT_NUMBERS:
        return float(text)
    value = exact(text)
    number = float(text)
    if not math.isfinite(number):
        raise Misfit(f"{shown(text)} is out of a double's range")
    if not value or rounding:
        return number
    if abs(number) < EXACT_DOUBLE and abs(number) >= _SMALLEST_DOUBLE and _digits(value) <= 17:
        return number
    if value in (Decimal(number), Decimal(repr(number)), Decimal(f"{number:.17g}")):
        return number
    raise Misfit(f"{shown(text)} would lose digits in a double")


def to_float(text: str, *, rounding: bool = False) -> float:
    """The single-precision number nearest to ``text``. Up to 9 significant digits count as no loss."""
    number = to_double(text, rounding=rounding)
    if not number or not math.isfinite(number):
        return number
    try:
        single = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        raise Misfit(f"{shown(text)} is out of a float's range") from None
    if single == number or rounding:
        return float(single)
    value = Decimal(repr(number))
    if SMALLEST_FLOAT <= abs(single) < EXACT_FLOAT and _digits(value) <= 9:
        return float(single)
    if value in (Decimal(f"{single:.9g}"), Decimal(str(np.float32(single)))):  # the latter: as databases write floats
        return float(single)
    raise Misfit(f"{shown(text)} would lose digits in a float")


def to_decimal(text: str, precision: int, scale: int, *, rounding: bool = False) -> Decimal:
    """The value of ``text`` with exactly ``scale`` digits after the point. ``rounding``: halves are rounded away from
    zero.
    """
    value = exact(text)
    tiny = bool(value) and value.adjusted() < -_MAX_DIGITS
    if value and (value.adjusted() + 1 > precision - scale or (tiny and not rounding)):
        raise Misfit(f"{shown(text)} does not fit decimal({precision},{scale})")
    if tiny:
        value = Decimal(0)
    try:
        unit = Decimal(1).scaleb(-scale)
        scaled = _ROUNDED.quantize(value, unit) if value else Decimal(0).scaleb(-scale)
    except InvalidOperation:
        raise Misfit(f"{shown(text)} does not fit decimal({precision},{scale})") from None
    if scaled and scaled.adjusted() + 1 > precision - scale:
        raise Misfit(f"{shown(text)} does not fit decimal({precision},{scale})")
    if scaled != value and not rounding:
        raise Misfit(f"{shown(text)} has more than {scale} digits after the point")
    return scaled


def _digits(value: Decimal) -> int:
    """Number of significant digits, without zeros at either end."""
    return len("".join(map(str, value.as_tuple().digits)).strip("0"))


_DAY_S = 86_400
_EPOCH = datetime(1970, 1, 1)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_FRACTION_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}

_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}%s)?"
_ZONE = r"(?:Z|[+-][0-9]{2}:[0-9]{2})"
_STAMP = re.compile(
    rf"({_DATE})(?:[T ]([0-9]{{2}}):([0-9]{{2}})(?::([0-9]{{2}})(?:\.([0-9]+))?)?({_ZONE})?)?", re.ASCII
)
_TIME = re.compile(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?", re.ASCII)

# A date with a time of day, which is cut off where the rules say so. Its hours and minutes are checked nevertheless.
_CLOCK_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_DATED = rf"{_DATE}(?:[T ]{_CLOCK_TIME}(?::[0-5][0-9](?:\.[0-9]+)?)?(?:Z|[+-]{_CLOCK_TIME})?)?"
DATED_PATTERN = f"^{_DATED}$"

ZONED_PATTERN = f"{_ZONE}$"
DATE_PATTERN = f"^{_DATE}$"


def surplus_digits(unit: str) -> tuple[str, str]:
    """RE2 pattern and replacement that cut a fraction of a second to the digits of a unit."""
    digits = _FRACTION_DIGITS[unit]
    return (rf"(\.[0-9]{{{digits}}})[0-9]+", r"\1") if digits else (r"\.[0-9]+", "")


def stamp_pattern(unit: str, zoned: bool) -> str:
    """RE2 pattern of the texts that Arrow's cast to a timestamp reads as :func:`to_ticks` does."""
    digits = _FRACTION_DIGITS[unit]
    fraction = rf"(?:\.[0-9]{{1,{digits}}})?" if digits else ""
    return f"^{_DATE}(?:[T ]{_CLOCK % fraction}{_ZONE + '?' if zoned else ''})?$"


def clock_pattern(unit: str) -> str:
    """RE2 pattern of the texts that Arrow's cast to a time of day reads as :func:`to_time` does."""
    digits = _FRACTION_DIGITS[unit]
    fraction = rf"(?:\.[0-9]{{1,{digits}}})?" if digits else ""
    return rf"^(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]{fraction}$"


def without_utc(text: str) -> str:
    """A text without the Z at its end."""
    return text.removesuffix("Z")


def to_ticks(text: str, kind: pa.TimestampType, *, truncate: bool = False) -> int:
    """Ticks since the epoch of an ISO text, or of a number's text. ``truncate``: cut off digits that the unit does not
    have.
    """
    match = _STAMP.fullmatch(text)
    if match is None:
        return _number(text, 64, "an ISO timestamp")
    day, hour, minute, second, fraction, zone = match.groups()
    if zone and kind.tz is None:
        raise Misfit(f"{shown(text)!r} has a zone, which a local timestamp cannot store")
    try:
        on = date.fromisoformat(day)
        moment = datetime(on.year, on.month, on.day, int(hour or 0), int(minute or 0), int(second or 0))
    except ValueError as e:
        raise Misfit(f"{shown(text)!r} is not a date and time: {e}") from None
    delta = moment - _EPOCH
    seconds = delta.days * _DAY_S + delta.seconds - _offset_seconds(zone, text)
    return seconds * _PER_SECOND[kind.unit] + _fraction(fraction, kind.unit, text, truncate=truncate)


def to_days(text: str, *, truncate: bool = False) -> int:
    """Days since the epoch of ``yyyy-mm-dd``, or of a number's text. ``truncate``: a time of day may follow."""
    if truncate and re.fullmatch(_DATED, text, re.ASCII):
        text = text[:10]
    if not re.fullmatch(_DATE, text, re.ASCII):
        return _number(text, 32, "an ISO date")
    try:
        return (date.fromisoformat(text) - _EPOCH.date()).days
    except ValueError as e:
        raise Misfit(f"{shown(text)!r} is not a date: {e}") from None


def to_time(text: str, unit: str, *, truncate: bool = False) -> int:
    """Ticks since midnight of ``hh:mm[:ss[.fraction]]``, or of a number's text."""
    match = _TIME.fullmatch(text)
    if match is None:
        ticks = _number(text, 64, "an ISO time")
    else:
        hour, minute, second = (int(part or 0) for part in match.groups()[:3])
        if hour > 23 or minute > 59 or second > 59:
            raise Misfit(f"{shown(text)!r} is not a time of day")
        ticks = (hour * 3600 + minute * 60 + second) * _PER_SECOND[unit]
        ticks += _fraction(match.group(4), unit, text, truncate=truncate)
    if not 0 <= ticks < _DAY_S * _PER_SECOND[unit]:
        raise Misfit(f"{shown(text)} is not within a day")
    return ticks


def ticks_of_day(unit: str) -> int:
    """Ticks in a day."""
    return _DAY_S * _PER_SECOND[unit]


def _number(text: str, bits: int, wanted: str) -> int:
    try:
        return to_int(text, bits)
    except Misfit:
        raise Misfit(f"{shown(text)!r} is neither {wanted} nor a whole number of {bits} bits") from None


def _offset_seconds(zone: str | None, text: str) -> int:
    if not zone or zone == "Z":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if hours > 23 or minutes > 59:
        raise Misfit(f"{shown(text)!r} has no valid zone")
    return (hours * 3600 + minutes * 60) * (-1 if zone[0] == "-" else 1)


def _fraction(digits: str | None, unit: str, text: str, *, truncate: bool) -> int:
    keep = _FRACTION_DIGITS[unit]
    digits = digits or ""
    if digits[keep:].strip("0") and not truncate:
        raise Misfit(f"{shown(text)!r} has more digits than {unit}")
    return int(digits[:keep].ljust(keep, "0") or 0)
