"""Read the history of timeline layout 2: its manifests, archived instants by range, and their completion times.

The history (``.hoodie/timeline/history``) is a log-structured merge tree of Parquet files
``<min>_<max>_<level>.parquet``, where min and max are the smallest and greatest instant time in the file.
``manifest_<N>`` names the files of version N, and ``_version_`` names the newest N. ``_version_`` is written after its
manifest. If it is missing or unreadable, the greatest readable manifest is used.

Rows are actions (Hudi's HoodieLSMTimelineInstant): ``instantTime``, ``completionTime``, ``action``, ``metadata``
(the completed file's bytes), ``plan`` (the requested file's bytes, or null), ``version``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.history.action_files import ArchivedAction
from tagstream.table.storage.storage import Storage

VERSION_FILE = "_version_"
_MANIFEST = re.compile(r"manifest_(\d{1,9})")
_FILE = re.compile(r"(\d+)_(\d+)_(\d{1,4})\.parquet")
_TRIES = 3  # a manifest may be removed after its version was read


@dataclass(frozen=True)
class HistoryFile:
    """A file of the history: its name, and its size in bytes."""

    name: str
    size: int

    @property
    def range(self) -> tuple[str, str]:
        """The smallest and the greatest instant time in the file."""
        match = _FILE.fullmatch(self.name)
        assert match is not None, self.name
        return match.group(1), match.group(2)

    @property
    def level(self) -> int:
        """How often the file's rows were merged."""
        return int(self.name.removesuffix(".parquet").rpartition("_")[2])

    def meets(self, first: str | None, last: str | None) -> bool:
        """Whether the file may have an instant of [first, last]; None is an open end."""
        least, greatest = self.range
        return (first is None or greatest >= first) and (last is None or least <= last)


@dataclass(frozen=True)
class Manifest:
    """The files of one version of the history. Version 0 is the empty history, before anything was archived."""

    version: int
    files: tuple[HistoryFile, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """Names of the files."""
        return frozenset(file.name for file in self.files)


def file_name(first: str, last: str, level: int) -> str:
    """Name of a file with these smallest and greatest instant times."""
    return f"{first}_{last}_{level}.parquet"


def is_history_file(name: str) -> bool:
    """Whether this is the name of a history file."""
    return _FILE.fullmatch(name) is not None


def read_manifest(storage: Storage, folder: str) -> Manifest:
    """The newest readable manifest; CorruptFileError when there are manifests or files but no readable manifest."""
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
        raise CorruptFileError(f"{storage.where(folder)} has lost its manifests: restore the newest manifest_<N>")
    return Manifest(0)


def read_version(storage: Storage, folder: str, version: int) -> Manifest:
    """The manifest of a version; FileNotFoundError when it does not exist."""
    return Manifest(version, _parse(storage, folder, version))


def manifest_versions(storage: Storage, folder: str) -> list[int]:
    """The versions that have a manifest, in order."""
    matches = (_MANIFEST.fullmatch(name) for name in storage.names(folder))
    return sorted(int(match.group(1)) for match in matches if match is not None)


def write_manifest(storage: Storage, folder: str, manifest: Manifest) -> None:
    """Make this manifest the newest. After an interruption it can be repeated: it replaces an unused manifest."""
    text = json.dumps({"files": [{"fileName": file.name, "fileLen": file.size} for file in manifest.files]}, indent=1)
    storage.replace(f"{folder}/{manifest_name(manifest.version)}", text.encode())
    storage.replace(f"{folder}/{VERSION_FILE}", str(manifest.version).encode())


def manifest_name(version: int) -> str:
    """File name of the manifest of a version."""
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
            f"{storage.where(rel)} is not a readable manifest of archived instants ({error!r}): restore it"
        ) from error
    if wrong is not None:
        raise CorruptFileError(f"{storage.where(rel)} names {wrong!r}, which is not a history file: restore it")
    return tuple(files)


HISTORY_SCHEMA = pa.schema([
    pa.field("instantTime", pa.string()), pa.field("completionTime", pa.string()), pa.field("action", pa.string()),
    pa.field("metadata", pa.binary()), pa.field("plan", pa.binary()), pa.field("version", pa.int32(), nullable=False),
])  # fmt: skip
_ROW_VERSION = 1
_REMEMBERED = 256


@dataclass(frozen=True)
class History:
    """The archived instants of one table. Picklable; the manifest is read at the first use and then kept.

    Instants that are archived later are not included. They are on the active timeline that was read before.
    """

    storage: Storage
    folder: str
    _known: list[Manifest] = field(default_factory=list, compare=False, repr=False)

    @property
    def manifest(self) -> Manifest:
        """The manifest at the first use."""
        if not self._known:
            self._known.append(read_manifest(self.storage, self.folder))
        return self._known[0]

    def read(self, columns: Sequence[str] | None = None, first: str | None = None, last: str | None = None) -> pa.Table:
        """The instants of [first, last] (None: open), oldest first. Only the necessary files and columns are read."""
        wanted = list(columns) if columns is not None else HISTORY_SCHEMA.names
        loaded = [name for name in HISTORY_SCHEMA.names if name in wanted or name == "instantTime"]
        tables = [self._load(file, loaded, first, last) for file in self.manifest.files if file.meets(first, last)]
        schema = pa.schema([HISTORY_SCHEMA.field(name) for name in loaded])
        return pa.concat_tables([schema.empty_table(), *tables]).sort_by("instantTime").select(wanted)

    def actions(self) -> Iterator[ArchivedAction]:
        """All archived actions, each once, file by file in the order of the files' first instants."""
        seen: set[tuple[str, str]] = set()
        for file in sorted(self.manifest.files, key=lambda f: (f.range, -f.level)):
            for row in self.load(file).sort_by("instantTime").to_pylist():
                found = ArchivedAction(
                    row["instantTime"], row["action"], row["completionTime"], row["metadata"], row["plan"]
                )
                if found.key not in seen:
                    seen.add(found.key)
                    yield found

    def completion_time(self, time: str) -> str | None:
        """The completion time of an archived action; None when the history does not have it."""
        for file in self.manifest.files:
            if file.meets(time, time) and (found := self._times_of(file).get(time)) is not None:
                return found
        return None

    def completion_times(self, first: str | None = None, last: str | None = None) -> dict[str, str]:
        """The completion times of the archived instants of [first, last], by instant time."""
        found: dict[str, str] = {}
        for file in self.manifest.files:
            if file.meets(first, last):
                found |= {
                    time: completed
                    for time, completed in self._times_of(file).items()
                    if (first is None or time >= first) and (last is None or time <= last)
                }
        return found

    def _times_of(self, file: HistoryFile) -> Mapping[str, str]:
        """The completion times of one file. Files never change, so a process reads each once, whatever the manifest."""
        for storage, folder, known, times in _TIMES:
            if known == file and folder == self.folder and storage == self.storage:
                return times
        rows = self._load(file, ["instantTime", "completionTime"], None, None)
        pairs = zip(rows["instantTime"].to_pylist(), rows["completionTime"].to_pylist(), strict=True)
        times = {time: completed for time, completed in pairs if time and completed}
        _TIMES[:] = [*_TIMES, (self.storage, self.folder, file, times)][-_REMEMBERED:]
        return times

    def load(self, file: HistoryFile, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of one file, unchanged."""
        return self._load(file, columns if columns is not None else HISTORY_SCHEMA.names, None, None)

    def _load(self, file: HistoryFile, columns: Sequence[str], first: str | None, last: str | None) -> pa.Table:
        rel = f"{self.folder}/{file.name}"
        names = [*columns, *(name for name in ("version",) if name not in columns)]
        try:
            with self.storage.open_input(rel) as source:
                rows = pq.ParquetFile(source).read(columns=names)
            rows = pa.table([rows[name].cast(HISTORY_SCHEMA.field(name).type) for name in names], names=names)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError) as error:
            raise CorruptFileError(
                f"{self.storage.where(rel)} has no readable archived instants ({error}): restore the file"
            ) from error
        except FileNotFoundError:
            raise CorruptFileError(
                f"{self.storage.where(rel)} is missing, though the manifest of archived instants names it: restore the file"
            ) from None
        newest = pc.max(rows["version"]).as_py() or _ROW_VERSION
        if newest > _ROW_VERSION:
            raise UnsupportedTableError(f"{self.storage.where(rel)} has rows of version {newest}; only 1 can be read")
        if first is not None or last is not None:
            rows = rows.filter(_within(rows, first, last))
        return rows.select(list(columns)).cast(pa.schema([HISTORY_SCHEMA.field(name) for name in columns]))


# A cache of the last files: storage, folder, file, completion time by instant.
_TIMES: list[tuple[Storage, str, HistoryFile, Mapping[str, str]]] = []


def _within(rows: pa.Table, first: str | None, last: str | None) -> pa.ChunkedArray:
    times = rows["instantTime"]
    after = pc.greater_equal(times, first) if first is not None else pc.is_valid(times)
    return pc.and_(after, pc.less_equal(times, last)) if last is not None else after
