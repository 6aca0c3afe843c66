"""Columns as Arrow's JSON reader gave them into the schema's types, with the rows that need a second look.

``doubt`` is a mask of rows whose value may break a rule (too many digits, a null where none may be, ...): the strict
path decides on them. Inside lists and structs a row is not told apart; there :class:`Doubt` is raised for the block.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode import temporal
from tagstream.streaming.source.decode.modes import Mode
from tagstream.streaming.source.decode.number import EXACT_DOUBLE, EXACT_FLOAT, SMALLEST_FLOAT

Mask = npt.NDArray[np.bool_]

_INTEGER = r"^-?(?:0|[1-9][0-9]{0,18})$"
_POWERS = 10.0 ** np.arange(23)  # the powers of ten that a double holds exactly


class Doubt(Exception):
    """Some row of the block needs the strict path."""


def convert(column: pa.Array, field: pa.Field, mode: Mode) -> tuple[pa.Array, Mask | None]:
    """A top-level column in its own type, and the mask of its doubtful rows (None: no doubt)."""
    if mode is Mode.TEXT:
        array, doubt = _from_text(column, field.type)
    elif mode is Mode.POINT:
        array, doubt = column.cast(field.type), None  # safe: a fraction or an overflow raises
    else:
        array, doubt = _native(column, field.type)
    if not field.nullable and array.null_count:
        doubt = _either(doubt, _nulls(array))
    return array, doubt


def _native(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    t = pa.types
    if t.is_float64(kind):
        return column, _some(np.abs(_doubles(column)) >= EXACT_DOUBLE)
    if t.is_float32(kind):
        return column.cast(kind, safe=False), _some(_doubtful_floats(_doubles(column)))
    if t.is_time(kind):
        ticks = pc.fill_null(column, 0).to_numpy()
        return column.cast(kind), _some((ticks < 0) | (ticks >= temporal.ticks_of_day(kind.unit)))
    if t.is_struct(kind):
        children = [_inner(column.field(i), kind.field(i)) for i in range(kind.num_fields)]
        for i, child in enumerate(column.flatten()):
            if not kind.field(i).nullable and child.null_count > column.null_count:
                raise Doubt
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null()), None
    if t.is_list(kind):
        inner = _inner(column.values, kind.value_field)
        if not kind.value_field.nullable and inner.null_count:
            raise Doubt
        return pa.ListArray.from_arrays(column.offsets, inner, type=kind, mask=column.is_null()), None
    return (column if column.type.equals(kind) else column.cast(kind)), None


def _inner(column: pa.Array, field: pa.Field) -> pa.Array:
    array, doubt = _native(column, field.type)
    if doubt is not None:
        raise Doubt
    return array


def _from_text(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Mask | None]:
    t = pa.types
    if t.is_integer(kind):
        pattern = _INTEGER
    elif t.is_date32(kind):
        pattern = temporal.DATE_PATTERN
    else:
        pattern = temporal.stamp_pattern(kind.unit, kind.tz is not None)
    good = pc.fill_null(pc.match_substring_regex(column, pattern), True)
    if not t.is_integer(kind):
        # Arrow has a year 0, Python's calendar has not: the strict path refuses it.
        good = pc.and_(good, pc.invert(pc.fill_null(pc.starts_with(column, "0000"), False)))
    texts = pc.if_else(good, column, pa.scalar(None, pa.string()))
    if t.is_timestamp(kind) and kind.tz is not None:
        zoned = pc.fill_null(pc.match_substring_regex(texts, temporal.ZONED_PATTERN), False)
        dated = pc.equal(pc.binary_length(texts), 10)  # Arrow wants no zone on a date alone
        clock = pc.if_else(pc.fill_null(dated, False), "T00:00", "")
        texts = pc.binary_join_element_wise(texts, clock, pc.if_else(zoned, "", "Z"), "")
    return texts.cast(kind), _some(~good.to_numpy(zero_copy_only=False))


def _doubles(column: pa.Array) -> npt.NDArray[np.float64]:
    values: npt.NDArray[np.float64] = pc.fill_null(column, 0.0).to_numpy()
    return values


def _doubtful_floats(values: npt.NDArray[np.float64]) -> Mask:
    """Doubles that are neither a float nor a decimal of at most 9 digits in a float's normal range."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        single = values.astype(np.float32).astype(np.float64)
        size = np.abs(values)
        shift = 8 - np.floor(np.log10(np.where(size > 0, size, 1.0))).astype(np.int64)
        power = _POWERS[np.clip(shift, 0, 22)]
        # numerator and power are exact, so the quotient is the double nearest to that decimal
        short = (np.rint(values * power) / power == values) & (shift >= 0) & (shift <= 22)
        normal = (np.abs(single) >= SMALLEST_FLOAT) & (size < EXACT_FLOAT)
        return ~(((single == values) & (size < EXACT_DOUBLE)) | (short & normal))  # type: ignore[no-any-return]


def _nulls(array: pa.Array) -> Mask:
    mask: Mask = array.is_null().to_numpy(zero_copy_only=False)
    return mask


def _some(mask: Mask) -> Mask | None:
    return mask if mask.any() else None


def _either(a: Mask | None, b: Mask) -> Mask:
    return b if a is None else a | b
