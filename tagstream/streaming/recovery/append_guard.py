"""What a stream that appends must not do: read records again whose rows the table has, since it looks up no key.

A stream that upserts may read records again: they are late or change nothing. Rows of an append would be doubled.
"""

from __future__ import annotations

from tagstream.streaming.options.options import Options
from tagstream.streaming.recovery.cover_plan import CoverStep
from tagstream.streaming.recovery.foreign_commits import newest_own_commit
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.timeline import Timeline

_IDENTIFIER = "hoodie.datasource.write.streaming.checkpoint.identifier"


def append_problem(
    options: Options, table: HoodieTable, timeline: Timeline, step: CoverStep, *, stream_id: str, new: bool
) -> str | None:
    """Why the next step would append records a second time; None where it would not, and for other operations.

    ``step``: what recovery would do. ``new``: the checkpoint has no batch, so its source is read from the beginning.
    """
    if not options.appends:
        return None
    operation, path = options.table.operation, table.base_path
    if step.kind == "reread":
        return (
            f"{step.why}. {operation} looks up no key, so the records after them would be appended a second time. Restore "
            "the table to the time before the other writer's commit, or start with a new checkpoint and append the lost "
            "records yourself"
        )
    # A topic is read from the end of the newest commit on. Files and DataFrames have no such position.
    if options.source.kind == "kafka" or not (new or step.kind == "retire"):
        return None
    own = newest_own_commit(table, timeline, stream_id)
    if own is None:
        return None
    return (
        f"table {path} has rows of stream {stream_id} (newest commit {own}), and "
        f"{'the checkpoint is new' if new else step.why}: all records of the source would be read again, and {operation}, "
        "which looks up no key, would append them a second time. Restore the checkpoint, use UPSERT, or, where the source "
        f"has only new records, set another {_IDENTIFIER}"
    )
