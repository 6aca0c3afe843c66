"""The metadata table of a table, opened to be written; and the files of its timeline.

It is told of an action of the data, at the same instant, before that action completes: readers count what it says only
when the data's timeline has that instant completed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tagstream.table.errors import InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.file_group.names import next_instant
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import TableConfig
from tagstream.table.metadata.encode.record_schema import form_of, is_untyped
from tagstream.table.metadata.index_definitions import UNTYPED, has_partitioned_index, statistics_form
from tagstream.table.metadata.metadata_table import FILES_PARTITION, FOLDER, RECORD_INDEX_PARTITION, open_config
from tagstream.table.metadata.write.layout import PARTITIONS, PARTITIONS_KEY, Forms
from tagstream.table.storage.storage import Storage
from tagstream.table.table_version import TableVersion
from tagstream.table.timeline.begin import write_inflight
from tagstream.table.timeline.commit_metadata import SCHEMA_KEY
from tagstream.table.timeline.history.lsm import History
from tagstream.table.timeline.instant import Instant, State
from tagstream.table.timeline.timeline import Timeline

# A fresh time of the table's clock as instants have it: later than all that it gave before, and than all times on the
# timelines of the table and of its metadata table.
Times = Callable[[], str]

_MOST_TABLES: Final = 64
_RECORD_FORMS: dict[tuple[str, int], int] = {}  # by place and version of a metadata table

TOKEN: Final = "0-0-0"  # the write token: one driver writes at a time, and a replay makes the same names


@dataclass(frozen=True)
class MetadataWriter:
    """``table``: whose metadata table it is, with its properties as they were; ``storage`` and ``config`` are its own."""

    table: HoodieTable
    storage: Storage
    config: TableConfig

    @staticmethod
    def open(table: HoodieTable) -> MetadataWriter | None:
        """The table's metadata table; None where it has none that readers trust.

        MetadataTableMismatchError when it is of another version than the table, UnsupportedTableError when it has
        partitions that are not kept up here (``unkept_partitions``): the caller drops it or them before it commits.
        """
        names = _names(table, PARTITIONS_KEY)
        if not names:
            return None
        storage = table.storage.below(FOLDER)
        config = open_config(table, storage)
        unkept = unkept_partitions(table)
        if unkept or FILES_PARTITION not in names:
            raise UnsupportedTableError(
                f"the metadata table at {storage.root} has the partitions {', '.join(sorted(names))}; "
                f"{', '.join(unkept) or 'one without files'} cannot be kept up: drop it"
            )
        return MetadataWriter(table, storage, config)

    @property
    def version(self) -> int:
        """The table version, of both tables."""
        return self.config.version

    @property
    def partitions(self) -> tuple[str, ...]:
        """Its partitions that readers trust, each of which must be told of every action, in the order they are made."""
        names = _names(self.table, PARTITIONS_KEY)
        return tuple(name for name in PARTITIONS if name in names)

    @cached_property
    def forms(self) -> Forms:
        """The forms of what is written: those that the metadata table has, by its newest commit."""
        records = self._records_form()
        statistics = statistics_form(self.table.storage, self.version)
        # Values without a type beside them have a wrapper that tells it.
        return Forms(self.version, min(statistics, UNTYPED) if is_untyped(records) else statistics, records)

    @property
    def statistics_form(self) -> int:
        """The version in whose form statistics are written."""
        return self.forms.statistics

    def _records_form(self) -> int:
        """Asked once in a process: a batch need not read a commit for it."""
        known = _RECORD_FORMS.get((self.storage.root, self.version))
        if known is not None:
            return known
        told = self._newest_schema()
        if told is None:
            return self.version
        if len(_RECORD_FORMS) >= _MOST_TABLES:
            _RECORD_FORMS.clear()
        return _RECORD_FORMS.setdefault((self.storage.root, self.version), form_of(told, self.version))

    def _newest_schema(self) -> str | None:
        timeline = self.timeline()
        for instant in reversed(timeline.completed_writes):
            schema = timeline.metadata(self.storage, instant).extra.get(SCHEMA_KEY)
            if schema:
                return schema
        return None

    @cached_property
    def has_partitioned_index(self) -> bool:
        """Whether it has a record index with file groups for each partition of the data."""
        return RECORD_INDEX_PARTITION in self.partitions and has_partitioned_index(self.table.storage)

    def timeline(self) -> Timeline:
        """A fresh look at its own timeline."""
        return Timeline.load(self.storage, self.config.timeline_folder)

    def view(self, timeline: Timeline) -> FileSystemView:
        """Its file slices as of a look at its timeline."""
        return FileSystemView(self.storage, timeline, timeline.newest_completed, self.version, self.history)

    @cached_property
    def history(self) -> History | None:
        """Its archived instants, which tell when they were completed; None up to version 7."""
        return History(self.storage, self.config.history_folder) if self.has_completion_times else None

    def completed_at(self, timeline: Timeline, time: str) -> str:
        """When an instant was completed, archived or not; its own time where that is not recorded."""
        archived = (
            self.history.completion_time(time) if self.history is not None and timeline.find(time) is None else None
        )
        return archived or timeline.completion_time(time)

    @cached_property
    def has_completion_times(self) -> bool:
        """True from version 8 on; log files are named by their own instant then."""
        return TableVersion.of(self.version).has_completion_times

    def begin(self, instant: str, action: str, plan: bytes = b"", inflight: bytes = b"") -> None:
        """Write the requested and the inflight file; InstantConflictError when the instant is taken."""
        self._create(Instant(instant, action, State.REQUESTED), plan)
        self._create(Instant(instant, action, State.INFLIGHT), inflight)

    def complete(self, instant: str, action: str, content: bytes, times: Times) -> Instant:
        """Complete an action; returns the completed instant, which from version 8 on has the time of completion."""
        at = times() if self.has_completion_times else None
        completed = Instant(instant, action, State.COMPLETED, at)
        self._create(completed, content)
        return completed

    def write_inflight(self, instant: str, action: str, content: bytes = b"") -> None:
        """As :func:`tagstream.table.timeline.begin.write_inflight` in the metadata table."""
        write_inflight(self.storage, self.config.timeline_folder, instant, action, content)

    def rel(self, instant: Instant) -> str:
        """The file of an instant's state."""
        return f"{self.config.timeline_folder}/{instant.file_name()}"

    def _create(self, instant: Instant, data: bytes) -> None:
        self.create(self.rel(instant), data)

    def create(self, rel: str, data: bytes) -> None:
        """Write a file of the metadata table; InstantConflictError when the name is taken."""
        try:
            self.storage.write_new(rel, data)
        except FileExistsError:
            raise self.conflict(rel) from None

    def conflict(self, rel: str) -> InstantConflictError:
        """The error of a file that is there already."""
        return InstantConflictError(
            f"{self.storage.where(rel)} exists already: another writer works on the metadata table, and only one may"
        )


def fresh_times(table: HoodieTable, writer: MetadataWriter | None, clock_ms: Callable[[], int]) -> Times:
    """Fresh times of ``clock_ms``; a clock that is behind gives the next free millisecond. ``writer``: None where the table
    has no metadata table yet."""
    last = ""

    def fresh() -> str:
        nonlocal last
        last = time_after(max(last, table.timeline().newest or ""), table, writer, clock_ms)
        return last

    return fresh


def time_after(newest: str, table: HoodieTable, writer: MetadataWriter | None, clock_ms: Callable[[], int]) -> str:
    """A time that is later than ``newest`` and than all on the metadata table's timeline."""
    kept = (writer.timeline().newest or "") if writer is not None else ""
    # Up to version 7 times of the metadata table have a suffix of three digits.
    return next_instant(clock_ms(), max(newest, kept)[:17] or None, table.config.timezone_utc)


def unkept_partitions(table: HoodieTable) -> tuple[str, ...]:
    """The partitions of a table's metadata table, built or being built, that are not kept up here: drop each of them."""
    return tuple(name for name in dict.fromkeys(table.config.metadata_partitions) if name not in PARTITIONS)


def _names(table: HoodieTable, key: str) -> frozenset[str]:
    listed = table.config.raw.get(key, "")
    return frozenset(name.strip() for name in listed.split(",") if name.strip())
