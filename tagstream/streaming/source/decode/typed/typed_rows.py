"""Typed rows as a format of records: they are columns already, and are only brought to the table's types.

A batch has one column more than other formats' raw records, ``row``: a struct of the columns that Spark gave. A row is text
only where it is bad, for the quarantine.
"""

from __future__ import annotations

import base64
import json
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import Mask, mask_of
from tagstream.streaming.source.decode.events import Events
from tagstream.streaming.source.decode.typed.required import may_lack_all, missing_values
from tagstream.streaming.source.decode.typed.typed_schema import fits
from tagstream.table.errors import ConfigError
from tagstream.table.schema.schema import storage_schema

ROW = "row"
# Of a record on its way through a transformation: where it stands in the source, and whether it is a delete.
RECORD = "_tagstream_record"
RECORD_TYPE = pa.struct([("src", pa.string()), ("pos_hi", pa.int64()), ("pos_lo", pa.int64()), ("deleted", pa.bool_())])


class TypedRows:
    """``schema``: the table's columns; ``delete_field``: the boolean column whose true rows are deletes."""

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
        ):  # a table that keeps the mark: null is no delete
            columns[self._delete] = pc.fill_null(columns[self._delete], False)
        deleted = mask_of(columns[self._delete]) if self._delete in columns else np.zeros(count, np.bool_)
        rows = pa.Table.from_arrays(
            [_column(columns.get(field.name), field, count) for field in self._columns],
            schema=self._columns,
        )
        reason = missing_values(rows, self._schema, ~deleted)
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
            f"column {field.name!r} comes as {values.type}, and the table has {field.type}: the DataFrame has changed since "
            "the stream began; cast the column in it"
        )
    return values.cast(stored).cast(field.type)


def row_lines(rows: pa.StructArray, wanted: Mask) -> pa.Array:
    """The rows as JSON where the mask is, else null. A loop: bad rows are few, and each is its own line."""
    taken = rows.filter(pa.array(wanted)).to_pylist()
    lines = pa.array([json.dumps(row, default=_as_text, ensure_ascii=False).encode() for row in taken], pa.binary())
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
    """Columns of Spark's as the record batch that a decoder takes.

    Position: that of the record that the row was made of, where :data:`RECORD` tells it; else the task, and the row's number
    in it from ``first`` on. What RECORD says of deletes counts where there is no column ``delete_field``.
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
