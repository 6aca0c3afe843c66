"""Numbers as text: which literals a column's type holds without losing a digit.

These rules decide for both paths of the decoder: the Arrow path accepts nothing that they refuse.
"""

from __future__ import annotations

import math
import re
import struct
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation

import numpy as np

_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_ROUNDED = Context(prec=100, rounding=ROUND_HALF_UP)
NOT_NUMBERS = ("NaN", "Infinity", "-Infinity")  # as Jackson and Spark write them
_MAX_DIGITS = 40  # nothing a column can hold has more digits before or after the point

EXACT_DOUBLE = 2.0**53
EXACT_FLOAT = 2.0**24
_SMALLEST_DOUBLE = 2.2250738585072014e-308
SMALLEST_FLOAT = 1.1754943508222875e-38


class Misfit(Exception):
    """A value that its column cannot hold; the text says why, without the column's name."""


def shown(text: str) -> str:
    """A value for a message, cut when long."""
    return text if len(text) <= 40 else text[:37] + "..."


def exact(text: str) -> Decimal:
    """The decimal value of a number's text. Misfit when it is no number, or has an exponent no column can hold."""
    if not _NUMBER.fullmatch(text):
        raise Misfit(f"{shown(text)!r} is not a number")
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise Misfit(f"{shown(text)} is out of range") from None
    return value


def to_int(text: str, bits: int) -> int:
    """The whole number that ``text`` is, also when written 1.0 or 1e3."""
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
    """The double nearest to ``text``; up to 17 significant digits, the most a double has, count as no loss.

    From 2**53 on, and below the smallest normal double, the double's own decimal form must give ``text`` back. With
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
    """The single-precision number nearest to ``text``; up to 9 significant digits count as no loss."""
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
    """The value of ``text`` with exactly ``scale`` digits after the point; ``rounding``: halves away from zero."""
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
    """Significant digits, without zeros at either end."""
    return len("".join(map(str, value.as_tuple().digits)).strip("0"))
