"""Values of fields and their order: the fields of record keys, partition paths and ordering values.

A field is a column, or a field of a struct column by its dotted path. It is null where the struct is null. An
ordering value is the value of one field, or a struct of the values of several fields, compared member by member. A
struct with a null member is null itself and has no order.
Hudi compares ordering values as Java does: -0.0 is smaller than 0.0, and NaN is greater than every number and
equal to itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.chunks import flat
from tagstream.table.errors import ConfigError


def path_of(name: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Path of a field: the column of this name, or else the steps of a dotted path into a struct column."""
    return (name,) if name in columns else tuple(name.split("."))


def column_of(rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    """A column, or a field of a struct column by its dotted path, as one array; ConfigError for an unknown name."""
    return flat(pieces_of(rows, name))


def pieces_of(rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array | pa.ChunkedArray:
    """The same as :func:`column_of`, but the chunks stay as they are, and nothing is copied."""
    head, *path = path_of(name, rows.schema.names)
    if head not in rows.schema.names:
        raise ConfigError(f"field {name!r} is not in the schema ({', '.join(rows.schema.names)})")
    values = rows.column(head)
    for field in path:
        if not pa.types.is_struct(values.type) or values.type.get_field_index(field) < 0:
            raise ConfigError(f"field {name!r} is not in the schema: {values.type} has no {field!r}")
        values = pc.struct_field(values, field)
    return values


def type_of(schema: pa.Schema, name: str) -> pa.DataType:
    """Type of the column of this name, or of the field of a struct column at this dotted path; KeyError without one."""
    head, *path = path_of(name, schema.names)
    kind = schema.field(head).type
    for step in path:
        if not pa.types.is_struct(kind) or kind.get_field_index(step) < 0:
            raise KeyError(f"{name}: {kind} has no {step!r}")
        kind = kind.field(step).type
    return kind


def has_field(schema: pa.Schema, name: str) -> bool:
    """Whether there is a column of this name, or a field of a struct column at this dotted path."""
    try:
        type_of(schema, name)
    except KeyError:
        return False
    return True


def columns_of(names: Iterable[str], columns: Sequence[str]) -> tuple[str, ...]:
    """The top-level columns of these fields, each once."""
    return tuple(dict.fromkeys(path_of(name, columns)[0] for name in names))


def with_type(schema: pa.Schema, name: str, kind: pa.DataType) -> pa.Schema:
    """The schema with this type for a column or for a field of a struct column, which is added where it is missing."""
    head, *path = path_of(name, schema.names)
    place = schema.get_field_index(head)
    if place < 0:
        return schema.append(pa.field(head, _typed(None, path, kind)))
    return schema.set(place, schema.field(place).with_type(_typed(schema.field(place).type, path, kind)))


def _typed(old: pa.DataType | None, path: Sequence[str], kind: pa.DataType) -> pa.DataType:
    if not path:
        return kind
    members = {member.name: member for member in old or ()}
    own = members.get(path[0], pa.field(path[0], pa.null()))
    made = _typed(own.type if pa.types.is_struct(own.type) else None, path[1:], kind)
    return pa.struct([*(members | {path[0]: own.with_type(made)}).values()])


def is_missing(values: pa.Array) -> pa.Array:
    """Whether a value is null or, in a text column, empty."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.string())
    if not is_text(values.type):
        return pc.is_null(values)
    return pc.fill_null(pc.equal(values, ""), True)


def is_text(kind: pa.DataType) -> bool:
    """Whether a type is text, or a dictionary of text."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


_Ints = npt.NDArray[np.int64]


def ordering_type(schema: pa.Schema, fields: Sequence[str]) -> pa.DataType | None:
    """Type of the ordering values; None without a field. KeyError for a field that is not in the schema."""
    if len(fields) < 2:
        return type_of(schema, fields[0]) if fields else None
    return pa.struct([pa.field(name, type_of(schema, name)) for name in fields])


def ordering_column(rows: pa.Table, fields: Sequence[str]) -> pa.Array | None:
    """Ordering values of rows; None without a field."""
    if len(fields) < 2:
        return column_of(rows, fields[0]) if fields else None
    return tuples([column_of(rows, name) for name in fields], fields)


def tuples(members: Sequence[pa.Array], names: Sequence[str]) -> pa.StructArray:
    """One struct of the members' values, null where any member is null."""
    unknown = np.zeros(len(members[0]), np.bool_)
    for member in members:
        if member.null_count:
            unknown |= member.is_null().to_numpy(zero_copy_only=False)
    fields = [pa.field(name, member.type) for name, member in zip(names, members, strict=True)]
    mask = pa.array(unknown) if unknown.any() else None
    return pa.StructArray.from_arrays(list(members), fields=fields, mask=mask)


def struct_of(members: Sequence[pa.Array], fields: Sequence[pa.Field], absent: npt.NDArray[np.bool_]) -> pa.StructArray:
    """One struct of the members' values, null where ``absent``.

    A member that is null there gets any value: Parquet's writer, and casts, refuse a null in a field that may not be
    null, although its struct is null.
    """
    if not absent.any():
        return pa.StructArray.from_arrays(list(members), fields=list(fields))
    filled = [_filled(member, absent) if member.null_count else member for member in members]
    return pa.StructArray.from_arrays(filled, fields=list(fields), mask=pa.array(absent))


def _filled(member: pa.Array, absent: npt.NDArray[np.bool_]) -> pa.Array:
    inside = pa.struct([pa.field("v", member.type, nullable=False)])
    blank = pa.array([None], inside).field(0)  # Arrow's own value below a null struct
    place = np.where(absent, len(member), np.arange(len(member)))
    return pa.concat_arrays([member, blank]).take(pa.array(place))


def greater(left: pa.Array, right: pa.Array) -> pa.Array:
    """Whether the left value is greater than the right one; null where either is null."""
    if not pa.types.is_struct(left.type):
        return pc.greater(_in_order(left), _in_order(right))
    sides = [(_in_order(a), _in_order(b)) for a, b in zip(left.flatten(), right.flatten(), strict=True)]
    found = pc.greater(*sides[-1])
    for one, other in sides[-2::-1]:
        found = pc.or_(pc.greater(one, other), pc.and_(pc.equal(one, other), found))
    return found


def ranks(values: pa.Array) -> _Ints:
    """Ranks (int64) in the order of the values, the same rank for equal values. Nulls are the smallest and have 0."""
    if not pa.types.is_struct(values.type):
        numbers: _Ints = (
            pc.rank(_in_order(values), sort_keys="ascending", tiebreaker="dense").to_numpy().astype(np.int64)
        )
    else:
        numbers = np.zeros(len(values), np.int64)
        for member in values.flatten():
            own = ranks(member)
            _, combined = np.unique(numbers * (int(own.max(initial=0)) + 1) + own, return_inverse=True)
            numbers = combined.astype(np.int64) + 1
    numbers[values.is_null().to_numpy(zero_copy_only=False)] = 0
    return numbers


def double_codes(values: npt.NDArray[np.float64]) -> _Ints:
    """int64 in the order of ``java.lang.Double.compare``: IEEE bits, with the magnitude of negative numbers inverted."""
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)


def _in_order(values: pa.Array) -> pa.Array:
    """Values that Arrow compares as Java compares the given ones."""
    if not pa.types.is_floating(values.type):
        return values
    numbers = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False)
    return pa.array(double_codes(numbers), pa.int64(), mask=values.is_null().to_numpy(zero_copy_only=False))
