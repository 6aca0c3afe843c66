"""Small files of layout 1's archive merged into larger ones, so that their number does not grow with each archiving.

Hudi 0.x (HoodieTimelineArchiver of 0.15.0, off by default) writes the content of all of the newest small files
into one more file and deletes them. While both exist, its readers of a time range stop at the first file that has
nothing new to them (HoodieArchivedTimeline.loadInstants, 0.15.0; ArchivedTimelineLoaderV1, 1.2.0) and miss what is
older. A reader that listed the files before finds some of them gone. So it is done otherwise here:

1. ``tagstream_merged.json`` names the files: neighbours in the archive's order, never the newest one of all;
2. the oldest of them is replaced by all of their blocks, in one step. To a reader it is a file that has grown, as
   Hudi's own do on stores that can append: its former content comes first, and each file still has something that
   no newer one has;
3. at the next archiving the others are deleted, each only if all of its blocks are in the file that has grown;
   then the note is deleted. Until then a reader that listed them can read them. Every reader takes an action once.

If the process dies anywhere, the next call does the rest. The note only names what to check: no file is deleted
because of it alone. Numbers are never given twice, because the newest file stays.

Each merge makes the file of a record at least twice as long, and files above the limit stay as they are: n
archivings write O(n log n) bytes, and O(n) once files reach the limit.

A merge that Hudi 0.x began and did not finish is finished as Hudi does it. Hudi writes ``mergeArchivePlan`` (an
Avro file of one HoodieMergeArchiveFilePlan: ``candidate``, full paths; and ``mergedArchiveFileName``), then the
merged file, deletes the candidates, deletes the plan. At its next archiving
(HoodieTimelineArchiver.verifyLastMergeArchiveFilesIfNecessary, 0.15.0) a plan that can't be read is deleted. If
all candidates exist, the merged file may be incomplete, and is deleted. Else it is whole, and the candidates that
are left are deleted. Only 0.x with hoodie.archive.merge.enable does so; 1.x does not merge (TimelineArchiverV1).
Here nothing is deleted that the other side does not hold: a store that can append may have put more into the
merged file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.log_file import split_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.history.archive_log import archive_files, is_archive_file, key_of, read_entries, state_of
from tagstream.table.storage.storage import Storage, at_once
from tagstream.table.timeline.avro_timeline import read_record

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


NOTE_FILE = "tagstream_merged.json"
# How many times the batch's files one merge takes at most, when there are many from before: it bounds the calls of a run, as
# the limit of the size does its bytes.
_BATCHES_A_MERGE = 100


@dataclass(frozen=True)
class MergeOptions:
    """Which files of the archive are merged, with Hudi's names and defaults (hoodie.archive.merge.*).

    ``files``: so many small ones are merged at least. ``small_bytes``: greater ones are not small, and none that is made is
    greater.
    """

    files: int = 10  # hoodie.archive.merge.files.batch.size
    small_bytes: int = 20 << 20  # hoodie.archive.merge.small.file.limit.bytes


@dataclass(frozen=True)
class _Note:
    """A merge: the file that grows, and those that it takes up."""

    into: str
    files: tuple[str, ...]


def merge_archive(
    storage: Storage, folder: str, options: MergeOptions, check: Callable[[], None] = lambda: None
) -> tuple[str, ...]:
    """Finish the merge that is under way, begin the next one if one is due; the names of the files that were deleted.

    The caller holds the writer lease, which ``check`` looks after. A file that can't be read is not merged: who reads the
    archive is shown which one it is.
    """
    try:
        finish_hudis_merge(storage, folder, check)
        sizes = {entry.name: entry.size for entry in storage.list(folder, (".commits_",))}
        done = _finish(storage, folder, sizes, check)
        if done is None:
            return ()
        _begin(storage, folder, {name: size for name, size in sizes.items() if name not in done}, options, check)
    except (CorruptFileError, UnsupportedTableError):
        return ()
    return done


def files_to_merge(sizes: Sequence[int], options: MergeOptions) -> range | None:
    """The places of the files to be merged, of their sizes from the oldest on; None when no merge is due.

    They are neighbours, the newest file is not among them, and together they are twice as long as the longest at least.
    Shorter ones come first. O(n) for each doubling of the size.
    """
    there = sizes[:-1]
    longest = max((size for size in there if size <= options.small_bytes), default=0)
    if len(there) < 2 or not longest:
        return None
    bound = max(1, min(there))
    while True:
        found = _among(there, min(bound, options.small_bytes), options)
        if found is not None or bound >= longest:
            return found
        bound *= 2


def _among(sizes: Sequence[int], bound: int, options: MergeOptions) -> range | None:
    """The first stretch of files of at most ``bound`` bytes each that is worth a merge."""
    start = 0
    while start < len(sizes):
        end, total, longest = start, 0, 0
        most = min(len(sizes), start + options.files * _BATCHES_A_MERGE)
        while end < most and sizes[end] <= bound and total + sizes[end] <= options.small_bytes:
            total, longest = total + sizes[end], max(longest, sizes[end])
            end += 1
        # Fewer are enough where one more would make a file that is too large: they would stay for ever.
        is_full = end < most and sizes[end] <= bound and 2 * total >= options.small_bytes
        if 2 * longest <= total and (end - start >= options.files or is_full):
            return range(start, end)
        start = max(end, start + 1)
    return None


def _begin(
    storage: Storage, folder: str, sizes: Mapping[str, int], options: MergeOptions, check: Callable[[], None]
) -> None:
    names = archive_files(storage, folder, sizes)
    chosen = files_to_merge([sizes[name] for name in names], options)
    if chosen is None:
        return
    first, *others = (names[at] for at in chosen)
    note = _Note(first, tuple(others))
    content = _joined(storage, folder, note)
    check()
    storage.replace(f"{folder}/{NOTE_FILE}", json.dumps({"into": note.into, "files": note.files}).encode())
    check()
    storage.replace(f"{folder}/{note.into}", content)


def _finish(storage: Storage, folder: str, there: Collection[str], check: Callable[[], None]) -> tuple[str, ...] | None:
    """Delete what a merge has taken up. None when the merge itself had to be done: what it took stays till the next time."""
    note = _read_note(storage, folder)
    if note is None:
        return ()
    left = tuple(name for name in note.files if name in there)
    if note.into in there and left:
        held = set(_blocks(storage, folder, [note.into])[0])
        files = _blocks(storage, folder, left)
        if not all(held.issuperset(blocks) for blocks in files):
            # Not dropped but done: were another process still about to do it, it would write the same bytes.
            content = _joined(storage, folder, _Note(note.into, left))
            check()
            storage.replace(f"{folder}/{note.into}", content)
            return None
        check()
        storage.delete_many(f"{folder}/{name}" for name in left)
    else:
        left = ()
    storage.delete(f"{folder}/{NOTE_FILE}")
    return left


def _joined(storage: Storage, folder: str, note: _Note) -> bytes:
    """The intact blocks of all files, each once: what an earlier merge may have left a second time is left out."""
    files = _blocks(storage, folder, (note.into, *note.files))
    return b"".join(dict.fromkeys(block for blocks in files for block in blocks))


def _blocks(storage: Storage, folder: str, names: Sequence[str]) -> list[list[bytes]]:
    """The intact blocks of each file."""
    return at_once(storage, *(partial(_blocks_of, storage, f"{folder}/{name}") for name in names))


def _blocks_of(storage: Storage, rel: str) -> list[bytes]:
    found = []
    for block, data in split_log_file(storage, rel):
        if block.type is BlockType.CORRUPT:
            continue  # its actions are still on the active timeline, or were archived again
        if block.type is not BlockType.AVRO_DATA:
            raise UnsupportedTableError(f"{block.where} is no block of archived instants; restore the file")
        found.append(data)
    return found


def _read_note(storage: Storage, folder: str) -> _Note | None:
    try:
        doc = json.loads(storage.read(f"{folder}/{NOTE_FILE}"))
        return _Note(str(doc["into"]), tuple(str(name) for name in doc["files"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None  # without a note that can be read nothing is deleted
