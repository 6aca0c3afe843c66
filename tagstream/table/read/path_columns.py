"""Partition columns that a table's files leave out: their values by the path of the partition."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tagstream.table.errors import UnsupportedTableError
from tagstream.table.keys.partition_path import values_of_path
from tagstream.table.meta_client.table_config import TableConfig


def path_columns(config: TableConfig, partition_path: str, names: Sequence[str]) -> dict[str, str | None]:
    """The text of each of the columns ``names`` that only the path holds; null of a partition without a value.

    UnsupportedTableError for a path that does not tell.
    """
    wanted = [name for name in names if name in config.dropped_fields]
    if not wanted:
        return {}
    values = values_of_path(partition_path, config.partition_fields)
    if values is None:
        raise UnsupportedTableError(
            f"table {config.name}: the path of partition {partition_path!r} has not one folder for each of its partition "
            f"columns ({', '.join(config.partition_fields)}), which its files leave out, so it does not tell their values"
        )
    return {name: value for name, value in zip(config.partition_fields, values, strict=True) if name in wanted}


def with_path_columns(rows: pa.Table, values: dict[str, str | None]) -> pa.Table:
    """The rows with these columns' values in every row; one that they lack comes behind the others."""
    for name, value in values.items():
        place, field = rows.schema.get_field_index(name), pa.field(name, pa.string())
        column = pa.repeat(pa.scalar(value, pa.string()), rows.num_rows)
        rows = rows.append_column(field, column) if place < 0 else rows.set_column(place, field, column)
    return rows
