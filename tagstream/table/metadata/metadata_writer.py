"""The metadata table of a table, opened for writing: its timeline, its partitions and file groups.

An action of the data is written to it at the same instant, before the action completes. Readers use its entries
only when that instant is completed on the data's timeline.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tagstream.table.errors import InstantConflictError, UnsupportedTableError
from tagstream.table.file_group.bloom import BloomParams
from tagstream.table.file_group.fs_view import FileSystemView
from tagstream.table.file_group.names import next_instant
from tagstream.table.history.lsm import History
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.properties import CHECKSUM_KEY, table_checksum
from tagstream.table.meta_client.table_config import MERGE_ON_READ, TableConfig
from tagstream.table.metadata.index_definitions import UNTYPED, has_partitioned_index, statistics_form
from tagstream.table.metadata.metadata_table import (
    BLOOM_FILTERS_PARTITION,
    COLUMN_STATS_PARTITION,
    FILES_PARTITION,
    FOLDER,
    PARTITION_STATS_PARTITION,
    RECORD_INDEX_PARTITION,
    open_config,
)
from tagstream.table.metadata.record_encoding import form_of, is_untyped
from tagstream.table.metadata.record_index import PREFIX as INDEX_PREFIX
from tagstream.table.metadata.record_index import shards_of
from tagstream.table.storage.storage import Storage
from tagstream.table.table_version import TableVersion
from tagstream.table.timeline.commit_metadata import SCHEMA_KEY
from tagstream.table.timeline.instant import Instant, State, write_inflight
from tagstream.table.timeline.timeline import Timeline

# Only these partitions are kept up to date; others must be dropped before a table is written.
PARTITIONS: Final = (
    FILES_PARTITION, COLUMN_STATS_PARTITION, BLOOM_FILTERS_PARTITION, RECORD_INDEX_PARTITION, PARTITION_STATS_PARTITION
)  # fmt: skip
PARTITIONS_KEY: Final = "hoodie.table.metadata.partitions"  # of the table's properties: those that readers may use
INFLIGHT_KEY: Final = "hoodie.table.metadata.partitions.inflight"

_PREFIXES: Final = {
    FILES_PARTITION: "files", COLUMN_STATS_PARTITION: "col-stats", BLOOM_FILTERS_PARTITION: "bloom-filters",
    RECORD_INDEX_PARTITION: INDEX_PREFIX, PARTITION_STATS_PARTITION: "partition-stats",
}  # fmt: skip
# Hudi's numbers of file groups. Those of a record index depend on the expected number of keys.
DEFAULT_GROUPS: Final[Mapping[str, int]] = {
    FILES_PARTITION: 1, COLUMN_STATS_PARTITION: 2, BLOOM_FILTERS_PARTITION: 4, PARTITION_STATS_PARTITION: 1
}  # fmt: skip
_KEY_BYTES: Final = 48  # Hudi's estimate for an entry of the record index
_GROWTH: Final = 2.0
_GROUP_BYTES: Final = 1024**3
_FIRST_OLD: Final = 10  # suffix of the first initial instant, up to version 7
_NO_COMMITS: Final = "0" * 14


@dataclass(frozen=True)
class Forms:
    """The table's version, and the forms in which statistics (``index_definitions.statistics_form``) and records
    (``record_encoding.record_schema``) are written.
    """

    version: int
    statistics: int
    records: int

    @staticmethod
    def of(version: int) -> Forms:
        """The forms of a new table."""
        return Forms(version, version, version)


def group_name(partition: str, number: int) -> str:
    """File id of a file group of one of the metadata table's partitions."""
    return f"{_PREFIXES[partition]}-{number:04d}-0"


def in_making_order(names: Collection[str], version: int) -> list[str]:
    """The named partitions, in the order in which Hudi's writer of that version creates them."""
    found = [name for name in PARTITIONS if name in names]
    if TableVersion.of(version).layout < 2 and BLOOM_FILTERS_PARTITION in found:
        found.remove(BLOOM_FILTERS_PARTITION)
        found.insert(found.index(FILES_PARTITION) + 1 if FILES_PARTITION in found else 0, BLOOM_FILTERS_PARTITION)
    return found


def key_filter(version: int) -> BloomParams:
    """The parameters of the bloom filter of a base file's keys, with the default of Hudi's writer of that version."""
    return BloomParams(num_entries=TableVersion.of(version).key_filter_entries)


def record_index_groups(keys: int, least: int = 10, most: int = 10_000) -> int:
    """Hudi's number of file groups for a record index with this number of keys. It never changes later."""
    return max(least, min(most, int(keys * _KEY_BYTES * _GROWTH / _GROUP_BYTES) + 1))


def groups_of_keys(keys: pa.Array, count: int) -> npt.NDArray[np.int64]:
    """The number of each key's file group; the function is the same for all partitions."""
    if count == 1:
        return np.zeros(len(keys), np.int64)
    return shards_of(keys, count)


def initial_instant(version: int, number: int, newest: str | None) -> str:
    """The instant that creates the ``number``-th partition; ``newest`` is the newest completed instant of the data."""
    if TableVersion.of(version).has_completion_times:
        return f"{number:017d}"
    return f"{newest or _NO_COMMITS}{_FIRST_OLD + number:03d}"


def new_metadata_properties(table_name: str, version: int) -> dict[str, str]:
    """``hoodie.properties`` of a metadata table, as Hudi's writer of that version writes them."""
    name = f"{table_name}_metadata"
    properties = {
        "hoodie.table.name": name,
        "hoodie.table.type": MERGE_ON_READ,
        "hoodie.table.version": str(version),
        CHECKSUM_KEY: table_checksum("", name),
        "hoodie.table.recordkey.fields": "key",
        "hoodie.populate.meta.fields": "false",
        "hoodie.table.base.file.format": "HFILE",
        "hoodie.datasource.write.drop.partition.columns": "false",
        "hoodie.compaction.payload.class": "org.apache.hudi.metadata.HoodieMetadataPayload",
    }
    if TableVersion.of(version).layout < 2:
        return properties | {
            "hoodie.timeline.layout.version": "1",
            "hoodie.archivelog.folder": "archived",
            "hoodie.table.keygenerator.class": "org.apache.hudi.metadata.HoodieTableMetadataKeyGenerator",
            "hoodie.compaction.record.merger.strategy": "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5",
        }
    return properties | {
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.table.initial.version": str(version),
        "hoodie.table.keygenerator.type": "HOODIE_TABLE_METADATA",
        "hoodie.record.merge.mode": "CUSTOM",
        "hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000",
    }


def listed(names: Iterable[str]) -> str:
    """Names of partitions as in the table's properties."""
    return ",".join(sorted(set(names)))


# A function that returns a new instant time from the table's clock: later than all that it returned before, and than
# all times on the timelines of the table and of its metadata table.
Times = Callable[[], str]

_MOST_TABLES: Final = 64
_RECORD_FORMS: dict[tuple[str, int], int] = {}  # by path and version of a metadata table

TOKEN: Final = "0-0-0"  # the write token: one driver writes at a time, and a replay makes the same names


@dataclass(frozen=True)
class MetadataWriter:
    """``table``: the data table, with its properties when this was opened. ``storage``, ``config``: the metadata table's."""

    table: HoodieTable
    storage: Storage
    config: TableConfig

    @staticmethod
    def open(table: HoodieTable) -> MetadataWriter | None:
        """The table's metadata table; None when it has none that readers may use.

        MetadataTableMismatchError when it has another version than the table, UnsupportedTableError when it has
        partitions that are not kept up to date here (``unkept_partitions``): the caller drops it, or them, before it
        commits.
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
                f"{', '.join(unkept) or 'one without files'} cannot be kept up to date: drop it"
            )
        return MetadataWriter(table, storage, config)

    @property
    def version(self) -> int:
        """The table version of both tables."""
        return self.config.version

    @property
    def partitions(self) -> tuple[str, ...]:
        """Its partitions that readers may use, in the order of their creation.

        Every action must be written to each of them.
        """
        names = _names(self.table, PARTITIONS_KEY)
        return tuple(name for name in PARTITIONS if name in names)

    @cached_property
    def forms(self) -> Forms:
        """The forms in which to write: those of the metadata table's newest commit."""
        records = self._records_form()
        statistics = statistics_form(self.table.storage, self.version)
        # Values without a type field have a wrapper that determines their type.
        return Forms(self.version, min(statistics, UNTYPED) if is_untyped(records) else statistics, records)

    @property
    def statistics_form(self) -> int:
        """The version whose form statistics have."""
        return self.forms.statistics

    def _records_form(self) -> int:
        """The form of records. It is cached for the process, so that a batch need not read a commit for it."""
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
        """Whether there is a record index with file groups for each partition of the data."""
        return RECORD_INDEX_PARTITION in self.partitions and has_partitioned_index(self.table.storage)

    def timeline(self) -> Timeline:
        """Read the metadata table's timeline."""
        return Timeline.load(self.storage, self.config.timeline_folder)

    def view(self, timeline: Timeline) -> FileSystemView:
        """The metadata table's file slices as of its timeline."""
        return FileSystemView(self.storage, timeline, timeline.newest_completed, self.version, self.history)

    @cached_property
    def history(self) -> History | None:
        """The metadata table's archived instants, with their completion times; None up to version 7."""
        return History(self.storage, self.config.history_folder) if self.has_completion_times else None

    def completed_at(self, timeline: Timeline, time: str) -> str:
        """Completion time of an instant, archived or not; its instant time where it has none."""
        archived = (
            self.history.completion_time(time) if self.history is not None and timeline.find(time) is None else None
        )
        return archived or timeline.completion_time(time)

    @cached_property
    def has_completion_times(self) -> bool:
        """True from version 8 on. The names of log files then have their own instant."""
        return TableVersion.of(self.version).has_completion_times

    def begin(self, instant: str, action: str, plan: bytes = b"", inflight: bytes = b"") -> None:
        """Write the requested and the inflight file; InstantConflictError when one exists."""
        self._create(Instant(instant, action, State.REQUESTED), plan)
        self._create(Instant(instant, action, State.INFLIGHT), inflight)

    def complete(self, instant: str, action: str, content: bytes, times: Times) -> Instant:
        """Complete an action; returns the completed instant, with a completion time from version 8 on."""
        at = times() if self.has_completion_times else None
        completed = Instant(instant, action, State.COMPLETED, at)
        self._create(completed, content)
        return completed

    def write_inflight(self, instant: str, action: str, content: bytes = b"") -> None:
        """As :func:`tagstream.table.timeline.instant.write_inflight` in the metadata table."""
        write_inflight(self.storage, self.config.timeline_folder, instant, action, content)

    def rel(self, instant: Instant) -> str:
        """Path of the file of an instant's state."""
        return f"{self.config.timeline_folder}/{instant.file_name()}"

    def _create(self, instant: Instant, data: bytes) -> None:
        self.create(self.rel(instant), data)

    def create(self, rel: str, data: bytes) -> None:
        """Write a file of the metadata table; InstantConflictError when it exists."""
        try:
            self.storage.write_new(rel, data)
        except FileExistsError:
            raise self.conflict(rel) from None

    def conflict(self, rel: str) -> InstantConflictError:
        """The error for a file that exists already."""
        return InstantConflictError(
            f"{self.storage.where(rel)} exists already: another writer writes to the metadata table, and only one writer may"
        )


def fresh_times(table: HoodieTable, writer: MetadataWriter | None, clock_ms: Callable[[], int]) -> Times:
    """New instant times from ``clock_ms``; a clock that is behind gives the next free millisecond.

    ``writer`` is None when the table has no metadata table yet.
    """
    last = ""

    def fresh() -> str:
        nonlocal last
        last = time_after(max(last, table.timeline().newest or ""), table, writer, clock_ms)
        return last

    return fresh


def time_after(newest: str, table: HoodieTable, writer: MetadataWriter | None, clock_ms: Callable[[], int]) -> str:
    """A time that is later than ``newest`` and than all times on the metadata table's timeline."""
    kept = (writer.timeline().newest or "") if writer is not None else ""
    # Up to version 7 times of the metadata table have a suffix of three digits.
    return next_instant(clock_ms(), max(newest, kept)[:17] or None, table.config.timezone_utc)


def unkept_partitions(table: HoodieTable) -> tuple[str, ...]:
    """The partitions of a table's metadata table, built or being built, that are not kept up to date: drop each of them."""
    return tuple(name for name in dict.fromkeys(table.config.metadata_partitions) if name not in PARTITIONS)


def _names(table: HoodieTable, key: str) -> frozenset[str]:
    listed = table.config.raw.get(key, "")
    return frozenset(name.strip() for name in listed.split(",") if name.strip())
