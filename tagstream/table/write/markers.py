"""The files of an unfinished write in ``.hoodie/.temp``: markers, staged data files, and the staged commit.

A marker names a data file that the instant is about to publish. It is written before its data file, so the files of a
failed write can be found without listing the table. There are two kinds: DIRECT (an empty file
``<data file>.marker.<kind>`` for each data file) and TIMELINE_SERVER_BASED (a few text files ``MARKERS<n>`` with one
marker in each line, and ``MARKERS.type``). Both are read; the second kind is written, as two files.

Tasks stage data files below the instant's folder, which no reader reads, under a name with the attempt's write token.
The driver gives the files their final names when it knows the files of the commit. A file of a task of a killed run, or
of the slower of two attempts, is never published, however late it is written: some readers fail on a second base file
of one instant in a file group. A commit is staged in ``.hoodie/.temp/.<instant>.<action>.staged``.

Tasks check that their write is still pending before they return results.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from tagstream.table.errors import InstantConflictError, TableNotFoundError
from tagstream.table.file_group.names import join
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.storage.storage import META_FOLDER, Storage, at_once
from tagstream.table.timeline.commit_metadata import CommitMetadata, FileKind
from tagstream.table.timeline.instant import COMPLETED_ACTION, REPLACE_COMMIT, Instant, State
from tagstream.table.write.write_context import WriteContext

TEMP_FOLDER = f"{META_FOLDER}/.temp"
_MARKER_NAME = re.compile(r"^(?P<path>.+)\.marker\.(?P<kind>CREATE|MERGE|APPEND)$")
_TYPE_FILE, _OWN_FILE = "MARKERS.type", "MARKERS0"
_SERVER_FILE = re.compile(r"^MARKERS\d+$")


@dataclass(frozen=True)
class Marker:
    """A data file (path relative to the base path) that an instant is about to publish."""

    path: str
    kind: FileKind

    @property
    def partition_path(self) -> str:
        """Partition path of the data file."""
        return self.path.rsplit("/", 1)[0] if "/" in self.path else ""

    @property
    def file_name(self) -> str:
        """Name of the data file."""
        return self.path.rsplit("/", 1)[-1]


def marker_folder(instant: str) -> str:
    """Folder of the markers of an instant."""
    return f"{TEMP_FOLDER}/{instant}"


def marker_files(instant: str) -> list[str]:
    """The files in which this project writes the markers of an instant."""
    return [f"{marker_folder(instant)}/{name}" for name in (_TYPE_FILE, _OWN_FILE)]


def begin_markers(storage: Storage, instant: str) -> None:
    """Create the marker folder of an instant, without markers; call it before the instant is inflight."""
    storage.replace(f"{marker_folder(instant)}/{_TYPE_FILE}", b"TIMELINE_SERVER_BASED")


def write_markers(storage: Storage, instant: str, markers: Iterable[Marker]) -> None:
    """Write the markers of all data files of an instant, before the first file is published."""
    lines = sorted(f"{marker.path}.marker.{marker.kind.value}\n" for marker in markers)
    storage.replace(f"{marker_folder(instant)}/{_OWN_FILE}", "".join(lines).encode())


def has_markers(storage: Storage, instant: str) -> bool:
    """True when the instant's marker folder exists, empty or not."""
    return storage.exists(marker_folder(instant))


def begun_markers(storage: Storage, instant: str) -> bool:
    """True between ``begin_markers`` and ``delete_markers``."""
    return storage.exists(f"{marker_folder(instant)}/{_TYPE_FILE}")


def list_markers(storage: Storage, instant: str) -> list[Marker]:
    """The markers of an instant, of both kinds, sorted by path."""
    folder = marker_folder(instant)
    found: set[Marker] = set()
    for rel in storage.walk_files(folder):
        name = rel[len(folder) + 1 :]
        if _SERVER_FILE.match(name):
            lines = storage.read(rel).decode().splitlines()
            found.update(m for m in map(_parse_marker, lines) if m is not None)
            continue
        marker = _parse_marker(name)
        if marker is not None:
            found.add(marker)
    return sorted(found, key=lambda m: (m.path, m.kind))


def delete_markers(storage: Storage, instant: str) -> None:
    """Remove all markers of an instant."""
    storage.delete_tree(marker_folder(instant))


def _parse_marker(text: str) -> Marker | None:
    match = _MARKER_NAME.match(text.strip())
    return Marker(match.group("path").lstrip("/"), FileKind(match.group("kind"))) if match else None


# Seconds for which a check remains valid. The clock is monotonic, so a task that was paused checks again.
_FRESH_S = 1.0
_yes: dict[tuple[str, str], float] = {}


def is_inflight(
    storage: Storage, timeline_folder: str, instant: str, action: str, clock_s: Callable[[], float] = time.monotonic
) -> bool:
    """Whether the inflight file of an action exists: nobody has rolled the write back.

    On an object store, where each check is a request, True is cached for a second in this process. One process checks
    for many files and key groups of a batch, and a rollback can come immediately after any check.
    """
    rel = f"{timeline_folder}/{Instant(instant, action, State.INFLIGHT).file_name()}"
    key, now = (storage.root, rel), clock_s()
    if storage.publishes_by_copy and now - _yes.get(key, float("-inf")) < _FRESH_S:
        return True
    found = storage.exists(rel)
    if found:
        for old in [other for other in list(_yes) if other[0] == storage.root]:
            _yes.pop(old, None)  # another thread of the task may have removed it
        _yes[key] = now
    return found


def check_seen(storage: Storage) -> None:
    """TableNotFoundError for a task that sees no table, because its host does not share the driver's folder.

    Called when an instant is not pending: otherwise that would look like another writer's rollback and be retried
    forever.
    """
    if not storage.exists(META_FOLDER):
        raise TableNotFoundError(
            f"a task on another host than the driver's finds no table at {storage.root}: table, checkpoint and source must "
            "be accessible to all of Spark's hosts under the same path, or on a store (S3, HDFS, ...)"
        )


_STAGED_SUFFIX = ".staged"


def begin_data_file(table: HoodieTable, ctx: WriteContext, partition_path: str, name: str) -> str:
    """The name under which to stage a file; InstantConflictError when its instant was rolled back."""
    if not is_inflight(table.storage, table.config.timeline_folder, ctx.instant, ctx.action):
        check_seen(table.storage)
        raise InstantConflictError(
            f"instant {ctx.instant} of {table.base_path} was rolled back before {name} was written: it belongs to an "
            "attempt that is too late, and none of its files is published"
        )
    return staged_path(ctx.instant, join(partition_path, name))


def staged_path(instant: str, path: str) -> str:
    """Path of a data file (path relative to the base path) until it is published."""
    return f"{marker_folder(instant)}/{path}{_STAGED_SUFFIX}"


def is_staged(path: str) -> bool:
    """True for the name of a staged data file."""
    return path.endswith(_STAGED_SUFFIX)


_STAGED_COMMIT = re.compile(r"\.(?P<instant>[0-9]+)\.[a-z]+\.staged")


def staged_commit_path(instant: str, action: str) -> str:
    """Path of the content of a commit until it is published."""
    return f"{TEMP_FOLDER}/.{instant}.{action}.staged"


def staged_instant(name: str) -> str | None:
    """The instant whose commit is staged in this file of ``TEMP_FOLDER``; None for other files."""
    found = _STAGED_COMMIT.fullmatch(name)
    return None if found is None else found["instant"]


def stage(table: HoodieTable, instant: str, action: str, metadata: CommitMetadata) -> None:
    """Stage the content of a commit: write it durably under a hidden name."""
    replaces = COMPLETED_ACTION.get(action, action) == REPLACE_COMMIT
    content = metadata.to_bytes(table.config.version, replaces=replaces)
    table.storage.replace(staged_commit_path(instant, action), content)


def forget_staged(table: HoodieTable, instant: str, action: str) -> None:
    """Undo :func:`stage`."""
    table.storage.delete(staged_commit_path(instant, action))


def tidy(storage: Storage, instant: str, action: str, paths: Sequence[str]) -> None:
    """Remove markers and staged files of a completed instant; ``paths`` are those of its data files.

    On a store that keeps staged files after publishing, known files are removed by name at once. Listing the folder finds
    the files of late tasks.
    """
    staged = staged_commit_path(instant, action)
    known = [staged]
    if storage.publishes_by_copy:
        known += [*marker_files(instant), *(staged_path(instant, path) for path in paths)]
        remove, folder = partial(storage.delete_many, known), marker_folder(instant)
        _, found = at_once(storage, remove, lambda: list(storage.walk_files(folder)))
        storage.delete_many(sorted(set(found) - set(known)))
        return
    at_once(storage, lambda: storage.delete(staged), lambda: delete_markers(storage, instant))


def unstage(table: HoodieTable, instant: str, action: str) -> None:
    """Remove the staged commit and files of an unfinished write, which can then no longer be published."""
    storage = table.storage
    storage.delete(staged_commit_path(instant, action))
    storage.delete_many([rel for rel in storage.walk_files(marker_folder(instant)) if is_staged(rel)])
