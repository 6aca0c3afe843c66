"""First wins, told rightly also where a store's client sent a request twice because the first answer was lost."""

from __future__ import annotations

from tagstream.table.storage.storage import Storage


def create(storage: Storage, rel: str, data: bytes) -> bool:
    """Create a small file; False when another writer's is there.

    A file that is there and holds exactly ``data`` counts as created: it is what an earlier, unanswered request of this call
    left. So two writers who must be told apart put something of their own into ``data``.
    """
    try:
        storage.write_new(rel, data)
    except FileExistsError:
        try:
            return storage.read(rel) == data
        except FileNotFoundError:  # another's, and removed since
            return False
    return True
