"""Ranges of a column's values in a file, and whether a filter can match any of them.

Ranges come from the metadata table's partition ``column_stats``, from the statistics in a Parquet file's footer, or
from the path of a partition, as the simple and the complex key generator make paths.

A row's partition column has the value in the path of its partition. Every Hudi reader prunes by it. It is not true for
rows that an index keeps in their old partition when they move (``hoodie.*.update.partition.path=false``).
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tagstream.table.file_group.base_file import open_base_file
from tagstream.table.file_group.ordering_wrapper import TYPES, convert
from tagstream.table.keys.generators import generator_of
from tagstream.table.keys.keys import DEFAULT_PARTITION, values_of_path
from tagstream.table.meta_client.table_config import TableConfig
from tagstream.table.metadata.metadata_table import COLUMN_STATS_PARTITION, MetadataTable
from tagstream.table.metadata.records import COLUMN_STATS, Record, column_stats_key
from tagstream.table.read.filters import Filter, Op
from tagstream.table.schema.conform import to_double
from tagstream.table.storage.storage import Storage


@dataclass(frozen=True)
class ColumnRange:
    """The range of a column: no value is smaller than ``lower`` or greater than ``upper`` (None: not known).

    The bounds need not occur as values. ``has_nulls`` False: no value is null. ``all_null``: all values are null.
    """

    lower: pa.Scalar | None = None
    upper: pa.Scalar | None = None
    has_nulls: bool = True
    all_null: bool = False

    @property
    def is_unknown(self) -> bool:
        """True when the range excludes nothing."""
        return self.lower is None and self.upper is None and self.has_nulls and not self.all_null


UNKNOWN = ColumnRange()
NO_VALUES = ColumnRange(all_null=True)
NO_ROWS = ColumnRange(has_nulls=False, all_null=True)


def may_match(wanted: Filter, known: ColumnRange) -> bool:
    """False only when no row with values in the range can match the filter."""
    if wanted.op is Op.IS_NULL:
        return known.has_nulls
    if known.all_null:
        return False
    if wanted.op is Op.IS_NOT_NULL:
        return True
    inside = wanted.values
    if wanted.op is Op.NE:
        # NaN is unequal to every value, and outside of all ranges.
        return pa.types.is_floating(wanted.field.type) or not _is_only(known, inside[0])
    if known.lower is not None:
        inside = inside.filter(_LOWER[wanted.op](inside, known.lower))
    if known.upper is not None:
        inside = inside.filter(_UPPER[wanted.op](inside, known.upper))
    return len(inside) > 0


def _any(values: pa.Array, _: pa.Scalar) -> pa.Array:
    return values.is_valid()


# How the filter's value must compare with the least and with the greatest value of the column.
_LOWER = {Op.EQ: pc.greater_equal, Op.IN: pc.greater_equal, Op.LT: pc.greater, Op.LE: pc.greater_equal, Op.GT: _any,
          Op.GE: _any}  # fmt: skip
_UPPER = {Op.EQ: pc.less_equal, Op.IN: pc.less_equal, Op.LT: _any, Op.LE: _any, Op.GT: pc.less,
          Op.GE: pc.less_equal}  # fmt: skip


def _is_only(known: ColumnRange, value: pa.Scalar) -> bool:
    """Whether both bounds are this value, so that the column has no other one."""
    ends = (known.lower, known.upper)
    return all(end is not None and pc.equal(end, value).as_py() for end in ends)


File = tuple[str, str]  # partition path, file name

_PACKAGE: Final = "org.apache.hudi.avro.model."
_BYTES: Final = f"{_PACKAGE}BytesWrapper"
_LOCAL_DATE: Final = f"{_PACKAGE}LocalDateWrapper"
_EPOCH: Final = dt.date(1970, 1, 1)
_WRAPPED_SCALE: Final = 15
_FIRST_UNSAFE: Final = 0xEE  # first UTF-8 byte of U+E000


def column_stats(metadata: MetadataTable, field: pa.Field, files: Sequence[File]) -> pa.Table:
    """One row for each of the files that has statistics of the column.

    Columns: ``partition_path``, ``file_name``, ``min`` and ``max`` (of the field's type; null: not known),
    ``value_count`` (rows, including nulls) and ``null_count``.
    """
    rows = [(*file, *_ends_of_record(record, field.type), record["valueCount"], record["nullCount"])
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
    }  # all values of nested columns count as null
    for column, file, record in _records(metadata, list(plain), files):
        known = _range_of_record(record, plain[column].type)
        if not known.is_unknown:
            found[file][column] = known
    return found


def _records(metadata: MetadataTable, columns: Sequence[str], files: Sequence[File]) -> list[tuple[str, File, Record]]:
    keys = {column_stats_key(column, *file): (column, file) for column in columns for file in files}
    found = metadata.lookup(COLUMN_STATS_PARTITION, list(keys))
    return [(*keys[key], record[COLUMN_STATS]) for key, record in found.items() if record.get(COLUMN_STATS)]


def _range_of_record(record: Record, kind: pa.DataType) -> ColumnRange:
    """The range of a record of column statistics. If all values are null, the bounds may be meaningless zeros."""
    rows, nulls = record["valueCount"], record["nullCount"]
    if rows is None or nulls is None:
        return UNKNOWN
    if rows == 0:
        return NO_ROWS if nulls == 0 and record["minValue"] is None and record["maxValue"] is None else UNKNOWN
    if rows == nulls:
        return NO_VALUES
    lower, upper = (None if end is None else pa.scalar(end, kind) for end in _ends_of_record(record, kind))
    return ColumnRange(lower, upper, has_nulls=nulls != 0)


def _ends_of_record(record: Record, kind: pa.DataType) -> tuple[Any, Any]:
    return tuple(_value(record[name], record.get("valueType"), kind) for name in ("minValue", "maxValue"))


def _value(wrapped: Any, value_type: Any, kind: pa.DataType) -> Any:
    """A wrapped value as a value of the column's type; None when it cannot be converted safely."""
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
            typed = to_double(typed)  # a file from before the column was widened; its values are read in the same way
        converted = typed if typed.type == kind else convert(typed, kind)
        found = None if converted is None else converted[0].as_py()
    except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError):
        return None
    return found if _is_ordered_as_here(found) else None


def _decimal(value: bytes, value_type: Any) -> decimal.Decimal:
    """A decimal from the bytes of its unscaled number, big-endian. From version 9 on ``value_type`` has the scale.

    Before, Hudi 0.15 turns its decimal(30,15) wrapper into bytes when it compacts the metadata table.
    """
    scale = int(value_type["additionalInfo"].split(",")[1]) if value_type is not None else _WRAPPED_SCALE
    return decimal.Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale, decimal.Context(prec=80))


def _is_ordered_as_here(value: Any) -> bool:
    """Whether every value between two such bounds in Java's order is between them in Arrow's, too.

    Java compares texts by UTF-16 units and bytes as signed numbers, and NaN is the greatest number. A text below U+D800
    compares with every other text in the same way in both.
    """
    if isinstance(value, str):
        return all(byte < _FIRST_UNSAFE for byte in value.encode())
    return value is not None and not isinstance(value, bytes) and not (isinstance(value, float) and math.isnan(value))


def footer_ranges(storage: Storage, rel: str, fields: Iterable[pa.Field]) -> dict[str, ColumnRange]:
    """The range of each field in a base file; unknown where the file has no statistics or another type."""
    with open_base_file(storage, rel) as file:
        return {field.name: _range_of_footer(file, field) for field in fields}


def _range_of_footer(file: pq.ParquetFile, field: pa.Field) -> ColumnRange:
    metadata = file.metadata
    if metadata.num_rows == 0:
        return NO_ROWS
    if field.name not in file.schema_arrow.names:
        return NO_VALUES  # the file is older than the column, which is null in its rows
    if pa.types.is_nested(field.type) or file.schema_arrow.field(field.name).type != field.type:
        return UNKNOWN
    columns = [n for n in range(metadata.num_columns) if metadata.schema.column(n).path == field.name]
    if len(columns) != 1:
        return UNKNOWN
    groups = [metadata.row_group(n).column(columns[0]) for n in range(metadata.num_row_groups)]
    return _range_of_groups([_range_of_group(group, field.type) for group in groups if group.num_values])


def _range_of_group(chunk: pq.ColumnChunkMetaData, kind: pa.DataType) -> ColumnRange:
    statistics = chunk.statistics
    if statistics is None:
        return UNKNOWN
    nulls = statistics.null_count if statistics.has_null_count else None
    if nulls == chunk.num_values:
        return NO_VALUES
    lower, upper = _ends_of_statistics(statistics, kind) if statistics.has_min_max else (None, None)
    return ColumnRange(lower, upper, has_nulls=nulls != 0)


def _ends_of_statistics(statistics: pq.Statistics, kind: pa.DataType) -> tuple[pa.Scalar | None, pa.Scalar | None]:
    try:
        ends: list[Any] = [statistics.min, statistics.max]
        if any(end is None or (isinstance(end, float) and math.isnan(end)) for end in ends):
            return None, None
        return pa.scalar(ends[0], kind), pa.scalar(ends[1], kind)
    except (pa.ArrowException, NotImplementedError, OverflowError, TypeError, ValueError):
        return None, None  # a value without a Python form, for example a date after the year 9999


def _range_of_groups(ranges: list[ColumnRange]) -> ColumnRange:
    """The common range of all row groups."""
    valued = [found for found in ranges if not found.all_null]
    has_nulls = any(found.has_nulls for found in ranges)
    if not valued:
        return ColumnRange(has_nulls=has_nulls, all_null=True)
    ends: list[pa.Scalar | None] = []
    for side, pick in (("lower", pc.min), ("upper", pc.max)):
        known = [getattr(found, side) for found in valued]
        ends.append(None if None in known else pick(pa.array([k.as_py() for k in known], known[0].type)))
    return ColumnRange(ends[0], ends[1], has_nulls)


_NO_VALUE = (DEFAULT_PARTITION, "default", "")
_ESCAPED = re.compile("%([0-9A-Fa-f]{2})")


def partition_ranges(config: TableConfig, partition_path: str, schema: pa.Schema) -> dict[str, ColumnRange]:
    """The value of each partition column in a path, as a range; without columns that the path does not determine."""
    if config.dropped_fields:
        return _of_dropped(config, partition_path, schema)
    generator = generator_of(config.key_generator)
    segments = partition_path.split("/")
    if generator is None or not generator.path_has_values or len(segments) != len(config.partition_fields):
        return {}
    named = zip(config.partition_fields, segments, strict=True)
    return {
        name: _range_of_folder(config, name, text, schema.field(name).type)
        for name, text in named
        if name in schema.names
    }


def _of_dropped(config: TableConfig, path: str, schema: pa.Schema) -> dict[str, ColumnRange]:
    """The values of columns that only the path has, as readers read them."""
    values = values_of_path(path, config.partition_fields)
    found: dict[str, ColumnRange] = {}
    for name, value in zip(config.partition_fields, values or (), strict=values is not None):
        if name in config.dropped_fields and name in schema.names:
            text = pa.scalar(value, pa.string())
            found[name] = NO_VALUES if value is None else ColumnRange(text, text, has_nulls=False)
    return found


def _range_of_folder(config: TableConfig, name: str, text: str, kind: pa.DataType) -> ColumnRange:
    if config.hive_style:
        if not text.startswith(f"{name}="):
            return UNKNOWN
        text = text.removeprefix(f"{name}=")
    if text in _NO_VALUE:
        return UNKNOWN
    if config.url_encode:
        text = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)
    t = pa.types
    if not (t.is_string(kind) or t.is_integer(kind) or t.is_boolean(kind) or t.is_date(kind)):
        return UNKNOWN  # the text of other types depends on the writer
    try:
        value = pa.scalar(text).cast(kind)
    except pa.ArrowInvalid:
        return UNKNOWN
    return ColumnRange(value, value, has_nulls=False)
