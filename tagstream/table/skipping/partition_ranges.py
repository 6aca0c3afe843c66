"""Values of partition columns by a partition's path, as the simple and the complex key generator make paths.

A row's partition column has the value that its path names. Every Hudi reader prunes by that; only an index that is told
to leave moved records in their old partition (``hoodie.*.update.partition.path=false``) writes rows where it is not so.
"""

from __future__ import annotations

import re

import pyarrow as pa

from tagstream.table.keys.partition_path import DEFAULT_PARTITION, values_of_path
from tagstream.table.meta_client.table_config import TableConfig
from tagstream.table.skipping.column_range import NO_VALUES, UNKNOWN, ColumnRange

_GENERATORS = ("SimpleKeyGenerator", "ComplexKeyGenerator")
_NO_VALUE = (DEFAULT_PARTITION, "default", "")
_ESCAPED = re.compile("%([0-9A-Fa-f]{2})")


def partition_ranges(config: TableConfig, partition_path: str, schema: pa.Schema) -> dict[str, ColumnRange]:
    """The one value of each partition column; unknown where the path does not tell."""
    if config.dropped_fields:
        return _of_dropped(config, partition_path, schema)
    generator = config.key_generator.rsplit(".", 1)[-1].replace("AvroKeyGenerator", "KeyGenerator")
    segments = partition_path.split("/")
    if generator not in _GENERATORS or len(segments) != len(config.partition_fields):
        return {}
    named = zip(config.partition_fields, segments, strict=True)
    return {name: _range(config, name, text, schema.field(name).type) for name, text in named if name in schema.names}


def _of_dropped(config: TableConfig, path: str, schema: pa.Schema) -> dict[str, ColumnRange]:
    """Of columns that only the path holds: exactly what a reader makes of it."""
    values = values_of_path(path, config.partition_fields)
    found: dict[str, ColumnRange] = {}
    for name, value in zip(config.partition_fields, values or (), strict=values is not None):
        if name in config.dropped_fields and name in schema.names:
            text = pa.scalar(value, pa.string())
            found[name] = NO_VALUES if value is None else ColumnRange(text, text, has_nulls=False)
    return found


def _range(config: TableConfig, name: str, text: str, kind: pa.DataType) -> ColumnRange:
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
        return UNKNOWN  # their texts depend on the writer
    try:
        value = pa.scalar(text).cast(kind)
    except pa.ArrowInvalid:
        return UNKNOWN
    return ColumnRange(value, value, has_nulls=False)
