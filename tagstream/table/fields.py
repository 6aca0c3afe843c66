"""Fields that keys, partition paths and the order of events are made of: columns, and fields of struct columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.chunks import flat
from tagstream.table.errors import ConfigError


def path_of(name: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Where a field is: the column of this name, or else the steps of a dotted path into a struct column."""
    return (name,) if name in columns else tuple(name.split("."))


def column_of(rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    """Column of a name, or a field of a struct column by its dotted path, in one piece."""
    return flat(pieces_of(rows, name))


def pieces_of(rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array | pa.ChunkedArray:
    """The same in the pieces that the rows are in: nothing is copied to put them together."""
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
    """Type of the column of a name, or of a field of a struct column by its dotted path; KeyError without one."""
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
    """The columns that hold fields, each once."""
    return tuple(dict.fromkeys(path_of(name, columns)[0] for name in names))


def with_type(schema: pa.Schema, name: str, kind: pa.DataType) -> pa.Schema:
    """The schema with a column, or a field of a struct column, of this type: another type of what it has, or a new one."""
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
    """Null or, where the values are text, empty."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.string())
    if not is_text(values.type):
        return pc.is_null(values)
    return pc.fill_null(pc.equal(values, ""), True)


def is_text(kind: pa.DataType) -> bool:
    """Whether values of a type are texts, a dictionary of them among them."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))
