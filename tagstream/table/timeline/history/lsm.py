"""The history of timeline layout 2, read: archived instants by range, as Arrow, and when they were completed.

Rows are actions (Hudi's HoodieLSMTimelineInstant): ``instantTime``, ``completionTime``, ``action``, ``metadata`` (the
completed file's bytes), ``plan`` (the requested file's bytes, or null), ``version``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tagstream.table.errors import CorruptFileError, UnsupportedTableError
from tagstream.table.storage.storage import Storage
from tagstream.table.timeline.history.archived import ArchivedAction
from tagstream.table.timeline.history.manifest import HistoryFile, Manifest, read_manifest

HISTORY_SCHEMA = pa.schema([
    pa.field("instantTime", pa.string()), pa.field("completionTime", pa.string()), pa.field("action", pa.string()),
    pa.field("metadata", pa.binary()), pa.field("plan", pa.binary()), pa.field("version", pa.int32(), nullable=False),
])  # fmt: skip
_ROW_VERSION = 1
_REMEMBERED = 256


@dataclass(frozen=True)
class History:
    """The archived instants of one table. Picklable; the manifest is read when it is first needed, and then kept.

    Instants that were archived later are not in it. That does no harm: they are on the active timeline of the same look.
    """

    storage: Storage
    folder: str
    _known: list[Manifest] = field(default_factory=list, compare=False, repr=False)

    @property
    def manifest(self) -> Manifest:
        """The files as of the first look."""
        if not self._known:
            self._known.append(read_manifest(self.storage, self.folder))
        return self._known[0]

    def read(self, columns: Sequence[str] | None = None, first: str | None = None, last: str | None = None) -> pa.Table:
        """The instants of [first, last] (None: open), oldest first; only files and columns that are needed are read."""
        wanted = list(columns) if columns is not None else HISTORY_SCHEMA.names
        loaded = [name for name in HISTORY_SCHEMA.names if name in wanted or name == "instantTime"]
        tables = [self._load(file, loaded, first, last) for file in self.manifest.files if file.meets(first, last)]
        schema = pa.schema([HISTORY_SCHEMA.field(name) for name in loaded])
        return pa.concat_tables([schema.empty_table(), *tables]).sort_by("instantTime").select(wanted)

    def actions(self) -> Iterator[ArchivedAction]:
        """All archived actions, file by file in the order of the files' first instants; each action once."""
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
        """When an archived action was completed; None for one that is not in the history."""
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
        """Of one file. A file never changes, so a process reads each once, whatever the manifest."""
        for storage, folder, known, times in _TIMES:
            if known == file and folder == self.folder and storage == self.storage:
                return times
        rows = self._load(file, ["instantTime", "completionTime"], None, None)
        pairs = zip(rows["instantTime"].to_pylist(), rows["completionTime"].to_pylist(), strict=True)
        times = {time: completed for time, completed in pairs if time and completed}
        _TIMES[:] = [*_TIMES, (self.storage, self.folder, file, times)][-_REMEMBERED:]
        return times

    def load(self, file: HistoryFile, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of one file as they stand there."""
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
                f"{self.storage.where(rel)} holds no readable archived instants ({error}): restore the file"
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


# What was read of the files that were asked last: storage, folder, file, completion time by instant.
_TIMES: list[tuple[Storage, str, HistoryFile, Mapping[str, str]]] = []


def _within(rows: pa.Table, first: str | None, last: str | None) -> pa.ChunkedArray:
    times = rows["instantTime"]
    after = pc.greater_equal(times, first) if first is not None else pc.is_valid(times)
    return pc.and_(after, pc.less_equal(times, last)) if last is not None else after
