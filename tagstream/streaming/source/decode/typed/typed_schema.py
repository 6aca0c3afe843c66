"""The schema of typed rows: what a table can hold of it, and which columns of a table it fits without losing a digit."""

from __future__ import annotations

import re

import pyarrow as pa

from tagstream.table.errors import ConfigError, UnsupportedTableError
from tagstream.table.schema.schema import arrow_to_avro, avro_json, user_schema

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NARROWER = {pa.int32(): (pa.int64(), pa.float64()), pa.float32(): (pa.float64(),)}


def rows_avro(schema: pa.Schema, delete_field: str, what: str) -> str:
    """Avro JSON of a table of such rows: without Hudi's meta columns, and without the column that marks deletes.

    ``what``: how the rows are called in messages. ConfigError for a column that no table can hold, and for a mark of deletes
    that is not boolean.
    """
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise ConfigError(f"{what} has more than one column {twice[0]!r}; give each a name of its own")
    for field in schema:
        _check_names(field, what, field.name)
    if delete_field in schema.names and not pa.types.is_boolean(schema.field(delete_field).type):
        raise ConfigError(
            f"column {delete_field!r} of {what} is {schema.field(delete_field).type}; it marks deletes and must be boolean"
        )
    columns = [field for field in user_schema(schema) if field.name != delete_field]
    try:
        return avro_json(arrow_to_avro(pa.schema(columns), "rows"))
    except UnsupportedTableError as e:
        raise ConfigError(f"{what}: {e}; cast the column, or leave it out") from e


def in_table_types(rows: pa.Schema, table: pa.Schema) -> pa.Schema:
    """``rows`` with the table's type wherever every value of a column fits it unchanged, else with its own.

    Whether a column may be null the table says, and new columns may: what Spark infers of that changes with the plan.
    """
    return pa.schema([_in_table(field, table) for field in rows])


def _in_table(field: pa.Field, table: pa.Schema) -> pa.Field:
    if field.name not in table.names:
        return field.with_nullable(True)
    own = table.field(field.name)
    return own if fits(field.type, own.type) else field.with_nullable(own.nullable)


def fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of a type is one of another type, too."""
    t = pa.types
    if kind == wanted or wanted in _NARROWER.get(kind, ()):
        return True
    if t.is_decimal(kind) and t.is_decimal(wanted):
        return bool(wanted.scale >= kind.scale and wanted.precision - wanted.scale >= kind.precision - kind.scale)
    if t.is_struct(kind) and t.is_struct(wanted):
        names = {field.name for field in kind}
        same = names == {field.name for field in wanted}
        return same and all(fits(field.type, wanted.field(field.name).type) for field in kind)
    if t.is_list(kind) and t.is_list(wanted):
        return fits(kind.value_type, wanted.value_type)
    if t.is_map(kind) and t.is_map(wanted):
        return fits(kind.key_type, wanted.key_type) and fits(kind.item_type, wanted.item_type)
    return False


def _check_names(field: pa.Field, what: str, path: str) -> None:
    if not _NAME.fullmatch(field.name):
        raise ConfigError(
            f"column {path!r} of {what}: Avro, in which Hudi keeps a table's schema, has no such name (letters, digits and "
            "_ alone, a digit not first); give the column another name"
        )
    kind = field.type
    if pa.types.is_struct(kind):
        for child in kind:
            _check_names(child, what, f"{path}.{child.name}")
    elif pa.types.is_list(kind):
        _check_names(pa.field("element", kind.value_type), what, f"{path}.element")
    elif pa.types.is_map(kind):
        _check_names(pa.field("value", kind.item_type), what, f"{path}.value")
