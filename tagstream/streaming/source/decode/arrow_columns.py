"""The Arrow path by column: the JSON type in which a column is read, and its conversion to the schema's type.

Arrow's JSON reader accepts one JSON type per column and rejects the others. Streams differ (a timestamp as a number or
as an ISO text, a whole number as 7, 7.0 or "7") but seldom within one stream. So the form is learnt from a few records.

``doubt`` is a mask of rows whose value may break a rule (too many digits, a null where it is not allowed, ...). The
strict path decides about them. Inside lists and structs a single row cannot be identified; there :class:`Doubt` is
raised for the block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.literals import (
    DATE_PATTERN,
    DATED_PATTERN,
    EXACT_DOUBLE,
    EXACT_FLOAT,
    SMALLEST_FLOAT,
    ZONED_PATTERN,
    Misfit,
    clock_pattern,
    stamp_pattern,
    surplus_digits,
    ticks_of_day,
)
from tagstream.streaming.source.decode.record_decoder import UUID_PATTERN, Number, RecordDecoder, TooDeep
from tagstream.streaming.source.decode.record_format import ITEM, NO_FACTS, STRICT, DecodeRules, Facts
from tagstream.table.fields import struct_of

SAMPLE = 16
_MORE_DIGITS = 20
# Exact for every literal: 20 digits before the point are enough for an int64, and a fraction that is not zero remains.
# 256 bits, because Arrow checks a literal's digits before it adds the scale's zeros, and 128 bits would then overflow.
WHOLE = pa.decimal256(38, 18)


class Mode(Enum):
    """The JSON form in which a top-level column is read."""

    NATIVE = "native"
    TEXT = "text"
    POINT = "point"


def read_type(kind: pa.DataType, mode: Mode = Mode.NATIVE, rules: DecodeRules = STRICT) -> pa.DataType:
    """The type that Arrow's JSON reader reads. The column is converted to its own type afterwards.

    Decimals to be rounded are read with more digits after the point than the column has.
    """
    t = pa.types
    if mode is Mode.TEXT:
        return pa.string()
    if mode is Mode.POINT:
        return WHOLE
    if t.is_timestamp(kind) or t.is_time64(kind):
        return pa.int64()
    if t.is_date32(kind) or t.is_time32(kind):
        return pa.int32()
    if t.is_float32(kind):
        return pa.float64()
    if t.is_decimal(kind):
        # A literal of that many digits and an exponent of one digit must fit 256 bits: Arrow does not detect an overflow.
        room = (76 - 9 - kind.precision - kind.scale) // 2
        more = max(0, min(_MORE_DIGITS, room)) if rules.round_numbers else 0
        return pa.decimal256(kind.precision + more, kind.scale + more)
    if t.is_fixed_size_binary(kind) and not t.is_decimal(kind):
        return pa.binary()
    if t.is_struct(kind):
        return pa.struct([pa.field(f.name, read_type(f.type, rules=rules)) for f in kind])
    if t.is_list(kind):
        return pa.list_(read_type(kind.value_type, rules=rules))
    return kind


def can_read(kind: pa.DataType) -> bool:
    """False for types that Arrow's JSON reader cannot read: maps, and columns of nulls inside others."""
    t = pa.types
    if t.is_map(kind):
        return False
    if t.is_struct(kind):
        return kind.num_fields > 0 and all(can_read(f.type) for f in kind)
    return can_read(kind.value_type) if t.is_list(kind) else True


def contains(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Whether the type, or one inside it, passes ``test``."""
    t = pa.types
    if t.is_struct(kind):
        return any(contains(f.type, test) for f in kind)
    return contains(kind.value_type, test) if t.is_list(kind) else bool(test(kind))


def learn(schema: pa.Schema, records: Sequence[str], decoder: RecordDecoder) -> dict[str, Mode]:
    """The mode of every column that is not NATIVE, by what most of ``records`` have in it."""
    votes: dict[str, Counter[Mode]] = {field.name: Counter() for field in schema}
    for text in records:
        try:
            values = decoder.parse(text)
        except (Misfit, TooDeep):
            continue
        for field in schema:
            if values.get(field.name) is not None:
                votes[field.name][_mode(field.type, values[field.name])] += 1
    return {name: mode for name, vote in votes.items() if (mode := _elected(vote)) is not Mode.NATIVE}


def _elected(vote: Counter[Mode]) -> Mode:
    if vote[Mode.TEXT] * 2 > vote.total():
        return Mode.TEXT
    return Mode.POINT if vote[Mode.POINT] else Mode.NATIVE  # POINT reads whole numbers as well


def _mode(kind: pa.DataType, value: object) -> Mode:
    t = pa.types
    if isinstance(value, Number):
        return Mode.POINT if t.is_integer(kind) and any(c in value for c in ".eE") else Mode.NATIVE
    if isinstance(value, str) and (t.is_integer(kind) or t.is_timestamp(kind) or t.is_date32(kind) or t.is_time(kind)):
        return Mode.TEXT
    return Mode.NATIVE


Mask = npt.NDArray[np.bool_]

_INTEGER = r"^-?(?:0|[1-9][0-9]{0,18})$"
_POWERS = 10.0 ** np.arange(23)  # the powers of ten that a double holds exactly


class Doubt(Exception):
    """Some row of the block needs the strict path."""


def convert(
    column: pa.Array, field: pa.Field, mode: Mode, rules: DecodeRules = STRICT, facts: Facts = NO_FACTS
) -> tuple[pa.Array, Mask | None]:
    """A top-level column in its own type, and the mask of its doubtful rows (None: no doubt)."""
    if mode is Mode.TEXT:
        array, doubt = _from_text(column, field.type, rules)
    elif mode is Mode.POINT:
        array, doubt = column.cast(field.type), None  # safe: a fraction or an overflow raises
    else:
        array, doubt = _native(column, field.type, rules, facts)
    if array.null_count and (not field.nullable or facts.default is not None):
        doubt = _either(doubt, _nulls(array))
    return array, doubt


def _native(column: pa.Array, kind: pa.DataType, rules: DecodeRules, facts: Facts) -> tuple[pa.Array, Mask | None]:
    t = pa.types
    if t.is_float64(kind):
        values = np.abs(_doubles(column))
        return column, _some(np.isinf(values) if rules.round_numbers else values >= EXACT_DOUBLE)
    if t.is_float32(kind):
        array, values = column.cast(kind, safe=False), _doubles(column)
        return array, _some(np.isinf(_doubles(array)) if rules.round_numbers else _doubtful_floats(values))
    if t.is_decimal(kind):
        if rules.round_numbers:
            column = pc.round(column, ndigits=kind.scale, round_mode="half_towards_infinity")
        return column.cast(kind), None
    if t.is_time(kind):
        ticks = pc.fill_null(column, 0).to_numpy()
        return column.cast(kind), _some((ticks < 0) | (ticks >= ticks_of_day(kind.unit)))
    if t.is_string(kind):
        return column, wrong_texts(column, facts) if rules.check_texts and facts.restricts else None
    if t.is_binary(kind) or t.is_fixed_size_binary(kind):
        column, doubt = latin1_bytes(column) if rules.latin1_bytes else (column, None)
        return column.cast(kind), doubt
    if t.is_struct(kind):
        return _struct(column, kind, rules, facts)
    if t.is_list(kind):
        inner = _inner(column.values, kind.value_field, rules, facts.children.get(ITEM, NO_FACTS))
        if not kind.value_field.nullable and inner.null_count:
            raise Doubt
        return pa.ListArray.from_arrays(column.offsets, inner, type=kind, mask=column.is_null()), None
    return (column if column.type.equals(kind) else column.cast(kind)), None


def _struct(column: pa.Array, kind: pa.DataType, rules: DecodeRules, facts: Facts) -> tuple[pa.Array, Mask | None]:
    """A struct. Rows with a null in a field that may not be null, or that has a default, are doubtful."""
    of = [facts.children.get(kind.field(i).name, NO_FACTS) for i in range(kind.num_fields)]
    children = [_inner(column.field(i), kind.field(i), rules, of[i]) for i in range(kind.num_fields)]
    absent = _nulls(column)
    doubt: Mask | None = None
    for i, child in enumerate(column.flatten()):
        if (not kind.field(i).nullable or of[i].default is not None) and child.null_count > column.null_count:
            doubt = _either(doubt, _nulls(child) & ~absent)
    return struct_of(children, list(kind), absent), doubt


def _inner(column: pa.Array, field: pa.Field, rules: DecodeRules, facts: Facts) -> pa.Array:
    array, doubt = _native(column, field.type, rules, facts)
    if doubt is not None:
        raise Doubt
    return array


def wrong_texts(column: pa.Array, facts: Facts) -> Mask | None:
    """Mask of texts that are not a symbol of their enum, or not a uuid."""
    if facts.symbols is not None:
        good = pc.is_in(column, value_set=pa.array(facts.symbols, pa.string()))
    else:
        good = pc.match_substring_regex(column, f"^{UUID_PATTERN}$")
    return _some(~pc.or_(pc.fill_null(good, False), column.is_null()).to_numpy(zero_copy_only=False))


def latin1_bytes(column: pa.Array) -> tuple[pa.Array, Mask | None]:
    """Texts with one byte per character (given as their UTF-8), and the mask of those with a character that is not a
    byte.

    In UTF-8 a character from U+0080 to U+00FF is a byte C2 or C3 and one more. The number of the character is the
    second byte, plus 40 (hex) after a C3.
    """
    length = pc.fill_null(pc.binary_length(column), 0).to_numpy().astype(np.int64)
    ends = np.cumsum(length)
    flat = pc.fill_null(column.cast(pa.binary()), b"")
    data = np.frombuffer(pc.binary_join(_as_one(flat), b"")[0].as_buffer(), np.uint8)
    lead = (data == 0xC2) | (data == 0xC3)
    more = np.concatenate(([0], np.cumsum(data >= 0xC4)))
    doubt = _some(more[ends] > more[ends - length])
    if not lead.any():
        return column, doubt
    shifted = data + np.concatenate(([0], np.where(data[:-1] == 0xC3, 0x40, 0))).astype(np.uint8)
    dropped = np.concatenate(([0], np.cumsum(lead)))
    offsets = np.concatenate(([0], ends - dropped[ends])).astype(np.int32)
    out = pa.Array.from_buffers(
        pa.binary(), len(column), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(shifted[~lead].tobytes())]
    )
    return pc.if_else(column.is_valid(), out, pa.scalar(None, pa.binary())), doubt


def _as_one(values: pa.Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


def _from_text(column: pa.Array, kind: pa.DataType, rules: DecodeRules) -> tuple[pa.Array, Mask | None]:
    t = pa.types
    if rules.drop_utc and not t.is_integer(kind) and getattr(kind, "tz", None) is None:
        column = pc.replace_substring_regex(column, r"Z$", "")
    if rules.truncate_times and t.is_timestamp(kind):
        column = pc.replace_substring_regex(column, *surplus_digits(kind.unit))
    if t.is_integer(kind):
        pattern = _INTEGER
    elif t.is_time(kind):
        pattern = clock_pattern(kind.unit)
    elif t.is_date32(kind):
        pattern = DATED_PATTERN if rules.truncate_times else DATE_PATTERN
    else:
        pattern = stamp_pattern(kind.unit, kind.tz is not None)
    good = pc.fill_null(pc.match_substring_regex(column, pattern), True)
    if not t.is_integer(kind):
        # Arrow has a year 0, but Python's calendar does not: the strict path rejects it.
        good = pc.and_(good, pc.invert(pc.fill_null(pc.starts_with(column, "0000"), False)))
    texts = pc.if_else(good, column, pa.scalar(None, pa.string()))
    if t.is_date32(kind) and rules.truncate_times:
        texts = pc.utf8_slice_codeunits(texts, 0, 10)
    if t.is_timestamp(kind) and kind.tz is not None:
        zoned = pc.fill_null(pc.match_substring_regex(texts, ZONED_PATTERN), False)
        dated = pc.equal(pc.binary_length(texts), 10)  # Arrow accepts no zone after a date without a time
        clock = pc.if_else(pc.fill_null(dated, False), "T00:00", "")
        texts = pc.binary_join_element_wise(texts, clock, pc.if_else(zoned, "", "Z"), "")
    return texts.cast(kind), _some(~good.to_numpy(zero_copy_only=False))


def _doubles(column: pa.Array) -> npt.NDArray[np.float64]:
    values: npt.NDArray[np.float64] = pc.fill_null(column, 0.0).to_numpy()
    return values


def _doubtful_floats(values: npt.NDArray[np.float64]) -> Mask:
    """Mask of doubles that are neither a float nor a decimal of at most 9 digits in a float's normal range."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        single = values.astype(np.float32).astype(np.float64)
        size = np.abs(values)
        shift = 8 - np.floor(np.log10(np.where(size > 0, size, 1.0))).astype(np.int64)
        power = _POWERS[np.clip(shift, 0, 22)]
        # The numerator and the power are exact, so the quotient is the double nearest to that decimal.
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
