"""A checkpoint in the making (rescale, index import): it has a mark until it is whole, and ``meta.json`` from then on.

The files are written where they will stay, ``meta.json`` last, by an exclusive create: without it there is no checkpoint. A
process that was killed before leaves the mark, by which the next one knows what it may remove.
"""

from __future__ import annotations

from tagstream.state.durable.meta import META_FILE, CheckpointMeta, meta_bytes
from tagstream.table.storage.create import create
from tagstream.table.storage.storage import Storage

_OURS = "tagstream"
_MARK = "building.txt"


def begin_building(checkpoint: Storage, by: str) -> None:
    """Mark an empty folder before the first file is written; ``by`` which command, for people."""
    checkpoint.replace(f"{_OURS}/{_MARK}", f"{by} is making this checkpoint, or was killed while it did.\n".encode())


def is_unfinished(checkpoint: Storage) -> bool:
    """Whether there is only what such a command left. One that was killed in its very last step has made a checkpoint."""
    return checkpoint.exists(f"{_OURS}/{_MARK}") and not checkpoint.exists(META_FILE)


def finish_building(checkpoint: Storage, meta: CheckpointMeta) -> bool:
    """Make it a checkpoint; False when another process has made one here."""
    made = create(checkpoint, META_FILE, meta_bytes(meta))
    if made:
        checkpoint.delete(f"{_OURS}/{_MARK}")
    return made


def clear_unfinished(checkpoint: Storage) -> bool:
    """Remove what a command that did not come to its end left; False when there is nothing of the kind.

    The caller holds the lease of the table that the command held, so it is not at work any more.
    """
    if not is_unfinished(checkpoint):
        return False
    for entry in checkpoint.list(_OURS):  # the mark last: a kill in here leaves it
        path = f"{_OURS}/{entry.name}"
        if entry.is_dir:
            checkpoint.delete_tree(path)
        elif entry.name != _MARK:
            checkpoint.delete(path)
    checkpoint.delete_tree(_OURS)
    return True
