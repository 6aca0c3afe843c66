"""Definitions of a table's indexes (``.hoodie/.index_defs/index.json``): which columns have statistics.

Hudi 1.x chooses three meta columns and the first 32 plain columns, and uses the definition from then on. Hudi 0.15 uses
all meta columns and all plain ones. Both exclude columns without an order, and decimals that their wrapper cannot hold.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from tagstream.table.errors import CorruptFileError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.column_ranges import kind_of
from tagstream.table.schema.schema import COMMIT_TIME, META_COLUMNS, PARTITION_PATH, RECORD_KEY, is_meta_column
from tagstream.table.storage.storage import Storage
from tagstream.table.table_version import TableVersion

INDEX_DEFINITIONS: Final = ".hoodie/.index_defs/index.json"
DEFINITIONS_KEY: Final = "hoodie.table.index.defs.path"  # of the table's properties
PARTITIONED_OPTION: Final = "isPartitioned"  # of the record index: "true" or "false"

_RECORD_INDEX, _COLUMN_STATS = "record_index", "column_stats"
_OLD_FORM: Final = "V1"
UNTYPED: Final = 8  # the newest table version whose statistics do not have the types of their values


def parse_definitions(data: bytes, where: str) -> dict[str, Any]:
    """The definitions by name; CorruptFileError names ``where``."""
    try:
        found = json.loads(data)["indexDefinitions"] or {}
        if not all(isinstance(each, dict) for each in found.values()):
            raise TypeError("a definition is not an object")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CorruptFileError(
            f"{where} has no readable index definitions ({error}); restore the file, or drop the metadata table "
            "(hoodie.metadata.enable=false)"
        ) from error
    return dict(found)


def defined_partitioned(definitions: dict[str, Any]) -> bool:
    """Whether the record index in these definitions has file groups for each partition of the data."""
    options = (definitions.get(_RECORD_INDEX) or {}).get("indexOptions") or {}
    return str(options.get(PARTITIONED_OPTION)).lower() == "true"


def statistics_form(storage: Storage, version: int) -> int:
    """The table version whose form the statistics of columns and partitions have, in a table of this version.

    A table that Hudi has upgraded to version 9 keeps the former form, and its definition says V1: Hudi compares the
    ends of both forms with each other, and fails or is wrong if one is a date and the other a number of days.
    """
    if version <= UNTYPED:
        return version
    try:
        data = storage.read(INDEX_DEFINITIONS)
    except FileNotFoundError:
        return version
    found = parse_definitions(data, storage.where(INDEX_DEFINITIONS)).get(_COLUMN_STATS) or {}
    return UNTYPED if found.get("version") == _OLD_FORM else version


def has_partitioned_index(storage: Storage) -> bool:
    """As :func:`defined_partitioned`, for a table; False without definitions, as up to Hudi 0.x."""
    try:
        data = storage.read(INDEX_DEFINITIONS)
    except FileNotFoundError:
        return False
    return defined_partitioned(parse_definitions(data, storage.where(INDEX_DEFINITIONS)))


_MOST: Final = 32
_WRAPPED_DIGITS: Final = 15  # before and after the point, up to table version 8
_DEFINED: Final = {"column_stats", "record_index"}  # of the indexes written here, Hudi 1.2 defines only these


def default_columns(schema: pa.Schema, version: int) -> list[str]:
    """The columns of a new index of a table with this schema; meta columns in the schema are ignored."""
    plain = [field.name for field in schema if not is_meta_column(field.name) and _has_range(field.type, version)]
    if TableVersion.of(version).index_definitions:
        return [COMMIT_TIME, PARTITION_PATH, RECORD_KEY, *plain[:_MOST]]
    return [*META_COLUMNS, *plain]


def supported_columns(columns: Sequence[str], schema: pa.Schema, version: int) -> list[str]:
    """The requested columns that can have statistics, without names that the schema lacks."""
    known = {field.name for field in schema if _has_range(field.type, version)} | set(META_COLUMNS)
    return [column for column in columns if column in known]


def defined_columns(definitions: bytes, where: str) -> list[str] | None:
    """The columns of the definition of ``column_stats``; None when the file has none."""
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
    """The file's new content: definitions of these partitions of the metadata table, with those of others unchanged.

    ``partitioned_index``: whether the record index has file groups for each partition of the data; None: as before.
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


def kept_columns(table: HoodieTable, schema: pa.Schema, asked: Sequence[str] = ()) -> list[str]:
    """The columns of a table of this schema that have statistics.

    They are those of its definitions; without definitions ``asked`` (hoodie.metadata.index.column.stats.column.list),
    or else Hudi's choice. Columns that the schema lacks, or that cannot have statistics, are left out.
    """
    storage, version = table.storage, table.config.version
    defined = None
    if storage.exists(INDEX_DEFINITIONS):
        defined = defined_columns(storage.read(INDEX_DEFINITIONS), storage.where(INDEX_DEFINITIONS))
    wanted = defined if defined is not None else list(asked)
    form = statistics_form(storage, version)
    return supported_columns(wanted, schema, form) if wanted else default_columns(schema, form)


def define_indexes(
    table: HoodieTable, partitions: Iterable[str], columns: Sequence[str], partitioned_index: bool | None = None
) -> None:
    """Write the definitions of the indexes among these partitions, with those of others unchanged.

    ``partitioned_index``: as in :func:`write_definitions`.
    """
    storage = table.storage
    before = storage.read(INDEX_DEFINITIONS) if storage.exists(INDEX_DEFINITIONS) else None
    where = storage.where(INDEX_DEFINITIONS)
    version = table.config.version
    content = write_definitions(before, set(partitions), columns, version, where, partitioned_index)
    storage.replace(INDEX_DEFINITIONS, content)
