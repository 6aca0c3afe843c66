"""Ranges of columns by the statistics in a Parquet file's footer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tagstream.table.file_group.base_file import open_base_file
from tagstream.table.skipping.column_range import NO_ROWS, NO_VALUES, UNKNOWN, ColumnRange
from tagstream.table.storage.storage import Storage


def footer_ranges(storage: Storage, rel: str, fields: Iterable[pa.Field]) -> dict[str, ColumnRange]:
    """The range of each field in a base file; unknown where the file tells nothing or has another type."""
    with open_base_file(storage, rel) as file:
        return {field.name: _range(file, field) for field in fields}


def _range(file: pq.ParquetFile, field: pa.Field) -> ColumnRange:
    metadata = file.metadata
    if metadata.num_rows == 0:
        return NO_ROWS
    if field.name not in file.schema_arrow.names:
        return NO_VALUES  # rows of a file from before the column was added have null there
    if pa.types.is_nested(field.type) or file.schema_arrow.field(field.name).type != field.type:
        return UNKNOWN
    columns = [n for n in range(metadata.num_columns) if metadata.schema.column(n).path == field.name]
    if len(columns) != 1:
        return UNKNOWN
    groups = [metadata.row_group(n).column(columns[0]) for n in range(metadata.num_row_groups)]
    return _union([_of_group(group, field.type) for group in groups if group.num_values])


def _of_group(chunk: pq.ColumnChunkMetaData, kind: pa.DataType) -> ColumnRange:
    statistics = chunk.statistics
    if statistics is None:
        return UNKNOWN
    nulls = statistics.null_count if statistics.has_null_count else None
    if nulls == chunk.num_values:
        return NO_VALUES
    lower, upper = _ends(statistics, kind) if statistics.has_min_max else (None, None)
    return ColumnRange(lower, upper, has_nulls=nulls != 0)


def _ends(statistics: pq.Statistics, kind: pa.DataType) -> tuple[pa.Scalar | None, pa.Scalar | None]:
    try:
        ends: list[Any] = [statistics.min, statistics.max]
        if any(end is None or (isinstance(end, float) and math.isnan(end)) for end in ends):
            return None, None
        return pa.scalar(ends[0], kind), pa.scalar(ends[1], kind)
    except (pa.ArrowException, NotImplementedError, OverflowError, TypeError, ValueError):
        return None, None  # a value that has no Python form, for example a date after the year 9999


def _union(ranges: list[ColumnRange]) -> ColumnRange:
    """The range of all row groups together."""
    valued = [found for found in ranges if not found.all_null]
    has_nulls = any(found.has_nulls for found in ranges)
    if not valued:
        return ColumnRange(has_nulls=has_nulls, all_null=True)
    ends: list[pa.Scalar | None] = []
    for side, pick in (("lower", pc.min), ("upper", pc.max)):
        known = [getattr(found, side) for found in valued]
        ends.append(None if None in known else pick(pa.array([k.as_py() for k in known], known[0].type)))
    return ColumnRange(ends[0], ends[1], has_nulls)
