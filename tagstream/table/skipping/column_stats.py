"""Statistics of columns in data files, from the metadata table's partition ``column_stats``."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa

from tagstream.table.file_group.log.ordering_wrapper import TYPES, convert
from tagstream.table.metadata.metadata_table import COLUMN_STATS_PARTITION, MetadataTable
from tagstream.table.metadata.name_hash import column_stats_key
from tagstream.table.metadata.records import COLUMN_STATS, Record
from tagstream.table.schema.widen import to_double
from tagstream.table.skipping.column_range import NO_ROWS, NO_VALUES, UNKNOWN, ColumnRange

File = tuple[str, str]  # partition path, file name

_PACKAGE: Final = "org.apache.hudi.avro.model."
_BYTES: Final = f"{_PACKAGE}BytesWrapper"
_LOCAL_DATE: Final = f"{_PACKAGE}LocalDateWrapper"
_EPOCH: Final = dt.date(1970, 1, 1)
_WRAPPED_SCALE: Final = 15
_FIRST_UNSAFE: Final = 0xEE  # first UTF-8 byte of U+E000


def column_stats(metadata: MetadataTable, field: pa.Field, files: Sequence[File]) -> pa.Table:
    """One row for each of the files that has statistics of the column.

    Columns ``partition_path``, ``file_name``, ``min`` and ``max`` (of the field's type; null: not known),
    ``value_count`` (rows, nulls among them) and ``null_count``.
    """
    rows = [(*file, *_ends(record, field.type), record["valueCount"], record["nullCount"])
            for _, file, record in _records(metadata, [field.name], files)]  # fmt: skip
    schema = pa.schema([
        ("partition_path", pa.string()), ("file_name", pa.string()), ("min", field.type), ("max", field.type),
        ("value_count", pa.int64()), ("null_count", pa.int64()),
    ])  # fmt: skip
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def metadata_ranges(
    metadata: MetadataTable, fields: Iterable[pa.Field], files: Sequence[File]
) -> dict[File, dict[str, ColumnRange]]:
    """The ranges of the fields in each of the files, unknown ones left out."""
    found: dict[File, dict[str, ColumnRange]] = {file: {} for file in files}
    plain = {
        field.name: field for field in fields if not pa.types.is_nested(field.type)
    }  # in others all counts as null
    for column, file, record in _records(metadata, list(plain), files):
        known = _range(record, plain[column].type)
        if not known.is_unknown:
            found[file][column] = known
    return found


def _records(metadata: MetadataTable, columns: Sequence[str], files: Sequence[File]) -> list[tuple[str, File, Record]]:
    keys = {column_stats_key(column, *file): (column, file) for column in columns for file in files}
    found = metadata.lookup(COLUMN_STATS_PARTITION, list(keys))
    return [(*keys[key], record[COLUMN_STATS]) for key, record in found.items() if record.get(COLUMN_STATS)]


def _range(record: Record, kind: pa.DataType) -> ColumnRange:
    """Where all values are null the ends may be zeros, which mean nothing; a log of deletes has no rows to count."""
    rows, nulls = record["valueCount"], record["nullCount"]
    if rows is None or nulls is None:
        return UNKNOWN
    if rows == 0:
        return NO_ROWS if nulls == 0 and record["minValue"] is None and record["maxValue"] is None else UNKNOWN
    if rows == nulls:
        return NO_VALUES
    lower, upper = (None if end is None else pa.scalar(end, kind) for end in _ends(record, kind))
    return ColumnRange(lower, upper, has_nulls=nulls != 0)


def _ends(record: Record, kind: pa.DataType) -> tuple[Any, Any]:
    return tuple(_value(record[name], record.get("valueType"), kind) for name in ("minValue", "maxValue"))


def _value(wrapped: Any, value_type: Any, kind: pa.DataType) -> Any:
    """A wrapped value as one of the column's type; None where it is not known to mean that."""
    if wrapped is None:
        return None
    name, value = wrapped[0], wrapped[1]["value"]
    try:
        if name == _BYTES and pa.types.is_decimal(kind):
            typed = pa.array([_decimal(value, value_type)], kind)
        elif name == _LOCAL_DATE:
            typed = pa.array([_EPOCH + dt.timedelta(days=value)], pa.date32())
        elif name in TYPES:
            typed = pa.array([value], TYPES[name])
        else:
            return None
        if pa.types.is_float32(typed.type) and pa.types.is_float64(kind):
            typed = to_double(typed)  # a file from before the column was widened, as its values are read
        converted = typed if typed.type == kind else convert(typed, kind)
        found = None if converted is None else converted[0].as_py()
    except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError):
        return None
    return found if _is_ordered_as_here(found) else None


def _decimal(value: bytes, value_type: Any) -> decimal.Decimal:
    """The unscaled number, big-endian. From version 9 on the value's type tells its scale.

    Before, a decimal(30,15) of its own wrapper becomes bytes when Hudi 0.15 compacts the metadata table.
    """
    scale = int(value_type["additionalInfo"].split(",")[1]) if value_type is not None else _WRAPPED_SCALE
    return decimal.Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, decimal.Context(prec=80))


def _is_ordered_as_here(value: Any) -> bool:
    """Whether every value between two such ends in Java's order is between them in Arrow's.

    Java orders texts by UTF-16 units, bytes as signed ones, and NaN after all numbers. A text below U+D800 compares to
    every other text alike in both.
    """
    if isinstance(value, str):
        return all(byte < _FIRST_UNSAFE for byte in value.encode())
    return value is not None and not isinstance(value, bytes) and not (isinstance(value, float) and math.isnan(value))
