"""The Avro schemas of Hudi's timeline files, by the name of their record: those of Hudi 1.2.0, documentation left out.

Versions 8 and 9 of the table need them for every commit. A reader takes the schema from the file it reads; a writer must
use these names, for Java resolves by name.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any, Final

import fastavro

COMMIT_METADATA: Final = "HoodieCommitMetadata"
REPLACE_COMMIT_METADATA: Final = "HoodieReplaceCommitMetadata"


@cache
def avro_schema(name: str) -> dict[str, Any]:
    """The schema of a record as Avro JSON; KeyError for one that is not known. Do not change what is returned."""
    found: dict[str, Any] = _schemas()[name]
    return found


@cache
def parsed_schema(name: str) -> Any:
    """The same, parsed for fastavro."""
    return fastavro.parse_schema(avro_schema(name))


@cache
def _schemas() -> dict[str, Any]:
    text = files("tagstream.table.timeline").joinpath("avro_schemas.json").read_text("utf-8")
    schemas: dict[str, Any] = json.loads(text)
    return schemas
