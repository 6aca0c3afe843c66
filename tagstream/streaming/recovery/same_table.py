"""Whether a checkpoint belongs to this table. Checked before anything is changed.

With a checkpoint of another table, the job would use the wrong index, and the other table's next start would use it
too. Base path and name must be those in ``meta.json``. A table that was moved or renamed is recognized by its commits:
it has some that the checkpoint's query made or that its index load covers. A copied table has them, too. So the
checkpoint is accepted for it only when the old path has no such table any more, or when the checkpoint was copied as
well.
"""

from __future__ import annotations

from tagstream.state.checkpoint import INDEX, META_FILE, BoundTo, current_query_folder, read_meta
from tagstream.state.index_loads import read_marker
from tagstream.state.layout import StateLayout
from tagstream.streaming.batch.commit_record import all_extra_metadata, parse
from tagstream.streaming.errors import CheckpointError
from tagstream.streaming.recovery.coverage import CheckpointState
from tagstream.streaming.recovery.takeover import read_query_index_load
from tagstream.table.errors import TableNotFoundError, TagstreamError
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.opening import open_storage, same_place
from tagstream.table.storage.storage import Storage


def check_table(checkpoint: Storage, base_path: str) -> str | None:
    """CheckpointError when the checkpoint belongs to another table.

    Returns None when it belongs to this one, and a sentence for the log when the table had another path or name before.
    """
    bound = read_meta(checkpoint).table if checkpoint.exists(META_FILE) else None
    if bound is None:  # a new checkpoint, or one of a version that did not store its table
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
    query_folder = current_query_folder(checkpoint).files
    if table is None or not _has_its_commits(query_folder, table):
        raise _refusal(checkpoint, before, now)
    return (
        f"checkpoint {checkpoint.root} was written for {before}; {now} has its commits, so the stream continues with it"
    )


def _refusal(checkpoint: Storage, before: str, now: str) -> CheckpointError:
    return CheckpointError(
        f"checkpoint {checkpoint.root} belongs to {before}, not to {now}. Set --checkpoint-dir to this table's checkpoint, "
        "or to a new folder: then the index is loaded from the table, and a topic is read from where its newest commit in "
        "the table ended"
    )


def _open(base_path: str) -> HoodieTable | None:
    try:
        return HoodieTable.open(base_path)
    except TableNotFoundError:
        return None


def _is_there(bound: BoundTo) -> bool:
    """Whether the old path still has a table of that name. A table that cannot be read counts."""
    try:
        table = _open(bound.path)
    except TagstreamError:
        return True
    return table is not None and table.config.name == bound.name


def is_unused(checkpoint: Storage) -> bool:
    """Whether the checkpoint has no batch and no index, only the settings of its first start."""
    query_folder = current_query_folder(checkpoint).files
    return CheckpointState.read(query_folder).planned is None and read_query_index_load(query_folder) is None


def _has_its_commits(query_folder: Storage, table: HoodieTable) -> bool:
    """Whether the table has a commit of the checkpoint's query or of its index load, archived or not."""
    timeline = table.timeline()
    covered: frozenset[str] = frozenset()
    taken = read_query_index_load(query_folder)
    if taken is not None:
        marker = read_marker(StateLayout(query_folder.below(INDEX), ""), taken.index_load)
        covered = frozenset(marker.covered) if marker is not None else frozenset()
        if any(instant.time in covered for instant in timeline.completed_writes):
            return True
    query = CheckpointState.read(query_folder).query_id
    for _, extra in all_extra_metadata(table, timeline):
        record = parse(extra)
        if record is not None and record.query_id == query:
            return True
    return bool(covered) and any(action.time in covered for action in table.archived_writes())
