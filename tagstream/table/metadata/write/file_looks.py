"""What a file itself says of its columns and keys: the ranges of columns, and the bloom filter of a base file."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from tagstream.table.file_group.base_file import BLOOM_KEY, open_base_file
from tagstream.table.file_group.log.format import BlockType
from tagstream.table.file_group.log.reader import scan_log_file
from tagstream.table.file_group.names import parse_log_file_name
from tagstream.table.metadata.encode.column_ranges import (
    ColumnRange,
    merged_ranges,
    ranges_of_footer,
    ranges_of_rows,
)
from tagstream.table.schema.stored import as_meant
from tagstream.table.storage.storage import Storage

_DATA = (BlockType.AVRO_DATA, BlockType.PARQUET_DATA)


def look_at_file(
    storage: Storage, rel: str, columns: Collection[str], schema: pa.Schema
) -> tuple[dict[str, ColumnRange], bytes | None]:
    """Ranges of the columns that a file has, and its bloom filter's text (None: of a log file, or a base file without one).

    Of a base file the footer alone is read, of a log file its rows. ``schema``: the table's.
    """
    if parse_log_file_name(rel.rpartition("/")[2]) is None:
        with open_base_file(storage, rel) as file:
            bloom = (file.metadata.metadata or {}).get(BLOOM_KEY)
            return ranges_of_footer(file.metadata, columns, schema), bloom
    blocks = (block for block in scan_log_file(storage, rel) if block.type in _DATA)
    parts = [ranges_of_rows(as_meant(block.read_table(), schema), columns) for block in blocks]
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: merged_ranges(part[name] for part in parts if name in part) for name in names}, None
