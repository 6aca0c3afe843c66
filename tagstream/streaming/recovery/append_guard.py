"""What a stream that appends must not do: read records again whose rows the table has, since it looks up no key.

A stream that upserts may read records again: they are late or change nothing. Rows of an append would be doubled.
"""

from __future__ import annotations

from tagstream.state.checkpoint import same_stream
from tagstream.streaming.batch.commit_record import all_extra_metadata, parse
from tagstream.streaming.options.options import Options
from tagstream.streaming.recovery.cover_plan import CoverStep
from tagstream.streaming.recovery.foreign_commits import newest_own_commit
from tagstream.streaming.recovery.takeover import read_begins
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.timeline import Timeline

_IDENTIFIER = "hoodie.datasource.write.streaming.checkpoint.identifier"


def without_older_copy(
    options: Options,
    table: HoodieTable,
    timeline: Timeline,
    step: CoverStep,
    query_folder: Storage,
    *,
    stream_id: str,
    new: bool,
) -> CoverStep:
    """``step``, or "retire" where the checkpoint is an older copy and the stream appends.

    The batches that the newer copy made would be read again. A new query starts where the newest commit ended. ``new``:
    the checkpoint has no batch, so it is not an older copy.
    """
    if new or not options.appends or not step.found.uncovered:
        return step
    begins = read_begins(query_folder)  # older queries' commits are not in the index of a query without a batch
    asked = {time for time in step.found.uncovered if begins is None or time > begins}
    own = []
    for time, extra in all_extra_metadata(table, timeline):
        record = parse(extra) if time in asked else None
        if record is not None and same_stream(record.stream_id, stream_id):
            own.append(time)
        asked.discard(time)
        if not asked:
            break
    if not own:
        return step
    more = {1: "", 2: " and a newer one"}.get(len(own), f" and {len(own) - 1} newer ones")
    why = (
        f"table {table.base_path} has commit {own[-1]}{more} of stream {stream_id} that the checkpoint does not know: it is "
        "an older copy"
    )
    return CoverStep("retire", why, step.found)


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
