"""``.hoodie/.index_defs/index.json``: what Hudi's indexes in the metadata table are made of, from version 8 on.

Each definition has a version of its own: V1 is what table version 8 knows, V2 what version 9 makes. One without a version
is from before there were any: V1.
"""

from __future__ import annotations

import json
from typing import Any

from tagstream.table.errors import CorruptFileError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.metadata.index_definitions import INDEX_DEFINITIONS

_DEFINITIONS = "indexDefinitions"


def bring_index_definitions(table: HoodieTable, to: int) -> tuple[str, ...]:
    """Upwards: give each definition its version. Downwards: remove those that version ``to`` does not know; their names."""
    content = _read(table)
    if content is None:
        return ()
    definitions = content[_DEFINITIONS]
    if to >= table.config.version:
        kept = {name: {**each, "version": each.get("version") or "V1"} for name, each in definitions.items()}
    else:
        kept = {name: each for name, each in definitions.items() if (each.get("version") or "V1") == "V1"}
    if kept != definitions:
        table.storage.replace(INDEX_DEFINITIONS, json.dumps({**content, _DEFINITIONS: kept}, indent=2).encode())
    return tuple(sorted(definitions.keys() - kept.keys()))


def _read(table: HoodieTable) -> dict[str, Any] | None:
    try:
        data = table.storage.read(INDEX_DEFINITIONS)
    except FileNotFoundError:
        return None
    try:
        content = json.loads(data)
        definitions = content[_DEFINITIONS]
        if all(isinstance(each, dict) for each in definitions.values()) and isinstance(content, dict):
            return content
        problem = "a definition is no object"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        problem = repr(error)
    raise CorruptFileError(
        f"{table.storage.where(INDEX_DEFINITIONS)} holds no index definitions ({problem}): restore the file"
    )
