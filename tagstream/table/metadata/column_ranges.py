"""The least and greatest value of columns of a file, for the metadata table's ``column_stats``.

They come from the footer of a base file or from the rows of a log file. Tasks write files and the driver writes
the metadata table, so ranges are sent as JSON. A value that is unknown, or too long to be kept, is replaced by one that
is certainly not greater (or not smaller): readers treat a column without a range as one without values, and would skip
the file.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.table.file_group.base_file import BLOOM_KEY, open_base_file
from tagstream.table.file_group.log_file import scan_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.file_group.names import parse_log_file_name
from tagstream.table.file_group.ordering_wrapper import unscaled
from tagstream.table.file_group.parquet_options import float_nulls, has_nan_counts
from tagstream.table.metadata.records import LAST_TEXT, text_ends
from tagstream.table.schema.conform import as_meant, meant_field, to_double
from tagstream.table.storage.storage import Storage

_LONGEST: Final = 1024  # characters or bytes of a value that are kept
_LAST_BYTES: Final = b"\xff" * 32
_DECIMAL: Final = re.compile(r"decimal\((\d+),(\d+)\)")
_WIDEST_WIDTH: Final = 100
_BITS: Final = {"int": 32, "date": 32, "time-millis": 32}

Ranges = Mapping[str, "ColumnRange"]


@dataclass(frozen=True)
class ColumnRange:
    """The range of a column in one file.

    ``low`` and ``high`` are None if all values are null; dates and times are plain numbers. ``kind``: the column's type
    as in Avro, ``decimal(<precision>,<scale>)`` for decimals, whose ends are unscaled. ``rows`` includes nulls; both
    are estimates if a footer does not count nulls. ``size`` and ``uncompressed`` are bytes of a base file's column, 0
    for logs.
    """

    kind: str
    low: Any
    high: Any
    rows: int
    nulls: int
    size: int = 0
    uncompressed: int = 0

    def to_json(self) -> list[Any]:
        """The range for JSON; bytes are in base64, NaN is Python's ``NaN``."""
        ends = [base64.b64encode(end).decode() if isinstance(end, bytes) else end for end in (self.low, self.high)]
        return [self.kind, *ends, self.rows, self.nulls, self.size, self.uncompressed]

    @staticmethod
    def from_json(found: Sequence[Any]) -> ColumnRange:
        """The inverse of to_json."""
        kind, *ends = found[:3]
        if kind in ("bytes", "fixed"):
            ends = [base64.b64decode(end) if end is not None else None for end in ends]
        return ColumnRange(kind, *ends, *found[3:])


def ranges_to_json(ranges: Ranges) -> dict[str, list[Any]]:
    """A file's ranges by column for JSON, to send them from the task to the driver."""
    return {column: found.to_json() for column, found in ranges.items()}


def ranges_from_json(found: Mapping[str, Sequence[Any]]) -> dict[str, ColumnRange]:
    """The inverse of ranges_to_json."""
    return {column: ColumnRange.from_json(each) for column, each in found.items()}


def kind_of(arrow: pa.DataType) -> str | None:
    """The kind of a column; None for a column without ranges (a nested one)."""
    t = pa.types
    if t.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if t.is_timestamp(arrow):
        unit = "millis" if arrow.unit in ("s", "ms") else "micros" if arrow.unit == "us" else "nanos"
        return f"timestamp-{unit}" if arrow.tz else f"local-timestamp-{unit}"
    if t.is_time(arrow):
        return "time-millis" if t.is_time32(arrow) else "time-micros"
    kinds = (
        (t.is_boolean, "boolean"), (t.is_float32, "float"), (t.is_float64, "double"), (t.is_date32, "date"),
        (t.is_int64, "long"), (t.is_uint32, "long"), (t.is_integer, "int"), (t.is_string, "string"),
        (t.is_large_string, "string"), (t.is_binary, "bytes"), (t.is_large_binary, "bytes"),
        (t.is_fixed_size_binary, "fixed"),
    )  # fmt: skip
    return next((kind for applies, kind in kinds if applies(arrow)), None)


def ranges_of_footer(footer: Any, columns: Collection[str], schema: pa.Schema | None = None) -> dict[str, ColumnRange]:
    """Ranges of a base file's columns from its footer (pyarrow's FileMetaData), without reading data.

    ``schema``: the table's, which gives the numbers in a file of another writer their types (``table.schema.conform``).
    Arrow's statistics ignore NaN: unless the footer says that there is none, a column of floats may have it.
    """
    found: dict[str, ColumnRange] = {}
    null_counts = float_nulls(footer)
    fields = [field for field in footer.schema.to_arrow_schema() if field.name in columns]
    kinds = {field.name: kind_of(meant_field(field, schema)) for field in fields}
    places = [(n, footer.schema.column(n).path) for n in range(footer.num_columns)]
    for number, name in places:
        kind = kinds.get(name)
        if kind is not None:
            groups = (footer.row_group(group) for group in range(footer.num_row_groups))
            parts = [
                _of_chunk(group.column(number), group.num_rows, kind, counted=name in null_counts) for group in groups
            ]
            if kind in ("float", "double") and not has_nan_counts(footer):
                parts = [part if part.high is None else _may_have_nan(part) for part in parts]
            found[name] = merged_ranges(parts) if parts else ColumnRange(kind, None, None, 0, 0)
            if name in null_counts:
                found[name] = _with_nulls(found[name], null_counts[name])
    return found


def ranges_of_rows(rows: pa.Table, columns: Collection[str]) -> dict[str, ColumnRange]:
    """Ranges of the columns of a log file, from its rows."""
    found = {}
    for field in rows.schema:
        kind = kind_of(field.type) if field.name in columns else None
        if kind is not None:
            values = rows.column(field.name)
            low, high = _ends(values, kind)
            found[field.name] = ColumnRange(kind, low, high, rows.num_rows, values.null_count)
    return found


def merged_ranges(parts: Iterable[ColumnRange]) -> ColumnRange:
    """The common range of a column in several row groups, blocks or files; at least one.

    Files of different ages may have different widths of a column: the result has the widest. With texts, numbers count
    as texts, too: Hudi's SQL changes the type of columns in this way.
    """
    found = list(parts)
    widest = max((part.kind for part in found), key=_width)
    whole, *rest = (_widened(part, widest) for part in found)
    for part in rest:
        lows = [end for end in (whole.low, part.low) if end is not None]
        highs = [end for end in (whole.high, part.high) if end is not None]
        whole = replace(
            whole,
            low=min(lows, key=_order, default=None),
            high=max(highs, key=_order, default=None),
            rows=whole.rows + part.rows,
            nulls=whole.nulls + part.nulls,
            size=whole.size + part.size,
            uncompressed=whole.uncompressed + part.uncompressed,
        )
    return whole


def is_unknown(found: ColumnRange) -> bool:
    """Whether the ends include every value, because the values are not known."""
    low, high = _widest(found.kind)
    return found.kind != "boolean" and (_order(found.low), _order(found.high)) == (_order(low), _order(high))


def _width(kind: str) -> int:
    decimal = _DECIMAL.match(kind)
    return int(decimal[1]) if decimal else {"long": 1, "double": 1, "string": _WIDEST_WIDTH}.get(kind, 0)


def _widened(part: ColumnRange, kind: str) -> ColumnRange:
    """A range in a wider kind. Floats become doubles by their shortest digits, as for readers (``table.schema.conform``).

    The ends of a column that becomes text are unknown, except for numbers whose texts have the same order.
    """
    if part.kind == kind:
        return part
    ends = (part.low, part.high)
    if kind == "string" and part.low is not None:
        ends = text_ends(*ends) if part.kind in ("int", "long") else _widest(kind)
    elif kind == "double" and part.low is not None:
        ends = tuple(to_double(pa.array([end], pa.float32()))[0].as_py() for end in ends)
    return replace(part, kind=kind, low=ends[0], high=ends[1])


def _order(value: Any) -> tuple[bool, Any]:
    """Sort key in which NaN is greater than all numbers, as in Spark and Java."""
    return (True, 0) if isinstance(value, float) and math.isnan(value) else (False, value)


def _of_chunk(chunk: Any, rows: int, kind: str, *, counted: bool) -> ColumnRange:
    """The range of a column chunk. ``counted``: another footer entry counts the nulls of the whole column."""
    stats = chunk.statistics
    nulls = stats.null_count if stats is not None and stats.has_null_count else None
    if nulls is None and counted:
        nulls = 0
    elif nulls is None:  # assume some nulls, not only nulls: neither ``x IS NULL`` nor ``x IS NOT NULL`` skips the file
        nulls, rows = (1, max(rows, 2)) if rows else (0, 0)
    if nulls == rows:
        low = high = None
    elif stats is not None and stats.has_min_max:
        low, high = _bounds(_plain(stats.min_raw, kind), _plain(stats.max_raw, kind), kind)
    else:
        low, high = _widest(kind)
    return ColumnRange(kind, low, high, rows, nulls, chunk.total_compressed_size, chunk.total_uncompressed_size)


def _with_nulls(found: ColumnRange, nulls: int) -> ColumnRange:
    return replace(found, nulls=nulls) if nulls < found.rows else replace(found, nulls=nulls, low=None, high=None)


def _may_have_nan(part: ColumnRange) -> ColumnRange:
    low, high = _around_nan(part.low)
    return replace(part, low=low, high=high)


def _around_nan(low: float | None) -> tuple[float, float]:
    """The ends for a column with NaN whose numbers are not less than ``low``.

    NaN is greater than all numbers in Spark, but NaN as an end loses rows: Hudi (0.15.0 on tables of version 6, 1.2.0 from
    8 on) then skips the file for ``x = 0`` and ``x > 0``, too. With infinity only ``x = NaN`` and ``x > Infinity`` skip it.
    Equal ends would mean that all values are equal, so the ends differ.
    """
    return -math.inf if low is None or low == math.inf else low, math.inf


def _plain(raw: Any, kind: str) -> Any:
    """A value of the footer; None when it cannot be decoded."""
    if kind == "string" and isinstance(raw, bytes):
        try:
            return raw.decode()
        except UnicodeDecodeError:  # truncated in the middle of a character
            return None
    if _DECIMAL.match(kind) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


def _ends(values: pa.ChunkedArray, kind: str) -> tuple[Any, Any]:
    if values.null_count == len(values):
        return None, None
    has_nan = kind in ("float", "double") and pc.any(pc.is_nan(values)).as_py()
    if has_nan:
        return _around_nan(pc.min(values.filter(pc.invert(pc.is_nan(values)))).as_py())
    found = pc.min_max(values)
    return _bounds(_value(found["min"], kind), _value(found["max"], kind), kind)


def _value(scalar: pa.Scalar, kind: str) -> Any:
    if _DECIMAL.match(kind):
        return unscaled(scalar.as_py(), scalar.type.scale)
    return scalar.value if pa.types.is_temporal(scalar.type) else scalar.as_py()


def _bounds(low: Any, high: Any, kind: str) -> tuple[Any, Any]:
    """The ends to keep: long ones are truncated, unknown ones replaced."""
    widest = _widest(kind)
    if low is None or high is None or any(isinstance(end, float) and math.isnan(end) for end in (low, high)):
        return widest
    if kind in ("string", "bytes", "fixed"):
        low, high = low[:_LONGEST], high if len(high) <= _LONGEST else high[:_LONGEST] + widest[1]
    return low, high


def _widest(kind: str) -> tuple[Any, Any]:
    """Ends that include every value of a kind."""
    if kind == "boolean":
        return False, True
    if kind == "string":
        return "", LAST_TEXT
    if kind in ("bytes", "fixed"):
        return b"", _LAST_BYTES
    if kind in ("float", "double"):
        return _around_nan(None)
    decimal = _DECIMAL.match(kind)
    if decimal:
        return 1 - 10 ** int(decimal[1]), 10 ** int(decimal[1]) - 1
    bits = _BITS.get(kind, 64)
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


_DATA = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA)


def read_file_stats(
    storage: Storage, rel: str, columns: Collection[str], schema: pa.Schema
) -> tuple[dict[str, ColumnRange], bytes | None]:
    """(ranges of a file's columns, text of its bloom filter). The filter is None for a log file, or if there is none.

    Only the footer of a base file is read; of a log file its rows. ``schema`` is the table's.
    """
    if parse_log_file_name(rel.rpartition("/")[2]) is None:
        with open_base_file(storage, rel) as file:
            bloom = (file.metadata.metadata or {}).get(BLOOM_KEY)
            return ranges_of_footer(file.metadata, columns, schema), bloom
    blocks = (block for block in scan_log_file(storage, rel) if block.type in _DATA)
    parts = [ranges_of_rows(as_meant(block.read_table(), schema), columns) for block in blocks]
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: merged_ranges(part[name] for part in parts if name in part) for name in names}, None
