"""Typed rows as a record format: they are columns already, and are only cast to the table's types.

A batch has one column more than raw records of other formats, ``row``: a struct of Spark's columns. A row becomes text
only where it is bad, for the quarantine. A row with a null that the table's schema does not allow, at any depth, is
bad.

The schema of typed rows determines what a table can store of them, and which columns of a table they fit without losing
a digit. Spark has timestamps in microseconds, and neither a time of day nor fixed-size binary.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import Mask, mask_of, nulls_of, text_where
from tagstream.streaming.source.decode.record_format import Events
from tagstream.streaming.source.decode.text_bytes import only_utf8, python_values
from tagstream.table.chunks import flat
from tagstream.table.errors import ConfigError, UnsupportedTableError
from tagstream.table.schema.schema import arrow_to_avro, avro_json, storage_schema, user_schema

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NARROWER = {pa.int32(): (pa.int64(), pa.float64()), pa.float32(): (pa.float64(),)}


def rows_avro(schema: pa.Schema, delete_field: str, what: str) -> str:
    """Avro JSON of a table for such rows: without Hudi's meta columns, and without the column that marks deletes.

    ``what``: the name of the rows in messages. ConfigError for a column that a table cannot store, and for a delete
    mark that is not boolean.
    """
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        raise ConfigError(f"{what} has more than one column {twice[0]!r}; give each another name")
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
    """``rows`` with the table's type for each column whose values all fit it unchanged, else with the column's own
    type.

    The table says whether a column may be null, and a new column may be. Spark's own nullability changes with the plan.
    """
    return pa.schema([_in_table(field, table) for field in rows])


def _in_table(field: pa.Field, table: pa.Schema) -> pa.Field:
    if field.name not in table.names:
        return field.with_nullable(True)
    own = table.field(field.name)
    return own if fits(field.type, own.type) else field.with_nullable(own.nullable)


def fits(kind: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of the type ``kind`` is also a value of the type ``wanted``."""
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
            f"column {path!r} of {what}: Hudi stores a table's schema in Avro, which does not allow this name (only "
            "letters, digits and _, and no digit first); rename the column"
        )
    kind = field.type
    if pa.types.is_struct(kind):
        for child in kind:
            _check_names(child, what, f"{path}.{child.name}")
    elif pa.types.is_list(kind):
        _check_names(pa.field("element", kind.value_type), what, f"{path}.element")
    elif pa.types.is_map(kind):
        _check_names(pa.field("value", kind.item_type), what, f"{path}.value")


def missing_values(rows: pa.Table, schema: pa.Schema, needed: Mask) -> pa.Array:
    """Why a row lacks a value that ``schema`` requires; null where it has all. ``needed``: the rows to check."""
    reason = pa.nulls(rows.num_rows, pa.string())
    for field in schema:
        if not (field.nullable or pa.types.is_null(field.type)):
            mask = nulls_of(rows.column(field.name)) & needed
            reason = pc.coalesce(
                reason, text_where(mask, f"field {field.name} is null, and the table asks for a value")
            )
        if not asks_inside(field.type):
            continue
        for path, found in _inside(flat(rows.column(field.name)), field.type, field.name):
            mask = found & needed
            if mask.any():
                reason = pc.coalesce(reason, text_where(mask, f"field {path} is null, and the table asks for a value"))
    return reason


def may_lack_all(kind: pa.DataType) -> pa.DataType:
    """The type with everything inside it nullable, for rows before they are checked."""
    t = pa.types
    if not asks_inside(kind):
        return kind
    if t.is_struct(kind):
        return pa.struct([_free(child) for child in kind])
    if t.is_list(kind):
        return pa.list_(_free(kind.value_field))
    return pa.map_(kind.key_type, _free(kind.item_field))


def _free(child: pa.Field) -> pa.Field:
    return pa.field(child.name, may_lack_all(child.type))


def asks_inside(kind: pa.DataType) -> bool:
    """Whether something inside a value must not be null."""
    if pa.types.is_map(kind):  # a key is never null
        return not kind.item_field.nullable or asks_inside(kind.item_type)
    children = [kind.field(n) for n in range(kind.num_fields)]
    return any(not child.nullable or asks_inside(child.type) for child in children)


def _inside(values: pa.Array, kind: pa.DataType, path: str) -> Iterator[tuple[str, Mask]]:
    """(path, mask of rows with a null that is not allowed there) for each child of a nested column."""
    t = pa.types
    there = ~nulls_of(values)
    if t.is_struct(kind):
        for i, child in enumerate(kind):
            inner = values.field(i)  # without the nulls of the struct itself
            if not child.nullable:
                yield f"{path}.{child.name}", nulls_of(inner) & there
            for name, mask in _inside(inner, child.type, f"{path}.{child.name}") if asks_inside(child.type) else ():
                yield name, mask & there
    elif t.is_list(kind) or t.is_map(kind):
        if t.is_map(kind):
            values = values.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
            items, child = pc.struct_field(pc.list_flatten(values), "value"), kind.item_field
        else:
            items, child = pc.list_flatten(values), kind.value_field
        of_row = pc.list_parent_indices(values).to_numpy()
        found = [(path, nulls_of(items))] if not child.nullable else []
        if asks_inside(child.type):
            found += _inside(items, child.type, f"{path}.{child.name}")
        for name, mask in found:
            rows = np.zeros(len(values), np.bool_)
            rows[of_row[mask]] = True
            yield name, rows


ROW = "row"
# A column of records in a transformation: their position in the source, and whether they are deletes.
RECORD = "_tagstream_record"
RECORD_TYPE = pa.struct([("src", pa.string()), ("pos_hi", pa.int64()), ("pos_lo", pa.int64()), ("deleted", pa.bool_())])


class TypedRows:
    """Typed rows. ``schema``: the table's columns. ``delete_field``: the boolean column that is true for deletes."""

    may_lack = False

    def __init__(self, schema: pa.Schema, delete_field: str) -> None:
        self._schema = schema
        self._columns = pa.schema([pa.field(field.name, may_lack_all(field.type)) for field in schema])
        self._delete = delete_field

    def read(self, batch: pa.RecordBatch) -> Events:
        """The rows in the table's types. ConfigError for a column that does not fit the table's."""
        given = batch.column(ROW)
        count = batch.num_rows
        columns = {field.name: given.field(i) for i, field in enumerate(given.type)}
        if (
            self._delete in self._schema.names and self._delete in columns
        ):  # the table stores the mark: null is not a delete
            columns[self._delete] = pc.fill_null(columns[self._delete], False)
        deleted = mask_of(columns[self._delete]) if self._delete in columns else np.zeros(count, np.bool_)
        made = [only_utf8(_column(columns.get(field.name), field, count), field.name) for field in self._columns]
        rows = pa.Table.from_arrays([values for values, _ in made], schema=self._columns)
        wrong = [why for _, why in made if why is not None]
        reason = pc.coalesce(*wrong, missing_values(rows, self._schema, ~deleted))
        nothing = np.zeros(count, np.bool_)
        return Events(batch, rows, reason, deleted, nothing, nothing, lines=lambda bad: row_lines(given, bad))


def _column(values: pa.Array | None, field: pa.Field, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, field.type)
    if values.type == field.type:
        return values
    stored = storage_schema(pa.schema([pa.field(field.name, values.type)])).field(0).type
    if not fits(stored, field.type):
        raise ConfigError(
            f"column {field.name!r} has type {values.type}, but the table has {field.type}: the DataFrame has changed since "
            "the stream started; cast the column in it"
        )
    return values.cast(stored).cast(field.type)


def row_lines(rows: pa.StructArray, wanted: Mask) -> pa.Array:
    """The rows as JSON where the mask is true, else null. A loop over rows, since bad rows are few and each is one
    line.
    """
    # Bytes that are not UTF-8 stay as they are: a line that is replayed is bad again.
    taken = python_values(rows.filter(pa.array(wanted)))
    lines = pa.array(
        [json.dumps(row, default=_as_text, ensure_ascii=False).encode(errors="surrogateescape") for row in taken],
        pa.binary(),
    )
    if len(lines) == len(rows):
        return lines
    place = np.cumsum(wanted) - 1
    return lines.take(pa.array(place, mask=~wanted)) if len(lines) else pa.nulls(len(rows), pa.binary())


def _as_text(value: Any) -> Any:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return str(value)


def with_row(batch: pa.RecordBatch, first: int, task: int, delete_field: str) -> pa.RecordBatch:
    """Spark's columns as the record batch for a decoder.

    The position is that of the source record, if :data:`RECORD` has one; else the task, and the row's number in it from
    ``first`` on. RECORD marks deletes only where the column ``delete_field`` does not exist.
    """
    count = batch.num_rows
    place = {
        "src": pa.nulls(count, pa.string()),
        "pos_hi": pa.array(np.full(count, task, np.int64)),
        "pos_lo": pa.array(np.arange(first, first + count, dtype=np.int64)),
    }
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    record = columns.pop(RECORD, None)
    if record is not None:
        src, high, low, deleted = record.flatten()
        place = {"src": src, "pos_hi": pc.coalesce(high, place["pos_hi"]), "pos_lo": pc.coalesce(low, place["pos_lo"])}
        columns.setdefault(delete_field, deleted)
    fields = [pa.field(name, column.type) for name, column in columns.items()]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.nulls(count, pa.binary()),
            "value": pa.nulls(count, pa.binary()),
            **place,
            ROW: pa.StructArray.from_arrays(list(columns.values()), fields=fields),
        }
    )


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a schema in Spark's types, all nullable."""
    return pa.schema([pa.field(field.name, spark_type(field.type)) for field in schema])


def as_spark_has_it(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in its Spark type. No value changes."""
    values = flat(values)
    wanted = spark_type(values.type)
    return values if values.type == wanted else values.cast(wanted)


def spark_type(kind: pa.DataType) -> pa.DataType:
    """The Spark type for the values of a type. Times of day become the numbers that Avro stores."""
    t = pa.types
    if t.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if t.is_time32(kind):
        return pa.int32()
    if t.is_time64(kind):
        return pa.int64()
    if t.is_fixed_size_binary(kind):
        return pa.binary()
    if t.is_struct(kind):
        return pa.struct([_field(child) for child in kind])
    if t.is_map(kind):
        return pa.map_(kind.key_type, _field(kind.item_field))
    return pa.list_(_field(kind.value_field)) if t.is_list(kind) else kind


def _field(child: pa.Field) -> pa.Field:
    return pa.field(child.name, spark_type(child.type))
