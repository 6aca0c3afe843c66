"""Merge small files of layout 1's archive into larger ones, so that their number does not grow with each archiving.

Hudi 0.x (HoodieTimelineArchiver of 0.15.0, off by default) writes the content of the newest small files to a new file
and deletes them. While both exist, its readers of a time range stop at the first file that has nothing new for them
(HoodieArchivedTimeline.loadInstants, 0.15.0; ArchivedTimelineLoaderV1, 1.2.0) and miss older actions. A reader that
listed the files before finds that some are missing. So this writer merges in another way:

1. ``tagstream_merged.json`` names the files: neighbours in the archive's order, never the newest of all files;
2. the oldest of them is replaced in one step by the blocks of all. A reader sees a file that has grown, as
   Hudi's files do on stores that can append: its former content comes first, and each file still has something that
   no newer file has;
3. at the next archiving the other files are deleted, each only if the merged file has all of its blocks;
   then the note is deleted. Until then a reader that listed them can read them. Every reader uses an action once.

If the process dies at any step, the next call completes the merge. The note only names the files to check: no file is
deleted because of the note alone. Numbers are never reused, because the newest file is not merged.

Each merge makes the file of a record at least twice as long, and files above the limit are not merged: n
archivings write O(n log n) bytes, and O(n) when files reach the limit.

An unfinished merge of Hudi 0.x is finished as Hudi does it. Hudi writes ``mergeArchivePlan`` (an Avro file of one
HoodieMergeArchiveFilePlan: ``candidate``, full paths; and ``mergedArchiveFileName``), then the merged file, deletes the
candidates, and deletes the plan. At its next archiving (HoodieTimelineArchiver.verifyLastMergeArchiveFilesIfNecessary,
0.15.0) it deletes a plan that cannot be read. If all candidates exist, the merged file may be incomplete, and Hudi
deletes it. Otherwise it is complete, and Hudi deletes the remaining candidates. Only 0.x with
hoodie.archive.merge.enable does so; 1.x does not merge (TimelineArchiverV1). This module also checks that the other
files have all records of a file before it deletes the file, because a store that can append may have added records to
the merged file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tagstream.table.config import Kind
from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.file_group.log_file import split_log_file
from tagstream.table.file_group.log_format import BlockType
from tagstream.table.history.archive_log import archive_files, is_archive_file, key_of, read_entries, state_of
from tagstream.table.option_fields import option
from tagstream.table.storage.storage import Storage, at_once
from tagstream.table.timeline.avro_timeline import read_record

PLAN_FILE = "mergeArchivePlan"
_Records = set[tuple[tuple[str, str], str]]


def finish_hudis_merge(storage: Storage, folder: str, check: Callable[[], None] = lambda: None) -> tuple[str, ...]:
    """Undo or complete the merge of a ``mergeArchivePlan``, if there is one; returns the names of the deleted files.

    ``check`` is called before files are deleted; an error that it raises stops the deletion.
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
    """The files of a plan whose records are in the other files, too."""
    try:
        plan = read_record(data, storage.where(f"{folder}/{PLAN_FILE}"))
    except CorruptFileError:
        return ()  # a truncated plan: Hudi had changed nothing yet
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
            begun = set()  # truncated while it was written
        return (merged,) if begun <= _records(storage, folder, left) else ()
    held = _records(storage, folder, [merged])
    return tuple(name for name in left if _records(storage, folder, [name]) <= held)


def _records(storage: Storage, folder: str, names: Iterable[str]) -> _Records:
    """The (action, state) pairs in the files."""
    entries = (entry for name in names for entry in read_entries(storage, f"{folder}/{name}"))
    return {(key_of(entry), state_of(entry).value) for entry in entries}


NOTE_FILE = "tagstream_merged.json"
# The most files in one merge, in multiples of ``MergeOptions.files``, for an archive with many old files. It limits the
# calls of a run, as ``small_bytes`` limits its bytes.
_BATCHES_A_MERGE = 100


@dataclass(frozen=True)
class MergeOptions:
    """Which files of the archive are merged, with Hudi's names and defaults (hoodie.archive.merge.*).

    ``files``: the least number of files of a merge. ``small_bytes``: the greatest size of a file that is merged, and of
    a merged file.
    """

    files: int = option(
        "hoodie.archive.merge.files.batch.size",
        Kind.INT,
        "Least number of small archive files that are merged.",
        default=10,
        minimum=2,
    )
    small_bytes: int = option(
        "hoodie.archive.merge.small.file.limit.bytes",
        Kind.BYTES,
        "Archive files above this size are not merged, and a merged file does not exceed it.",
        default=20 << 20,
        minimum=1,
    )


@dataclass(frozen=True)
class _Note:
    """A merge: ``into`` is the file that gets the content of ``files``."""

    into: str
    files: tuple[str, ...]


def merge_archive(
    storage: Storage, folder: str, options: MergeOptions, check: Callable[[], None] = lambda: None
) -> tuple[str, ...]:
    """Finish the present merge, and begin the next one if it is due; returns the names of the deleted files.

    The caller has the writer lease, which ``check`` verifies. A file that cannot be read is not merged: the error comes
    when somebody reads the archive.
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
    """Indexes of the files to merge, of their sizes from the oldest on; None when no merge is due.

    They are neighbours without the newest file, and their total size is at least twice that of the largest. Smaller files
    are merged first. O(n) for each doubling of the size.
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
    """The first range of files of at most ``bound`` bytes each that is worth a merge."""
    start = 0
    while start < len(sizes):
        end, total, longest = start, 0, 0
        most = min(len(sizes), start + options.files * _BATCHES_A_MERGE)
        while end < most and sizes[end] <= bound and total + sizes[end] <= options.small_bytes:
            total, longest = total + sizes[end], max(longest, sizes[end])
            end += 1
        # Fewer files are enough if one more would exceed the greatest size: they would otherwise never be merged.
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
    """Delete the files that a merge has copied. None when the merge had to be repeated: they are deleted the next time."""
    note = _read_note(storage, folder)
    if note is None:
        return ()
    left = tuple(name for name in note.files if name in there)
    if note.into in there and left:
        held = set(_blocks(storage, folder, [note.into])[0])
        files = _blocks(storage, folder, left)
        if not all(held.issuperset(blocks) for blocks in files):
            # The merge is repeated, not dropped: another process that is about to do it would write the same bytes.
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
    """The intact blocks of all files, each once: an earlier merge may have copied some already."""
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
            raise UnsupportedTableError(f"{block.where} is not a block of archived instants; restore the file")
        found.append(data)
    return found


def _read_note(storage: Storage, folder: str) -> _Note | None:
    try:
        doc = json.loads(storage.read(f"{folder}/{NOTE_FILE}"))
        return _Note(str(doc["into"]), tuple(str(name) for name in doc["files"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None  # without a readable note nothing is deleted
