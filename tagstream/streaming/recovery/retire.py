"""Finish what an earlier program version began when it retired a query: it moved the query's files to ``C/retired/<n>/``.

Today a new root takes the place of the old one and nothing is moved (``state.durable.root``). What that version had moved,
and what it had not, both stay where they are.
"""

from __future__ import annotations

import json

from tagstream.state.durable.root import Root, current_root, next_root
from tagstream.streaming.errors import CheckpointError
from tagstream.table.storage.storage import Storage

_MARKER = "tagstream/retiring.json"


def finish_retiring(checkpoint: Storage) -> Root:
    """The root to go on at: a new one where a retiring was begun and never finished, which was always one of root 0."""
    root = current_root(checkpoint)
    try:
        why = str(json.loads(checkpoint.read(_MARKER))["why"])
    except FileNotFoundError:
        return root
    except (ValueError, KeyError, TypeError) as e:
        raise CheckpointError(
            f"{checkpoint.where(_MARKER)} is damaged ({e!r}); remove the checkpoint and start with a new one"
        ) from e
    if root.number == 0:
        root = next_root(checkpoint, root, why)
    checkpoint.delete(_MARKER)
    return root
