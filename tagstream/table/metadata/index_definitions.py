"""``.hoodie/.index_defs/index.json``: the definitions of a table's indexes, as Hudi 1.x keeps them."""

from __future__ import annotations

import json
from typing import Any, Final

from tagstream.table.errors import CorruptFileError
from tagstream.table.storage.storage import Storage

INDEX_DEFINITIONS: Final = ".hoodie/.index_defs/index.json"
DEFINITIONS_KEY: Final = "hoodie.table.index.defs.path"  # of the table's properties
PARTITIONED_OPTION: Final = "isPartitioned"  # of the record index: "true" or "false"

_RECORD_INDEX, _COLUMN_STATS = "record_index", "column_stats"
_OLD_FORM: Final = "V1"
UNTYPED: Final = 8  # the newest table version whose statistics do not tell the types of their values


def parse_definitions(data: bytes, where: str) -> dict[str, Any]:
    """The definitions by their names; CorruptFileError names ``where``."""
    try:
        found = json.loads(data)["indexDefinitions"] or {}
        if not all(isinstance(each, dict) for each in found.values()):
            raise TypeError("a definition is no object")
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CorruptFileError(
            f"{where} holds no readable index definitions ({error}); restore the file, or drop the metadata table "
            "(hoodie.metadata.enable=false)"
        ) from error
    return dict(found)


def defined_partitioned(definitions: dict[str, Any]) -> bool:
    """Whether the record index among them has file groups of its own for each partition of the data."""
    options = (definitions.get(_RECORD_INDEX) or {}).get("indexOptions") or {}
    return str(options.get(PARTITIONED_OPTION)).lower() == "true"


def statistics_form(storage: Storage, version: int) -> int:
    """The table version in whose form a table of this version has its statistics, of columns and of partitions alike.

    A table that Hudi has brought to version 9 goes on with the form of before, and its definition says V1: Hudi compares the
    ends of both forms with each other, and fails or is wrong where one is a date and the other a number of days.
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
    """The same of a table by its storage; False where the table has no definitions, as up to Hudi 0.x."""
    try:
        data = storage.read(INDEX_DEFINITIONS)
    except FileNotFoundError:
        return False
    return defined_partitioned(parse_definitions(data, storage.where(INDEX_DEFINITIONS)))
