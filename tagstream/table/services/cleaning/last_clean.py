"""What the last clean has left to its successor: from where on it need look, and which savepoints there were."""

from __future__ import annotations

from dataclasses import dataclass

from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.instant import CLEAN, Instant
from tagstream.table.timeline.timeline import Timeline

# Members of a clean's extra metadata: Hudi's names of the savepoints that there were; and ours of the first write that a
# clean which keeps file versions has not seen.
SAVEPOINTED = "savepointed_timestamps"
NEXT_WRITE = "tagstream.clean.next.write"


@dataclass(frozen=True)
class LastClean:
    """``earliest``: the earliest commit that it retained; None where its policy has none. ``savepoints``: their times.

    ``next_write``: the first write that it has not looked at, where it was one of ours that keeps file versions.
    ``deleted``: whether it deleted any file.
    """

    time: str
    earliest: str | None
    savepoints: frozenset[str]
    next_write: str | None = None
    deleted: bool = True


def last_clean(storage: Storage, timeline: Timeline) -> LastClean | None:
    """The newest completed clean on the active timeline; CorruptFileError when it cannot be read."""
    done = completed_cleans(timeline)
    return clean_of(storage, timeline, done[-1]) if done else None


def completed_cleans(timeline: Timeline) -> list[Instant]:
    """The completed cleans on the active timeline, oldest first."""
    return [i for i in timeline.instants if i.action == CLEAN and i.is_completed]


def clean_of(storage: Storage, timeline: Timeline, clean: Instant) -> LastClean:
    """What a completed clean on the active timeline tells; CorruptFileError when it cannot be read."""
    rel = f"{timeline.folder}/{clean.file_name()}"
    record = read_record(storage.read(rel), storage.where(rel))
    extra = record.get("extraMetadata") or {}
    kept = frozenset(time for time in (extra.get(SAVEPOINTED) or "").split(",") if time)
    earliest, deleted = record.get("earliestCommitToRetain") or None, bool(record.get("totalFilesDeleted"))
    return LastClean(clean.time, earliest, kept, extra.get(NEXT_WRITE), deleted)
