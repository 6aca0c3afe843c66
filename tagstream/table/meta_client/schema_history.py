"""What Hudi's schema evolution on read (``hoodie.schema.on.read.enable``) has done to a table: columns go by numbers.

Each of its changes leaves a file ``.hoodie/.schema/<instant>.schemacommit`` with all schemas so far. A column that was
renamed has its values under the old name in older files; readers and writers that go by name see nulls there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tagstream.table.errors import CorruptFileError
from tagstream.table.storage.storage import META_FOLDER, Storage

_FOLDER = f"{META_FOLDER}/.schema"
_SUFFIX = ".schemacommit"


def column_not_by_name(storage: Storage) -> str | None:
    """A column whose name has meant another column, or that had another name; None: names tell the columns of all files."""
    if not any(entry.name == ".schema" and entry.is_dir for entry in storage.list(META_FOLDER)):
        return None
    done = sorted(entry.name for entry in storage.list(_FOLDER) if entry.name.endswith(_SUFFIX))
    if not done:
        return None
    path = f"{_FOLDER}/{done[-1]}"
    try:
        schemas = json.loads(storage.read(path))["schemas"]
        found = [pair for schema in schemas for pair in _columns(schema, "")]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(
            f"{storage.where(path)} is no history of schemas ({error!r}); restore the file"
        ) from error
    names: dict[int, str] = {}
    numbers: dict[str, int] = {}
    for number, name in found:
        if names.setdefault(number, name) != name:
            return f"{names[number]} (also {name})"
        if numbers.setdefault(name, number) != number:
            return name
    return None


def _columns(schema: Any, above: str) -> Iterator[tuple[int, str]]:
    """(number, path) of the columns and of the members of nested ones."""
    if not isinstance(schema, dict):
        return
    for field in schema.get("fields") or ():
        path = f"{above}{field['name']}"
        yield field["id"], path
        yield from _columns(field["type"], f"{path}.")
    for member in ("element", "value"):
        yield from _columns(schema.get(member), f"{above}{member}.")
