"""Decimals as whole numbers: exact for every one that a table can hold."""

from __future__ import annotations

from decimal import Decimal


def unscaled(value: Decimal, scale: int) -> int:
    """The value without its point, at a scale that holds all of its digits; ValueError for another one.

    Python's own arithmetic rounds to the 28 digits of its context, and a table's decimals have up to 38.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"{value} is not a number")
    whole, shift, cut = int("".join(map(str, digits))), exponent + scale, 0
    number: int = whole * 10 ** max(0, shift)
    if shift < 0:
        number, cut = divmod(whole, 10**-shift)
    if cut:
        raise ValueError(f"{value} has more than {scale} digits after the point")
    return -number if sign else number
