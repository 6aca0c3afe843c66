"""Marker files: an empty file below ``.hoodie/.temp/<instant>/`` for every data file an instant is about to write.

A marker is there before its data file, so the files of a write that failed can be found without listing the table.
Two kinds exist: DIRECT (one empty file a data file; what is written here) and TIMELINE_SERVER_BASED (a few text
files ``MARKERS<n>`` with one marker a line, beside ``MARKERS.type``); both are read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tagstream.table.file_group.partition_metadata import join
from tagstream.table.storage.storage import META_FOLDER, Storage
from tagstream.table.timeline.write_status import FileKind

TEMP_FOLDER = f"{META_FOLDER}/.temp"
_SUFFIX = re.compile(r"^(?P<path>.+)\.marker\.(?P<kind>CREATE|MERGE|APPEND)$")
_SERVER_FILE = re.compile(r"^MARKERS\d+$")


@dataclass(frozen=True)
class Marker:
    """A data file (path relative to the base path) an instant meant to write."""

    path: str
    kind: FileKind

    @property
    def partition_path(self) -> str:
        """The folder of the data file."""
        return self.path.rsplit("/", 1)[0] if "/" in self.path else ""

    @property
    def file_name(self) -> str:
        """The data file's own name."""
        return self.path.rsplit("/", 1)[-1]


def marker_folder(instant: str) -> str:
    """Where the markers of an instant are."""
    return f"{TEMP_FOLDER}/{instant}"


def create_marker(storage: Storage, instant: str, partition_path: str, file_name: str, kind: FileKind) -> None:
    """Announce a data file; call it before the file is opened."""
    storage.replace(f"{marker_folder(instant)}/{join(partition_path, file_name)}.marker.{kind.value}", b"")


def has_markers(storage: Storage, instant: str) -> bool:
    """True when the instant's marker folder exists, empty or not."""
    return storage.exists(marker_folder(instant))


def list_markers(storage: Storage, instant: str) -> list[Marker]:
    """The markers of an instant, of both kinds, sorted by path."""
    folder = marker_folder(instant)
    found: set[Marker] = set()
    for rel in storage.walk_files(folder):
        name = rel[len(folder) + 1 :]
        if _SERVER_FILE.match(name):
            lines = storage.read(rel).decode().splitlines()
            found.update(m for m in map(_parse, lines) if m is not None)
            continue
        marker = _parse(name)
        if marker is not None:
            found.add(marker)
    return sorted(found, key=lambda m: (m.path, m.kind))


def delete_markers(storage: Storage, instant: str) -> None:
    """Remove all markers of an instant."""
    storage.delete_tree(marker_folder(instant))


def _parse(text: str) -> Marker | None:
    match = _SUFFIX.match(text.strip())
    return Marker(match.group("path").lstrip("/"), FileKind(match.group("kind"))) if match else None
