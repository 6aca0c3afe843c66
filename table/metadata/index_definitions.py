"""``.hoodie/.index_defs/index.json``: the definitions of a table's indexes, as Hudi 1.x keeps them."""

from __future__ import annotations

import json
from typing import Any, Final

from tagstream.table.errors import CorruptFileError
from tagstream.table.storage.storage import Storage

INDEX_DEFINITIONS: Final = ".hoodie/.index_defs/index.json"
DEFINITIONS_KEY: Final = "hoodie.table.index.defs.path"  # of the table's properties
PARTITIONED_OPTION: Final = "isPartitioned"  # of the record index: "true" or "false"

_RECORD_INDEX: Final = "record_index"


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


def has_partitioned_index(storage: Storage) -> bool:
    """The same of a table by its storage; False where the table has no definitions, as up to Hudi 0.x."""
    try:
        data = storage.read(INDEX_DEFINITIONS)
    except FileNotFoundError:
        return False
    return defined_partitioned(parse_definitions(data, storage.where(INDEX_DEFINITIONS)))
