"""What a file's columns mean under the table's schema, where older releases of Hudi wrote another type than they meant.

Hudi 0.x and 1.0 lost the logical types of a record on the way to Parquet: a ``timestamp-millis`` became numbers of
milliseconds under the annotation of microseconds, a local timestamp a plain long. Once the table's schema says the right
type, the numbers are of its unit, as Hudi 1.2 reads them. Nothing is divided: only the type changes. Where the table's
schema says microseconds itself, they are microseconds. At any depth; the same for base files and logs.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tagstream.table.schema.conform import conform

_MICROS: Final = pa.timestamp("us", tz="UTC")
_MILLIS: Final = pa.timestamp("ms", tz="UTC")
_LOCAL: Final = (pa.timestamp("ms"), pa.timestamp("us"))


def from_file(rows: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """Rows of a file of the table with exactly the columns and types of the table's schema (see ``conform``)."""
    if rows.schema.equals(schema, check_metadata=False):
        return rows
    return conform(as_meant(rows, schema), schema, where)


def as_meant(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of a file with the types that its numbers have under the table's schema; all else stays as it is."""
    for number, own in enumerate(rows.schema):
        kind = meant_field(own, schema)
        if kind is not own.type:
            chunks = [chunk.view(kind) for chunk in rows.column(number).chunks]
            rows = rows.set_column(number, own.with_type(kind), pa.chunked_array(chunks, kind))
    return rows


def meant_field(own: pa.Field, schema: pa.Schema | None) -> pa.DataType:
    """The same of a column under the table's schema; its own type where the schema does not tell of it."""
    at = -1 if schema is None else schema.get_field_index(own.name)
    return own.type if schema is None or at < 0 else meant(own.type, schema.field(at).type)


def meant(own: pa.DataType, table: pa.DataType) -> pa.DataType:
    """The type that values of a file's type have under the table's type; ``own`` where the file says what it means."""
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
