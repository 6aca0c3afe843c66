"""Removes the indexes of retired queries: each is as large as the live one, and no start ever goes back to it.

What is small or cannot be had again stays: offsets and commits, ``why.txt``, the quarantine. Of the query that was
retired last the index stays, too, for people who want to see what was wrong.
"""

from __future__ import annotations

from tagstream.state.durable.root import INDEX, Root
from tagstream.table.storage.storage import Storage

_STATE = "state"  # Spark's state stores, beside the index below a root
_ROOTS, _MOVED = "tagstream/roots", "retired"  # the second: where an earlier program version moved a retired query


def prune_retired(checkpoint: Storage, root: Root) -> list[str]:
    """Delete the indexes of all retired queries but the last one; returns the folders of the queries, oldest first.

    Nothing is deleted before the query of ``root`` has committed a batch.
    """
    if root.number == 0 or not any(name.isdigit() for name in root.files.names("commits")):
        return []
    moved = sorted(int(name) for name in checkpoint.names(_MOVED) if name.isdigit())
    numbers = sorted(int(name) for name in checkpoint.names(_ROOTS) if name.isdigit())
    retired = [f"{_MOVED}/{n}" for n in moved] + ["", *(f"{_ROOTS}/{n}" for n in numbers if n < root.number)]
    pruned = []
    for folder in retired[:-1]:
        large = [f"{folder}/{name}".removeprefix("/") for name in (INDEX, _STATE)]
        there = [name for name in large if checkpoint.exists(name)]
        for name in there:
            checkpoint.delete_tree(name)
        if there:
            pruned.append(folder)
    return pruned
