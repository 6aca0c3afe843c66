"""A merge of archive files that Hudi 0.x began and did not end, taken to its end as Hudi does it.

Hudi writes ``mergeArchivePlan`` (an Avro file of one HoodieMergeArchiveFilePlan: ``candidate``, full paths; and
``mergedArchiveFileName``), then the merged file, deletes the candidates, deletes the plan. At its next archiving
(HoodieTimelineArchiver.verifyLastMergeArchiveFilesIfNecessary, 0.15.0): a plan that can't be read is deleted; with all
candidates there the merged file may be a part, and is deleted; else the merged file is whole, and the candidates that are
left are deleted. Only 0.x with hoodie.archive.merge.enable does so; 1.x has left merging out (TimelineArchiverV1).

Here nothing is deleted that the other side does not hold: a store that can append may have put more into the merged file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tagstream.table.errors import CorruptFileError
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.avro_timeline import read_record
from tagstream.table.timeline.history.archive_log import is_archive_file, read_entries
from tagstream.table.timeline.history.entries import key_of, state_of

PLAN_FILE = "mergeArchivePlan"
_Records = set[tuple[tuple[str, str], str]]


def finish_hudis_merge(storage: Storage, folder: str, check: Callable[[], None] = lambda: None) -> tuple[str, ...]:
    """Undo or complete the merge that ``mergeArchivePlan`` describes, if there is one; the names of the files deleted.

    ``check`` is called before anything is deleted, and stops it by what it raises.
    """
    try:
        data = storage.read(f"{folder}/{PLAN_FILE}")
    except FileNotFoundError:
        return ()
    gone = _superfluous(storage, folder, data)
    check()
    for name in (*gone, PLAN_FILE):
        storage.delete(f"{folder}/{name}")
    return gone


def _superfluous(storage: Storage, folder: str, data: bytes) -> tuple[str, ...]:
    """The files of a plan whose records stand in the others, too."""
    try:
        plan = read_record(data, storage.where(f"{folder}/{PLAN_FILE}"))
    except CorruptFileError:
        return ()  # it was cut off: nothing was done yet
    merged = str(plan.get("mergedArchiveFileName") or "")
    candidates = [str(path).rpartition("/")[2] for path in plan.get("candidate") or ()]
    candidates = [name for name in dict.fromkeys(candidates) if is_archive_file(name) and name != merged]
    there = set(storage.names(folder))
    if merged not in there or not is_archive_file(merged):
        return ()
    left = [name for name in candidates if name in there]
    if left == candidates:
        try:
            begun = _records(storage, folder, [merged])
        except CorruptFileError:
            begun = set()  # cut off while it was written
        return (merged,) if begun <= _records(storage, folder, left) else ()
    held = _records(storage, folder, [merged])
    return tuple(name for name in left if _records(storage, folder, [name]) <= held)


def _records(storage: Storage, folder: str, names: Iterable[str]) -> _Records:
    """What the files hold: actions and states."""
    entries = (entry for name in names for entry in read_entries(storage, f"{folder}/{name}"))
    return {(key_of(entry), state_of(entry).value) for entry in entries}
