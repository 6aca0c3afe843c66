"""What the last clean has left to its successor: from where on it need look, and which savepoints there were."""

from __future__ import annotations

from dataclasses import dataclass

from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.instant import CLEAN
from tagstream.table.timeline.timeline import Timeline

# Members of a clean's extra metadata: Hudi's names of the savepoints that there were; and ours of the first write that a
# clean which keeps file versions has not seen.
SAVEPOINTED = "savepointed_timestamps"
NEXT_WRITE = "tagstream.clean.next.write"


@dataclass(frozen=True)
class LastClean:
    """``earliest``: the earliest commit that it retained; None where its policy has none. ``savepoints``: their times.

    ``next_write``: the first write that it has not looked at, where it was one of ours that keeps file versions.
    """

    time: str
    earliest: str | None
    savepoints: frozenset[str]
    next_write: str | None = None


def last_clean(storage: Storage, timeline: Timeline) -> LastClean | None:
    """The newest completed clean on the active timeline; CorruptFileError when it cannot be read."""
    found = next((i for i in reversed(timeline.instants) if i.action == CLEAN and i.is_completed), None)
    if found is None:
        return None
    rel = f"{timeline.folder}/{found.file_name()}"
    record = read_record(storage.read(rel), storage.where(rel))
    extra = record.get("extraMetadata") or {}
    kept = frozenset(time for time in (extra.get(SAVEPOINTED) or "").split(",") if time)
    return LastClean(found.time, record.get("earliestCommitToRetain") or None, kept, extra.get(NEXT_WRITE))
