"""Convert rows of older files to the table's schema: wider types, columns by name, lost logical types.

A type is widened, unchanged, or does not fit. Hudi's rules (``SchemaChangeUtils.isTypeUpdateAllow``) allow more.
Here only those changes are allowed that every reader of files of different ages reads correctly: int to long,
float to double, a decimal with more digits before the point.

Hudi 0.x and 1.0 lost logical types when they wrote Parquet: a ``timestamp-millis`` became numbers of milliseconds
under the annotation of microseconds, and a local timestamp became a plain long. Once the table's schema has the right
type, the numbers have its unit, as Hudi 1.2 reads them. No number is divided: only the type changes. Where the table's
schema has microseconds, the numbers are microseconds. This holds at any depth, for base files and log files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.errors import UnsupportedTableError

_MOST_DIGITS = 38


def widened(own: pa.DataType, incoming: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of both types: one of the two, or a wider decimal. None where there is none.

    Returns ``own`` where it holds values of ``incoming``: the same type, or a narrower one.
    """
    if own.equals(incoming):
        return own
    t = pa.types
    if t.is_integer(own) and t.is_integer(incoming):
        return own if own.bit_width >= incoming.bit_width else incoming
    if t.is_floating(own) and t.is_floating(incoming):
        return own if own.bit_width >= incoming.bit_width else incoming
    if t.is_float64(own) and t.is_int32(incoming):  # exact; int to double would need old files to be read as doubles
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
    """Whether values of ``incoming`` are converted to ``own`` one by one, with an error for each that does not fit.

    Examples are timestamps of other units, numbers of a timestamp's units, and decimals of another scale.
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
    """A wider decimal of the same scale: readers do not agree on files of different scales."""
    before = max(own.precision - own.scale, incoming.precision - incoming.scale)
    precision = before + own.scale
    return pa.decimal128(precision, own.scale) if precision <= _MOST_DIGITS else None


def _struct(own: pa.StructType, incoming: pa.StructType) -> pa.DataType | None:
    """Fields by name. A new field is added at the end, a missing one is kept."""
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
    """The name that differs from ``other`` only in case, which some engines treat as the same name; None without one."""
    return next((name for name in names if name != other and name.lower() == other.lower()), None)


def alike(fields: Iterable[pa.Field], path: str = "") -> tuple[str, str] | None:
    """Two fields, at any depth, whose names differ only in case, as dotted paths; None where there are none."""
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
    """The inner fields of a type: members of a struct, elements of a list, keys and values of a map."""
    if pa.types.is_map(kind):
        return (kind.key_field, kind.item_field)
    return [kind.field(n) for n in range(kind.num_fields)]


_Values = TypeVar("_Values", pa.Array, pa.ChunkedArray)


def conform(rows: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """Rows with exactly the columns and types of ``schema``.

    Columns and struct fields are matched by name, as Hudi's schema evolution does: a missing one is null, an additional
    one is dropped. Names of list elements (``array``, ``element``, ``item``) do not matter. UnsupportedTableError for
    values that do not fit; it names the column and ``where`` (a file or block).
    """
    if rows.schema.equals(schema, check_metadata=False):
        return rows
    columns = []
    for field in schema:
        if field.name not in rows.column_names:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, field.type)]))
            continue
        column = rows.column(field.name)
        try:
            columns.append(_as(column, field.type))
        except pa.ArrowException as error:
            raise UnsupportedTableError(
                f"column {field.name!r} of {where} is {column.type} and does not fit {field.type}: {error}; "
                "read it with the schema it was written in"
            ) from error
    # from_arrays does not check nulls: a missing column is null even if the schema says that it is not nullable
    return pa.Table.from_arrays(columns, schema=schema)


def as_type(column: _Values, kind: pa.DataType) -> _Values:
    """A column cast to a type; unchanged if it has it.

    Arrow's cast refuses a non-nullable list inside a null struct. Rows taken by a null position have such values.
    """
    return column if column.type == kind else column.cast(kind)


def as_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows cast to the types of ``schema``. They have its names in the same order."""
    columns = [as_type(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column cast to a type. Floats become doubles as Hudi's readers widen them."""
    if pa.types.is_float64(kind) and pa.types.is_float32(column.type):
        return to_double(column)
    return as_type(column, kind)


_MICROS: Final = pa.timestamp("us", tz="UTC")
_MILLIS: Final = pa.timestamp("ms", tz="UTC")
_LOCAL: Final = (pa.timestamp("ms"), pa.timestamp("us"))


def from_file(rows: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """Rows of a file of the table with exactly the columns and types of the table's schema (see :func:`conform`)."""
    if rows.schema.equals(schema, check_metadata=False):
        return rows
    return conform(as_meant(rows, schema), schema, where)


def as_meant(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of a file with the types that their numbers have under the table's schema; other columns are unchanged."""
    for number, own in enumerate(rows.schema):
        kind = meant_field(own, schema)
        if kind is not own.type:
            chunks = [chunk.view(kind) for chunk in rows.column(number).chunks]
            rows = rows.set_column(number, own.with_type(kind), pa.chunked_array(chunks, kind))
    return rows


def meant_field(own: pa.Field, schema: pa.Schema | None) -> pa.DataType:
    """The type of a file's column under the table's schema; its own type where the schema does not have the column."""
    at = -1 if schema is None else schema.get_field_index(own.name)
    return own.type if schema is None or at < 0 else meant(own.type, schema.field(at).type)


def meant(own: pa.DataType, table: pa.DataType) -> pa.DataType:
    """The type of a file's values under the table's type; ``own`` where the file's type is right."""
    t = pa.types
    if own == _MICROS:
        return _MILLIS if table == _MILLIS else own
    if t.is_int64(own):
        return table if table in _LOCAL else own
    if t.is_struct(own) and t.is_struct(table):
        members = [own.field(n) for n in range(own.num_fields)]
        found = [_member(member, table) for member in members]
        return own if _same(found, members) else pa.struct(found)
    if _is_list(own) and _is_list(table):
        item = _inner(own.value_field, table.value_field)
        if item.type == own.value_type:
            return own
        return pa.large_list(item) if t.is_large_list(own) else pa.list_(item)
    if t.is_map(own) and t.is_map(table):
        item = _inner(own.item_field, table.item_field)
        return own if item.type == own.item_type else pa.map_(own.key_field, item)
    return own


def _member(own: pa.Field, table: pa.StructType) -> pa.Field:
    at = table.get_field_index(own.name)
    return own if at < 0 else _inner(own, table.field(at))


def _inner(own: pa.Field, table: pa.Field) -> pa.Field:
    kind = meant(own.type, table.type)
    return own if kind is own.type else own.with_type(kind)


def _same(found: list[pa.Field], members: list[pa.Field]) -> bool:
    return all(one is other for one, other in zip(found, members, strict=True))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
