"""Fields whose names in files on disk are older than their names in the code. The files keep the first names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STORED = {"index_load": "generation", "catch_up": "epoch", "slots": "lanes", "write_tasks": "write_lanes"}
_FIELDS = {stored: field for field, stored in _STORED.items()}


def to_stored(doc: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a dataclass by the names that its file has, in the same order."""
    return {_STORED.get(name, name): value for name, value in doc.items()}


def from_stored(doc: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a file by the names that the dataclass has, in the same order."""
    return {_FIELDS.get(name, name): value for name, value in doc.items()}
