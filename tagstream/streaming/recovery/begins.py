"""``tagstream/begins.json`` of a query's root: the commit whose end a query of a topic began to read at.

Spark keeps the place where a query began, and the query's own batches do not hold what came before it. When that commit is
undone, its records lie before the place, so the query cannot go on. Spark fixes the place in ``sources/0/0``.
"""

from __future__ import annotations

import json
from typing import Final

from tagstream.streaming.errors import CheckpointError
from tagstream.table.storage.storage import Storage

BEGINS: Final = "tagstream/begins.json"
_FIXED = "sources/0/0"
_VERSION = 1


def write_begins(root: Storage, instant: str | None) -> None:
    """Keep the commit that a new query's place comes from; None where no commit told. Nothing changes once the place is
    fixed."""
    if root.exists(_FIXED):
        return
    if instant is None:
        root.delete(BEGINS)
    else:
        root.replace(BEGINS, json.dumps({"version": _VERSION, "after": instant}).encode())


def read_begins(root: Storage) -> str | None:
    """The commit; None where the query began without one. CheckpointError for a file that cannot be read."""
    where = root.where(BEGINS)
    try:
        doc = json.loads(root.read(BEGINS))
        if doc["version"] == _VERSION:
            return str(doc["after"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as e:
        raise CheckpointError(f"{where} is damaged ({e!r}); restore it, or start with a new checkpoint") from e
    raise CheckpointError(f"{where} has another version than {_VERSION}; run the program version that wrote it")
