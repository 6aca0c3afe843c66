"""Where in a record the value of a column is: the names of the objects around it, then its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Path = tuple[str, ...]


def nested_schema(kinds: Mapping[Path, pa.DataType]) -> pa.Schema:
    """The schema of records that have values of ``kinds`` at these paths."""
    tree: dict[str, Any] = {}
    for path, kind in kinds.items():
        at = tree
        for step in path[:-1]:
            at = at.setdefault(step, {})
        at[path[-1]] = kind
    return pa.schema(_fields(tree))


def _fields(tree: Mapping[str, Any]) -> list[pa.Field]:
    return [pa.field(n, pa.struct(_fields(kind)) if isinstance(kind, dict) else kind) for n, kind in tree.items()]


def at_path(rows: pa.Table, path: Path) -> pa.Array:
    """The values at a path, null where an object around them is."""
    column = rows.column(path[0])
    flat = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return pc.struct_field(flat, list(path[1:])) if len(path) > 1 else flat
