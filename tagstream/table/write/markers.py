"""Markers: what tells, below ``.hoodie/.temp/<instant>/``, which data files an instant is about to publish.

A marker is there before its data file, so the files of a write that failed can be found without listing the table.
Two kinds exist: DIRECT (one empty file ``<data file>.marker.<kind>`` a data file) and TIMELINE_SERVER_BASED (a few text
files ``MARKERS<n>`` with one marker a line, beside ``MARKERS.type``). Both are read; the second is written, as two files.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tagstream.table.storage.storage import META_FOLDER, Storage
from tagstream.table.timeline.write_status import FileKind

TEMP_FOLDER = f"{META_FOLDER}/.temp"
_SUFFIX = re.compile(r"^(?P<path>.+)\.marker\.(?P<kind>CREATE|MERGE|APPEND)$")
_TYPE_FILE, _OWN_FILE = "MARKERS.type", "MARKERS0"
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


def marker_files(instant: str) -> list[str]:
    """The files in which this project writes the markers of an instant."""
    return [f"{marker_folder(instant)}/{name}" for name in (_TYPE_FILE, _OWN_FILE)]


def begin_markers(storage: Storage, instant: str) -> None:
    """Say that an instant has markers, none so far; call it before the instant is inflight."""
    storage.replace(f"{marker_folder(instant)}/{_TYPE_FILE}", b"TIMELINE_SERVER_BASED")


def write_markers(storage: Storage, instant: str, markers: Iterable[Marker]) -> None:
    """Announce all data files of an instant, before the first of them is published."""
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
