"""Bring rows that were written under an older or differently nested schema into a wanted one."""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.schema.widen import to_double

_Values = TypeVar("_Values", pa.Array, pa.ChunkedArray)


def conform(rows: pa.Table, schema: pa.Schema, where: str) -> pa.Table:
    """Rows with exactly the columns and types of ``schema``.

    Columns and struct fields are matched by name, as Hudi's schema evolution does: a missing one is null, one that is
    not wanted is dropped. List element names (``array``, ``element``, ``item``) do not matter. ``where`` (a file or
    block) is named by the UnsupportedTableError of a column whose values do not fit.
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
    # from_arrays does not look at nulls: a missing column is null even where the schema says it never is
    return pa.Table.from_arrays(columns, schema=schema)


def as_type(column: _Values, kind: pa.DataType) -> _Values:
    """A column in a type; one that has it stays as it is.

    Arrow's cast refuses a list that may not be null within a struct that is: a row that was taken by no number has both.
    """
    return column if column.type == kind else column.cast(kind)


def as_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows with the types of ``schema``, whose names they have in the same order."""
    columns = [as_type(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def _as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """A column cast; floats become doubles as Hudi's readers widen them."""
    if pa.types.is_float64(kind) and pa.types.is_float32(column.type):
        return to_double(column)
    return as_type(column, kind)
