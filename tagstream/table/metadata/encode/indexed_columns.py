"""Which columns the metadata table has statistics of, and the definitions that Hudi 1.x keeps of that.

Hudi 1.x takes three meta columns and the first 32 plain columns, and goes by the definition from then on; Hudi 0.15 takes
all meta columns and all plain ones. Both leave out what has no order and decimals that their wrapper cannot hold.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from tagstream.table.metadata.encode.column_ranges import kind_of
from tagstream.table.metadata.index_definitions import PARTITIONED_OPTION, defined_partitioned, parse_definitions
from tagstream.table.schema.schema import COMMIT_TIME, META_COLUMNS, PARTITION_PATH, RECORD_KEY, is_meta_column
from tagstream.table.table_version import TableVersion

_MOST: Final = 32
_WRAPPED_DIGITS: Final = 15  # before the point and behind it, up to table version 8
_DEFINED: Final = {"column_stats", "record_index"}  # Hudi 1.2 defines no others of those that are kept here


def default_columns(schema: pa.Schema, version: int) -> list[str]:
    """The columns of a new index over a table of this schema; meta columns in it do not matter."""
    plain = [field.name for field in schema if not is_meta_column(field.name) and _has_range(field.type, version)]
    if TableVersion.of(version).index_definitions:
        return [COMMIT_TIME, PARTITION_PATH, RECORD_KEY, *plain[:_MOST]]
    return [*META_COLUMNS, *plain]


def supported_columns(columns: Sequence[str], schema: pa.Schema, version: int) -> list[str]:
    """Those of the wanted columns that can have statistics; names that the schema lacks are left out."""
    known = {field.name for field in schema if _has_range(field.type, version)} | set(META_COLUMNS)
    return [column for column in columns if column in known]


def defined_columns(definitions: bytes, where: str) -> list[str] | None:
    """The columns that a definition names; None where the file has none of ``column_stats``."""
    definition = parse_definitions(definitions, where).get("column_stats")
    return None if definition is None else [str(name) for name in definition.get("sourceFields") or ()]


def write_definitions(
    before: bytes | None,
    partitions: Collection[str],
    columns: Sequence[str],
    version: int,
    where: str,
    partitioned_index: bool | None = None,
) -> bytes:
    """The file's new content: definitions of these partitions of the metadata table, others' left as they are.

    ``partitioned_index``: whether the record index has file groups for each partition of the data; None: as it was.
    """
    kept = parse_definitions(before, where) if before is not None else {}
    found = {name: definition for name, definition in kept.items() if name not in _DEFINED}
    if "record_index" in partitions:
        is_so = defined_partitioned(kept) if partitioned_index is None else partitioned_index
        options = {PARTITIONED_OPTION: str(is_so).lower()}
        found["record_index"] = _definition("record_index", "", [], options, "V1")
    if "column_stats" in partitions:
        form = (kept.get("column_stats") or {}).get("version") or TableVersion.of(version).statistics_form
        found["column_stats"] = _definition("column_stats", "column_stats", columns, {}, form)
    return json.dumps({"indexDefinitions": found}, indent=2).encode()


def without_definition(data: bytes, partition: str, where: str) -> bytes:
    """The file's content without the definition of one partition of the metadata table."""
    kept = {name: definition for name, definition in parse_definitions(data, where).items() if name != partition}
    return json.dumps({"indexDefinitions": kept}, indent=2).encode()


def _definition(
    name: str, function: str, columns: Sequence[str], options: Mapping[str, str], version: str
) -> dict[str, Any]:
    return {
        "indexName": name,
        "indexType": name,
        "indexFunction": function,
        "sourceFields": list(columns),
        "indexOptions": dict(options),
        "version": version,
    }


def _has_range(arrow: pa.DataType, version: int) -> bool:
    if pa.types.is_decimal(arrow) and not TableVersion.of(version).wide_decimal_statistics:
        return bool(arrow.scale <= _WRAPPED_DIGITS and arrow.precision - arrow.scale <= _WRAPPED_DIGITS)
    return kind_of(arrow) is not None
