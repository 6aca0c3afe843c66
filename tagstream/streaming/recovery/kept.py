"""Small files of a checkpoint: each holds one thing, and the version of its form."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from tagstream.streaming.errors import CheckpointError
from tagstream.table.storage.storage import Storage

T = TypeVar("T")
NEW_CHECKPOINT = "restore it, or start with a new checkpoint"


def read_kept(
    files: Storage, name: str, version: int, content: Callable[[dict[str, Any]], T], cure: str = NEW_CHECKPOINT
) -> T | None:
    """What the file holds, by ``content`` of its document; None where it is missing.

    CheckpointError where it cannot be read, with the ``cure``, and where it has another version.
    """
    path = files.where(name)
    try:
        doc: dict[str, Any] = json.loads(files.read(name))
        if doc.pop("version") == version:
            return content(doc)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise CheckpointError(f"{path} is damaged ({e!r}); {cure}") from e
    raise CheckpointError(f"{path} has another version than {version}; run the program version that wrote it")


def to_keep(version: int, **content: Any) -> bytes:
    """The bytes of such a file."""
    return json.dumps({"version": version, **content}).encode()
