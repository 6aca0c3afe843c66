"""The savepoints of a table: completed writes whose files nothing may delete (Hudi's HoodieSavepointMetadata)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.instant import SAVEPOINT
from tagstream.table.timeline.timeline import Timeline


@dataclass(frozen=True)
class Savepoint:
    """``time``: of the write that it keeps. ``made_ms``: epoch milliseconds. ``files``: names by partition path."""

    time: str
    user: str
    comment: str
    made_ms: int
    files: Mapping[str, frozenset[str]]


def savepoints(storage: Storage, timeline: Timeline) -> tuple[Savepoint, ...]:
    """The completed savepoints, oldest first; CorruptFileError for one that cannot be read."""
    found = []
    for instant in timeline.instants:
        if instant.action == SAVEPOINT and instant.is_completed:
            rel = f"{timeline.folder}/{instant.file_name()}"
            record = read_record(storage.read(rel), storage.where(rel))
            files = {
                partition: frozenset(each.get("savepointDataFile") or ())
                for partition, each in (record.get("partitionMetadata") or {}).items()
            }
            user, comment = record.get("savepointedBy") or "", record.get("comments") or ""
            found.append(Savepoint(instant.time, user, comment, record.get("savepointedAt") or 0, files))
    return tuple(found)
