"""What becomes of a column's type when values of another type come: it is widened, it stays, or the two do not go together.

Hudi's own rules (``SchemaChangeUtils.isTypeUpdateAllow``) allow more; taken here is what every reader of files of different
ages gives rightly back: int to long, float to double, a decimal of more digits before the point.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

_MOST_DIGITS = 38


def widened(own: pa.DataType, incoming: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of both, one of the two or a wider decimal; None where there is none.

    ``own`` comes back where it holds what comes: the same type, or a narrower one.
    """
    if own.equals(incoming):
        return own
    t = pa.types
    if t.is_integer(own) and t.is_integer(incoming):
        return own if own.bit_width >= incoming.bit_width else incoming
    if t.is_floating(own) and t.is_floating(incoming):
        return own if own.bit_width >= incoming.bit_width else incoming
    if t.is_float64(own) and t.is_int32(incoming):  # exact; the other way old files would have to be read as doubles
        return own
    if t.is_decimal(own) and t.is_decimal(incoming):
        return _decimal(own, incoming)
    if t.is_struct(own) and t.is_struct(incoming):
        return _struct(own, incoming)
    if t.is_list(own) and t.is_list(incoming):
        inner = _element(own.value_field, incoming.value_field)
        return None if inner is None else pa.list_(inner)
    if t.is_map(own) and t.is_map(incoming) and own.key_type.equals(incoming.key_type):
        inner = _element(own.item_field, incoming.item_field)
        return None if inner is None else pa.map_(own.key_type, inner)
    return None


def is_judged(own: pa.DataType, incoming: pa.DataType) -> bool:
    """Whether values of the one type go into the other one by one, as far as each fits: moments of other units, numbers of
    a moment's ticks, decimals of another scale.
    """
    t = pa.types
    if t.is_decimal(own):
        return bool(t.is_decimal(incoming))
    if t.is_timestamp(own) or t.is_time(own):
        return bool(t.is_timestamp(incoming) or t.is_time(incoming) or t.is_int64(incoming))
    return bool(t.is_int64(own) and (t.is_timestamp(incoming) or t.is_time(incoming)))


def to_double(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Floats as doubles by their shortest digits (0.3, not 0.30000001192092896), as Hudi's readers widen them."""
    return pc.cast(pc.cast(values, pa.string()), pa.float64())


def _decimal(own: pa.Decimal128Type, incoming: pa.Decimal128Type) -> pa.DataType | None:
    """The scale never changes: readers do not agree on files of different scales. Digits before the point are added."""
    before = max(own.precision - own.scale, incoming.precision - incoming.scale)
    precision = before + own.scale
    return pa.decimal128(precision, own.scale) if precision <= _MOST_DIGITS else None


def _struct(own: pa.StructType, incoming: pa.StructType) -> pa.DataType | None:
    """Fields by name; one that only what comes has is added behind the others, one that it lacks stays."""
    fields: list[pa.Field] = []
    for field in own:
        at = incoming.get_field_index(field.name)
        if at < 0:
            fields.append(field.with_nullable(True))
            continue
        other = incoming.field(at)
        made = _element(field, other)
        if made is None:
            return None
        fields.append(made)
    names = {field.name.lower() for field in own}
    for field in incoming:
        if own.get_field_index(field.name) < 0:
            if field.name.lower() in names:
                return None
            fields.append(field.with_nullable(True))
    return pa.struct(fields)


def _element(own: pa.Field, incoming: pa.Field) -> pa.Field | None:
    kind = widened(own.type, incoming.type)
    return None if kind is None else own.with_type(kind).with_nullable(own.nullable or incoming.nullable)


def same_names(names: Sequence[str], other: str) -> str | None:
    """The one of the names that differs from ``other`` in its case alone: some engines take the two for one."""
    return next((name for name in names if name != other and name.lower() == other.lower()), None)


def alike(fields: Iterable[pa.Field], path: str = "") -> tuple[str, str] | None:
    """Two fields, at any depth, whose names differ in their case alone, as dotted paths; None where there are none."""
    seen: dict[str, str] = {}
    for field in fields:
        name = f"{path}{field.name}"
        first = seen.setdefault(field.name.lower(), name)
        if first != name:
            return first, name
        found = alike(_within(field.type), f"{name}.")
        if found is not None:
            return found
    return None


def _within(kind: pa.DataType) -> Iterable[pa.Field]:
    """The fields of a type's values: members of a struct, elements of a list, keys and values of a map."""
    if pa.types.is_map(kind):
        return (kind.key_field, kind.item_field)
    return [kind.field(n) for n in range(kind.num_fields)]
