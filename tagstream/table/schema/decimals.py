"""Decimals in Avro's form, a number in bytes: big-endian two's complement. Whole columns at a time."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.chunks import content

_WIDEST = 16
_HIGH = 10**38 >> 64  # upper half of 10**38: greater numbers have more than 38 digits, apart from a few that just fit


def to_decimals(numbers: pa.Array, scale: int) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """decimal128(38, scale) of big-endian two's complement numbers (binary), and the mask of those that do not fit."""
    length, begin, data = content(numbers)
    words = np.zeros((len(length), _WIDEST), np.uint8)
    wrong = np.zeros(len(length), np.bool_)
    missing = numbers.is_null().to_numpy(zero_copy_only=False)
    for width in np.unique(length).tolist():  # a loop over lengths, which are few
        rows = np.flatnonzero((length == width) & ~missing)
        if not len(rows):
            continue
        if width == 0:
            wrong[rows] = True
            continue
        taken = data[begin[rows][:, None] + np.arange(width)]
        if width > _WIDEST:
            sign = np.where(taken[:, width - _WIDEST] & 0x80, 0xFF, 0).astype(np.uint8)
            wrong[rows] = (taken[:, : width - _WIDEST] != sign[:, None]).any(axis=1)
            words[rows] = taken[:, -_WIDEST:][:, ::-1]
        else:
            sign = np.where(taken[:, 0] & 0x80, 0xFF, 0).astype(np.uint8)
            words[rows] = np.broadcast_to(sign[:, None], (len(rows), _WIDEST))
            words[rows, :width] = taken[:, ::-1]
    made = pa.Array.from_buffers(pa.decimal128(38, scale), len(length), [None, pa.py_buffer(words.tobytes())])
    high = words.view(np.int64)[:, 1]
    wrong |= (high >= _HIGH) | (high < -_HIGH)
    return pc.if_else(pa.array(missing | wrong), pa.scalar(None, made.type), made), wrong


def decimal_text(number: bytes, scale: int) -> str | None:
    """The decimal text of one big-endian number of any length; None for no bytes."""
    if not number:
        return None
    value = int.from_bytes(number, "big", signed=True)
    digits = format(Decimal(abs(value)), "f")  # Python's str(int) is limited to some thousand digits
    if scale < 0:
        digits += "0" * -scale
    elif scale:
        digits = digits.rjust(scale + 1, "0")
        digits = f"{digits[:-scale]}.{digits[-scale:]}"
    return f"-{digits}" if value < 0 else digits
