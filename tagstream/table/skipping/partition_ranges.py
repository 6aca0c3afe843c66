"""Values of partition columns by a partition's path, as the simple and the complex key generator make paths.

A row's partition column has the value that its path names. Every Hudi reader prunes by that; only an index that is told
to leave moved records in their old partition (``hoodie.*.update.partition.path=false``) writes rows where it is not so.
"""

from __future__ import annotations

import re

import pyarrow as pa

from tagstream.table.keys.partition_path import DEFAULT_PARTITION
from tagstream.table.meta_client.table_config import TableConfig
from tagstream.table.skipping.column_range import UNKNOWN, ColumnRange

_GENERATORS = ("SimpleKeyGenerator", "ComplexKeyGenerator")
_NO_VALUE = (DEFAULT_PARTITION, "default", "")
_ESCAPED = re.compile("%([0-9A-Fa-f]{2})")


def partition_ranges(config: TableConfig, partition_path: str, schema: pa.Schema) -> dict[str, ColumnRange]:
    """The one value of each partition column; unknown where the path does not tell."""
    generator = config.key_generator.rsplit(".", 1)[-1].replace("AvroKeyGenerator", "KeyGenerator")
    segments = partition_path.split("/")
    dropped = config.raw.get("hoodie.datasource.write.drop.partition.columns", "").strip().lower() == "true"
    if dropped or generator not in _GENERATORS or len(segments) != len(config.partition_fields):
        return {}
    named = zip(config.partition_fields, segments, strict=True)
    return {name: _range(config, name, text, schema.field(name).type) for name, text in named if name in schema.names}


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
