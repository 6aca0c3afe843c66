"""Rows as they go into data files: the five meta columns in front of the user columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.file_group.names import seqnos
from tagstream.table.schema.conform import conform
from tagstream.table.schema.schema import FILE_NAME, META_COLUMNS, RECORD_KEY
from tagstream.table.write.write_context import WriteContext

IS_INSERT = "_is_insert"
ORDERING = "_ordering"


def new_rows(ctx: WriteContext, upserts: pa.Table, partition_path: str, file_name: str, first_row: int) -> pa.Table:
    """Incoming rows with this commit's meta columns; ``first_row`` is the task's row counter before them."""
    count, schema = upserts.num_rows, ctx.file_schema
    user = conform(
        upserts.drop_columns([name for name in (*META_COLUMNS, IS_INSERT) if name in upserts.column_names]),
        pa.schema([field for field in schema if field.name not in META_COLUMNS]),
        f"the rows for {partition_path or 'the table'}",
    )
    meta = [
        _constant(ctx.instant, count),
        seqnos(ctx.instant, ctx.task_partition, first_row, count),
        upserts.column(RECORD_KEY),
        _constant(partition_path, count),
        _constant(file_name, count),
    ]
    return pa.Table.from_arrays([*meta, *user.columns], schema=schema)


def copied_rows(rows: pa.Table, file_name: str) -> pa.Table:
    """Rows of an older file as they go into its next version: all meta columns stay but the file's name."""
    index = rows.schema.get_field_index(FILE_NAME)
    return rows.set_column(index, rows.schema.field(index), _constant(file_name, rows.num_rows))


def split_inserts(upserts: pa.Table) -> tuple[int, int]:
    """How many of the rows are inserts and how many updates, as the index has told."""
    inserts = int(pc.sum(upserts.column(IS_INSERT)).as_py() or 0)
    return inserts, upserts.num_rows - inserts


def _constant(value: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.string()), count)
