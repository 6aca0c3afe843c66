"""How each column is read on the Arrow path: its own JSON type, or the one that this stream writes it in.

Arrow's JSON reader takes one JSON type per column and refuses the others. Streams differ (a timestamp as a number or
as an ISO text, a whole number as 7, 7.0 or "7") but seldom within one, so the form is learnt from a few records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum

import pyarrow as pa

from tagstream.streaming.source.decode.coerce import Number
from tagstream.streaming.source.decode.number import Misfit
from tagstream.streaming.source.decode.record import RecordDecoder, TooDeep
from tagstream.streaming.source.decode.rules import STRICT, DecodeRules

SAMPLE = 16
_MORE_DIGITS = 20
# Exact for every literal: 20 digits before the point hold an int64; a fraction that is not zero stays one.
# 256 bits, because Arrow checks a literal's digits before it adds the scale's zeros, and 128 bits would then wrap round.
WHOLE = pa.decimal256(38, 18)


class Mode(Enum):
    """The JSON form a top-level column is read in."""

    NATIVE = "native"
    TEXT = "text"
    POINT = "point"


def read_type(kind: pa.DataType, mode: Mode = Mode.NATIVE, rules: DecodeRules = STRICT) -> pa.DataType:
    """The type Arrow's JSON reader is asked for; ``streaming.source.decode.convert`` makes the column's own type of it.

    Decimals that are to be rounded are read with more digits after the point than the column has.
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
        # A literal of that many digits and an exponent of one digit must fit 256 bits: Arrow does not see it wrap round.
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
    """False for what Arrow's JSON reader has no form for: maps, and nulls-only columns inside others."""
    t = pa.types
    if t.is_map(kind):
        return False
    if t.is_struct(kind):
        return kind.num_fields > 0 and all(can_read(f.type) for f in kind)
    return can_read(kind.value_type) if t.is_list(kind) else True


def contains(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """True when the type, or one inside of it, passes ``test``."""
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
