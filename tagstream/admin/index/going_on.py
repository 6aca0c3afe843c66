"""Where a new checkpoint goes on to read: what the table's commits say of it."""

from __future__ import annotations

import json

from tagstream.admin.errors import AdminError
from tagstream.streaming.batch.commit_record import CommitRecord, parse
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.timeline import Timeline


def newest_offsets(table: HoodieTable, timeline: Timeline, stream_id: str) -> str | None:
    """Where the newest commit of the stream ended, as Spark's starting offsets; None for files."""
    for instant in reversed(timeline.completed_writes):
        record = parse(timeline.metadata(table.storage, instant).extra)
        if record is not None and record.stream_id == stream_id:
            return starting_offsets_of(record)
    return None


def starting_offsets_of(record: CommitRecord) -> str | None:
    """Where a commit ended, as Spark's starting offsets; None for files, of which a new query reads all again."""
    offsets = record.end_offsets
    return json.dumps(offsets) if all(isinstance(parts, dict) for parts in offsets.values()) else None


def refuse_rows(record: CommitRecord, checkpoint: Storage) -> None:
    """AdminError for a stream whose source is a DataFrame: nobody but its code can go on at a commit's offsets."""
    if "sources" in record.end_offsets:
        raise AdminError(
            f"the stream of checkpoint {checkpoint.root} is a DataFrame, and only the code that made it can go on at its "
            "offsets. Start it with a new checkpoint and as many key groups as you want (index.key.groups): the index is "
            "then loaded from the table"
        )
