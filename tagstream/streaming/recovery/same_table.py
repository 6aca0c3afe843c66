"""Whether a checkpoint is this table's: looked at before anything is changed.

A checkpoint of another table would be given the wrong index, and the other table's next start would take it for its own.
Base path and name must be those in ``meta.json``. A table that was moved or renamed is known by its commits: it holds some
that the checkpoint's query has made or its index was loaded over. One that was copied holds them, too, so the checkpoint
only goes with it while the old place has no such table any more, or when the checkpoint was copied as well.
"""

from __future__ import annotations

from tagstream.state.checkpoint import INDEX, META_FILE, BoundTo, current_root, read_meta
from tagstream.state.index_loads import read_marker
from tagstream.state.layout import StateLayout
from tagstream.streaming.batch.commit_record import all_extra_metadata, parse
from tagstream.streaming.errors import CheckpointError
from tagstream.streaming.recovery.coverage import CheckpointState
from tagstream.streaming.recovery.takeover import read_takeover
from tagstream.table.errors import TableNotFoundError, TagstreamError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.opening import open_storage, same_place
from tagstream.table.storage.storage import Storage


def check_table(checkpoint: Storage, base_path: str) -> str | None:
    """CheckpointError when the checkpoint is another table's.

    None when it is this one's; a sentence for the log when it is this one's under another path or name than before.
    """
    bound = read_meta(checkpoint).table if checkpoint.exists(META_FILE) else None
    if bound is None:  # a new checkpoint, or one of a version that did not note its table
        return None
    table = _open(base_path)
    path = open_storage(base_path).root if table is None else table.base_path
    name = None if table is None else table.config.name
    moved = not same_place(path, bound.path)
    if not moved and name in (None, bound.name):
        return None
    before, now = f"table {bound.name} at {bound.path}", f"{path}, where there is no table"
    if name is not None:
        now = f"table {name} at {path}"
    if moved and same_place(checkpoint.root, bound.checkpoint) and _is_there(bound):
        raise _refusal(checkpoint, before, now)
    if is_unused(checkpoint):
        return None
    root = current_root(checkpoint).files
    if table is None or not _has_its_commits(root, table):
        raise _refusal(checkpoint, before, now)
    return f"checkpoint {checkpoint.root} was that of {before}; {now} holds its commits, and goes on with it"


def _refusal(checkpoint: Storage, before: str, now: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {checkpoint.root} belongs to {before}, not to {now}. Give this table's own --checkpoint-dir, or a new "
        "folder: the index is then loaded from the table, and a topic goes on where the table's newest commit of it ended"
    )


def _open(base_path: str) -> HoodieTable | None:
    try:
        return HoodieTable.open(base_path)
    except TableNotFoundError:
        return None


def _is_there(bound: BoundTo) -> bool:
    """Whether the old place still has a table of that name; one that cannot be read counts."""
    try:
        table = _open(bound.path)
    except TagstreamError:
        return True
    return table is not None and table.config.name == bound.name


def is_unused(checkpoint: Storage) -> bool:
    """Nothing but the choices of a first start: no batch, no index."""
    root = current_root(checkpoint).files
    return CheckpointState.read(root).planned is None and read_takeover(root) is None


def _has_its_commits(root: Storage, table: HoodieTable) -> bool:
    """Whether the table holds a commit of the checkpoint's query, or one that its index was loaded over; archived or not."""
    timeline = table.timeline()
    covered: frozenset[str] = frozenset()
    taken = read_takeover(root)
    if taken is not None:
        marker = read_marker(StateLayout(root.below(INDEX), ""), taken.generation)
        covered = frozenset(marker.covered) if marker is not None else frozenset()
        if any(instant.time in covered for instant in timeline.completed_writes):
            return True
    query = CheckpointState.read(root).query_id
    for _, extra in all_extra_metadata(table, timeline):
        record = parse(extra)
        if record is not None and record.query_id == query:
            return True
    return bool(covered) and any(action.time in covered for action in table.archived_writes())
