"""The columns that keys and partition paths are made of."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import ConfigError


def path_of(name: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Where a field is: the column of this name, or else the steps of a dotted path into a struct column."""
    return (name,) if name in columns else tuple(name.split("."))


def column_of(rows: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    """Column of a name, or a field of a struct column by its dotted path."""
    head, *path = path_of(name, rows.schema.names)
    if head not in rows.schema.names:
        raise ConfigError(f"key or partition field {name!r} is not in the schema ({', '.join(rows.schema.names)})")
    values = rows.column(head)
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    for field in path:
        if not pa.types.is_struct(values.type) or values.type.get_field_index(field) < 0:
            raise ConfigError(f"key or partition field {name!r} is not in the schema: {values.type} has no {field!r}")
        values = pc.struct_field(values, field)
    return values


def has_field(schema: pa.Schema, name: str) -> bool:
    """Whether there is a column of this name, or a field of a struct column at this dotted path."""
    if name in schema.names:
        return True
    head, *path = name.split(".")
    kind = schema.field(head).type if path and head in schema.names else None
    for step in path:
        if kind is None or not pa.types.is_struct(kind) or kind.get_field_index(step) < 0:
            return False
        kind = kind.field(step).type
    return kind is not None


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
