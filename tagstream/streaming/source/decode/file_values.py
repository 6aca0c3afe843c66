"""Columns of Parquet files in the types of the table: without a loss, or with the reason for each value that does not fit.

The rules are those of the other decoders: a whole number may be in a column of decimals or doubles, a number in a column
of texts, and a number or a time in a text is read as in JSON. A value of another kind (a text in a boolean column that
is not ``true`` or ``false``, a timestamp in a column of numbers) is not converted.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import mask_of, nulls_of, only_where, text_where
from tagstream.streaming.source.decode.encodings import Encoding, beyond_calendar, cut_off, finish, fitted, of_whole
from tagstream.streaming.source.decode.literals import Misfit
from tagstream.streaming.source.decode.record_decoder import coercer
from tagstream.streaming.source.decode.record_format import ITEM, NO_FACTS, DecodeRules, Facts
from tagstream.table.fields import struct_of

Made = tuple[pa.Array, pa.Array | None]
_UUID_BYTES = 16


def typed(column: pa.Array, field: pa.Field, rules: DecodeRules, facts: Facts = NO_FACTS) -> Made:
    """A column in its field's type, and why a value does not fit (None: all fit)."""
    column = stored(column)
    t = pa.types
    if column.type.equals(field.type):
        return column, _calendar(column, field)[1]
    if t.is_null(column.type):
        return pa.nulls(len(column), field.type), None
    if t.is_dictionary(column.type):
        return typed(column.cast(column.type.value_type), field, rules, facts)
    if t.is_nested(field.type):
        return _nested(column, field, rules, facts)
    convert = _conversion(column.type, field.type)
    if convert is None:
        text = f"field {field.name} is {_word(column.type)}, and the column has type {field.type}"
        return pa.nulls(len(column), field.type), text_where(~nulls_of(column), text)
    array, reason = convert(column, field, rules, facts)
    array, beyond = _calendar(array, field)
    return array, first_of(reason, beyond)


def stored(column: pa.Array) -> pa.Array:
    """A column without an extension type. A UUID becomes its text."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    if isinstance(column.type, pa.UuidType):
        text, _ = finish(column.storage, Encoding("uuid"), pa.field("uuid", pa.string()), "raw")
        return text
    return column.storage


def _word(kind: pa.DataType) -> str:
    return f"a {kind}" if not pa.types.is_nested(kind) else "a nested value"


def _calendar(array: pa.Array, field: pa.Field) -> Made:
    beyond = beyond_calendar(array, field)
    return (array, None) if beyond is None else (only_where(nulls_of(beyond), array), beyond)


def first_of(reason: pa.Array | None, other: pa.Array | None) -> pa.Array | None:
    """The reasons of both; the first one where a value has two."""
    if reason is None or other is None:
        return other if reason is None else reason
    return pc.coalesce(reason, other)


def _nested(column: pa.Array, field: pa.Field, rules: DecodeRules, facts: Facts) -> Made:
    kind, given, t = field.type, column.type, pa.types
    empty = nulls_of(column)
    if t.is_struct(kind) and t.is_struct(given):
        arrays: list[pa.Array] = []
        reason: pa.Array | None = None
        for child in kind:
            known = facts.children.get(child.name, NO_FACTS)
            found = next((i for n in (child.name, *known.aliases) if (i := given.get_field_index(n)) >= 0), None)
            if found is None:
                arrays.append(missing(child, known, len(column)))
                continue
            array, why = typed(
                pc.struct_field(column, found), child.with_name(f"{field.name}.{child.name}"), rules, known
            )
            arrays.append(array)
            reason = first_of(reason, why)
        return struct_of(arrays, list(kind), empty), reason
    known = facts.children.get(ITEM, NO_FACTS)
    lists = (t.is_list, t.is_large_list, t.is_fixed_size_list)
    if t.is_list(kind) and any(test(given) for test in lists):
        column = column.cast(pa.list_(given.value_type))
        lengths, offsets, inside = parts_of(column)
        array, why = typed(inside, kind.value_field.with_name(f"{field.name}[]"), rules, known)
        made = pa.ListArray.from_arrays(offsets, array, type=kind, mask=pa.array(empty))
        return made, None if why is None else of_whole(why, lengths)
    if t.is_map(kind) and t.is_map(given):
        entries = pa.StructArray.from_arrays([column.keys, column.items], names=["key", "value"])
        lists_of = pa.ListArray.from_arrays(column.offsets, entries, mask=column.is_null())
        lengths, offsets, inside = parts_of(lists_of)
        keys, no_key = typed(inside.field(0), pa.field(f"{field.name}.key", kind.key_type), rules)
        array, why = typed(inside.field(1), kind.item_field.with_name(f"{field.name}[]"), rules, known)
        why = first_of(no_key, why)
        made = pa.MapArray.from_arrays(offsets, pc.fill_null(keys, ""), array).cast(kind)
        made = only_where(~empty, made) if empty.any() else made
        return made, None if why is None else of_whole(why, lengths)
    text = f"field {field.name} is {_word(given)}, and the column has another nested type"
    return pa.nulls(len(column), kind), text_where(~empty, text)


def parts_of(column: pa.ListArray) -> tuple[np.ndarray, pa.Array, pa.Array]:
    """(lengths, offsets, items) of lists, without the items of null lists."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))
    return lengths, offsets, pc.list_flatten(column)


def missing(field: pa.Field, facts: Facts, count: int) -> pa.Array:
    """The values of a field that a file does not have: the schema's default, else null."""
    if facts.default is None:
        return pa.nulls(count, field.type)
    return pa.repeat(pa.scalar(facts.default).cast(field.type), count)


_Convert = Callable[[pa.Array, pa.Field, DecodeRules, Facts], Made]


def _conversion(given: pa.DataType, wanted: pa.DataType) -> _Convert | None:
    """How values of a type become values of another one; None where they are of another kind."""
    t = pa.types
    text, raw = _is_text(given), _is_bytes(given)
    if text and not (_is_text(wanted) or _is_bytes(wanted)):
        return _from_text
    if text or raw:
        return _cast if _is_text(wanted) or _is_bytes(wanted) else None
    if t.is_boolean(given):
        return _cast if _is_text(wanted) else None
    if t.is_integer(given):
        number = t.is_integer(wanted) or t.is_floating(wanted) or t.is_decimal(wanted)
        if number or _is_text(wanted):
            return _cast
        return _from_number if t.is_timestamp(wanted) or t.is_date32(wanted) or t.is_time(wanted) else None
    if t.is_floating(given):
        if t.is_floating(wanted) or t.is_integer(wanted):
            return _cast
        return _in_decimals if t.is_decimal(wanted) else None
    if t.is_decimal(given):
        if t.is_floating(wanted):
            return _in_floats
        return _to_decimal if t.is_decimal(wanted) else _cast if t.is_integer(wanted) or _is_text(wanted) else None
    if t.is_timestamp(given):
        return _cast_time if t.is_timestamp(wanted) or t.is_date32(wanted) else None
    if t.is_date(given):
        return _cast if t.is_date(wanted) or t.is_timestamp(wanted) else None
    return _cast if t.is_time(given) and t.is_time(wanted) else None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    t = pa.types
    return bool(
        t.is_binary(kind) or t.is_large_binary(kind) or (t.is_fixed_size_binary(kind) and not t.is_decimal(kind))
    )


def _cast(column: pa.Array, field: pa.Field, _rules: DecodeRules, _facts: Facts) -> Made:
    return fitted(column, field)


def _cast_time(column: pa.Array, field: pa.Field, rules: DecodeRules, _facts: Facts) -> Made:
    """Timestamps. Without a zone they count as UTC, as in JSON."""
    if rules.truncate_times:
        column = (
            cut_off(column, field.type) if pa.types.is_timestamp(field.type) else pc.floor_temporal(column, unit="day")
        )
    return fitted(column, field)


def _from_number(column: pa.Array, field: pa.Field, _rules: DecodeRules, _facts: Facts) -> Made:
    """Numbers in a column of times: ticks in the column's unit, as in JSON."""
    narrow = pa.types.is_date32(field.type) or pa.types.is_time32(field.type)
    column, reason = fitted(column, pa.field(field.name, pa.int32() if narrow else pa.int64()))
    array, misfit = fitted(column, field)
    return array, first_of(reason, misfit)


def _to_decimal(column: pa.Array, field: pa.Field, rules: DecodeRules, _facts: Facts) -> Made:
    if rules.round_numbers and column.type.scale > field.type.scale:
        column = pc.round(column, ndigits=field.type.scale, round_mode="half_towards_infinity")
    return fitted(column, field)


def _in_decimals(column: pa.Array, field: pa.Field, rules: DecodeRules, _facts: Facts) -> Made:
    """Doubles as decimals: only where the decimal is the same number."""
    array, reason = fitted(column, field)
    back = array.cast(pa.float64())
    lost = mask_of(pc.not_equal(back, column.cast(pa.float64())))
    if rules.round_numbers or not lost.any():
        return array, reason
    return only_where(~lost, array), first_of(reason, _lost(column, lost, field))


def _in_floats(column: pa.Array, field: pa.Field, rules: DecodeRules, _facts: Facts) -> Made:
    """Decimals as doubles or floats: only where their digits are kept."""
    array = column.cast(field.type)
    if rules.round_numbers:
        return array, None
    try:
        back = array.cast(pa.float64()).cast(column.type)
    except pa.ArrowInvalid:  # a double beyond the decimal's digits
        back = pa.nulls(len(column), column.type)
    lost = mask_of(pc.fill_null(pc.not_equal(back, column), True)) & ~nulls_of(column)
    if not lost.any():
        return array, None
    return only_where(~lost, array), _lost(column, lost, field)


def _lost(column: pa.Array, lost: np.ndarray, field: pa.Field) -> pa.Array:
    texts = pc.binary_join_element_wise(
        f"field {field.name}: ", pc.cast(column, pa.string()), f" loses digits in {field.type}", ""
    )
    return only_where(lost, texts)


def _from_text(column: pa.Array, field: pa.Field, rules: DecodeRules, facts: Facts) -> Made:
    """Texts in a column of another type, as the JSON decoder reads them in quotes. A loop over the distinct texts."""
    encoded = pc.dictionary_encode(column.cast(pa.string()))
    coerce = coercer(field.type, rules, facts)
    values: list[object] = []
    reasons: list[str | None] = []
    for text in encoded.dictionary.to_pylist():
        try:
            values.append(coerce(text))
            reasons.append(None)
        except Misfit as e:
            values.append(None)
            reasons.append(f"field {field.name}: {e}")
    array = pa.array(values, field.type).take(encoded.indices)
    if not any(reasons):
        return array, None
    return array, pa.array(reasons, pa.string()).take(encoded.indices)
