"""Which files the history of timeline layout 2 has: ``manifest_<N>``, and ``_version_``, which names the newest N.

The history (``.hoodie/timeline/history``) is a log-structured merge tree: Parquet files ``<min>_<max>_<level>.parquet``,
min and max being the smallest and greatest instant time in them. A manifest names the files of one moment. ``_version_`` is
written after its manifest; where it is missing or unreadable, the greatest manifest that can be read counts.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from tagstream.table.errors import CorruptFileError
from tagstream.table.storage.storage import Storage

VERSION_FILE = "_version_"
_MANIFEST = re.compile(r"manifest_(\d{1,9})")
_FILE = re.compile(r"(\d+)_(\d+)_(\d{1,4})\.parquet")
_TRIES = 3  # a manifest may be removed between the look at the version and the look at it


@dataclass(frozen=True)
class HistoryFile:
    """One file of the history: its name, and its size in bytes."""

    name: str
    size: int

    @property
    def range(self) -> tuple[str, str]:
        """The smallest and the greatest instant time in it."""
        match = _FILE.fullmatch(self.name)
        assert match is not None, self.name
        return match.group(1), match.group(2)

    @property
    def level(self) -> int:
        """How often its rows were merged."""
        return int(self.name.removesuffix(".parquet").rpartition("_")[2])

    def meets(self, first: str | None, last: str | None) -> bool:
        """Whether it may have an instant of [first, last]; None is an open end."""
        least, greatest = self.range
        return (first is None or greatest >= first) and (last is None or least <= last)


@dataclass(frozen=True)
class Manifest:
    """The files of one moment; version 0 is the history before anything was archived."""

    version: int
    files: tuple[HistoryFile, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The names of its files."""
        return frozenset(file.name for file in self.files)


def file_name(first: str, last: str, level: int) -> str:
    """The name of a file with these smallest and greatest instant times."""
    return f"{first}_{last}_{level}.parquet"


def is_history_file(name: str) -> bool:
    """Whether a name is that of a file of the history."""
    return _FILE.fullmatch(name) is not None


def read_manifest(storage: Storage, folder: str) -> Manifest:
    """The newest manifest; CorruptFileError when there are files and none of the manifests can be read."""
    for _ in range(_TRIES):
        version = _named_version(storage, folder)
        if version is None:
            break
        try:
            return Manifest(version, _parse(storage, folder, version))
        except FileNotFoundError:
            continue
    broken: CorruptFileError | None = None
    for version in sorted(manifest_versions(storage, folder), reverse=True):
        try:
            return Manifest(version, _parse(storage, folder, version))
        except FileNotFoundError:
            continue
        except CorruptFileError as error:
            broken = broken or error
    if broken is not None:
        raise broken
    if any(is_history_file(name) for name in storage.names(folder)) and storage.exists(f"{folder}/{VERSION_FILE}"):
        raise CorruptFileError(f"{storage.where(folder)} has no manifest any more: restore the newest manifest_<N>")
    return Manifest(0)


def read_version(storage: Storage, folder: str, version: int) -> Manifest:
    """One manifest; FileNotFoundError when it is not there."""
    return Manifest(version, _parse(storage, folder, version))


def manifest_versions(storage: Storage, folder: str) -> list[int]:
    """The versions there are manifests of, in order."""
    matches = (_MANIFEST.fullmatch(name) for name in storage.names(folder))
    return sorted(int(match.group(1)) for match in matches if match is not None)


def write_manifest(storage: Storage, folder: str, manifest: Manifest) -> None:
    """Make it the newest one. Can be cut off and done again: a manifest that no ``_version_`` names is written over."""
    text = json.dumps({"files": [{"fileName": file.name, "fileLen": file.size} for file in manifest.files]}, indent=1)
    storage.replace(f"{folder}/{manifest_name(manifest.version)}", text.encode())
    storage.replace(f"{folder}/{VERSION_FILE}", str(manifest.version).encode())


def manifest_name(version: int) -> str:
    """The file name of a manifest."""
    return f"manifest_{version}"


def _named_version(storage: Storage, folder: str) -> int | None:
    try:
        text = storage.read(f"{folder}/{VERSION_FILE}").decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _parse(storage: Storage, folder: str, version: int) -> tuple[HistoryFile, ...]:
    rel = f"{folder}/{manifest_name(version)}"
    data = storage.read(rel)
    try:
        files = [HistoryFile(each["fileName"], int(each["fileLen"])) for each in json.loads(data)["files"]]
        wrong = next((file.name for file in files if not is_history_file(file.name)), None)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(
            f"{storage.where(rel)} is no manifest of archived instants ({error!r}): restore it"
        ) from error
    if wrong is not None:
        raise CorruptFileError(f"{storage.where(rel)} names {wrong!r}, which is no file of a history: restore it")
    return tuple(files)
