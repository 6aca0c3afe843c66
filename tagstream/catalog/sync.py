"""Sync of a table with a catalogue, in the order of Hudi's HiveSyncTool.

1. The database is created, or must exist.
2. Each entry of the table is created, or its different schema and parameters are updated.
3. Partitions: those that commits after the entry's cursor wrote or dropped are updated. The first time, and if the
   timeline does not show the changes, all partitions of the table and of the catalogue are compared.
4. The cursor is written last. After an interruption the next sync repeats steps 1 to 3, which have no second effect.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from tagstream.catalog.catalog import Catalog, IncompatibleColumnsError, Values, pieces
from tagstream.catalog.changes import Cursor, PartitionChanges, commits_since, newest_cursor, partition_changes
from tagstream.catalog.entry import PartitionEntry, TableEntry, plain_path, same_columns, wanted_entries
from tagstream.catalog.options import SyncOptions
from tagstream.catalog.partition_values import extractor_name, partition_values
from tagstream.table.errors import TableConfigMismatchError, UnsupportedTableError
from tagstream.table.file_group.names import join, list_partitions
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.timeline import Timeline

LOG = logging.getLogger("tagstream")


@dataclass(frozen=True)
class EntryResult:
    """What a sync did to one entry; the numbers are partitions. ``action``: created, recreated, altered or unchanged."""

    name: str
    action: str
    added: int = 0
    updated: int = 0
    dropped: int = 0
    commits: int | None = None

    @property
    def changed(self) -> bool:
        """Whether readers see a difference."""
        return self.action != "unchanged" or bool(self.added or self.updated or self.dropped)


@dataclass(frozen=True)
class SyncResult:
    """``cursor``: the commit up to which the catalogue has the table; None for a table without a commit."""

    catalog: str
    cursor: Cursor | None
    entries: tuple[EntryResult, ...] = ()


def commits_behind(table: HoodieTable, timeline: Timeline, catalog: Catalog, options: SyncOptions) -> int | None:
    """The largest number of completed commits that an entry lacks; None: it has none, or the timeline does not show it."""
    cursor, schema = newest_cursor(table, timeline), table.schema_json(timeline)
    if cursor is None or schema is None:
        return 0
    most = 0
    for wanted in wanted_entries(table.config, "", schema, options, ""):
        found = catalog.table(wanted.database, wanted.name)
        lacking = None if found is None else commits_since(timeline, found.cursor)
        if lacking is None:
            return None
        most = max(most, len(lacking))
    return most


def sync_table(table: HoodieTable, catalog: Catalog, options: SyncOptions, owner: str) -> SyncResult:
    """Register the table, or update its entries to its newest completed commit.

    Args:
        table: opened; its timeline is read here.
        owner: the user that new entries belong to.

    Raises:
        CatalogError: the catalogue could not be reached, or refused a call.
        TableConfigMismatchError: a name of an entry belongs to something else, or partition paths do not fit the keys.
        UnsupportedTableError: a column of a type that catalogues do not have; a database that does not exist.
    """
    timeline = table.timeline()
    cursor, schema = newest_cursor(table, timeline), table.schema_json(timeline)
    if cursor is None or schema is None:
        return SyncResult(catalog.name, None)
    location = catalog.location(location_of(table))
    wanted = wanted_entries(table.config, location, schema, options, owner)
    _database(catalog, options)
    source = _Source(table, timeline)
    done = [_Entry(source, catalog, options, each).sync(cursor) for each in wanted]
    return SyncResult(catalog.name, cursor, tuple(done))


def location_of(table: HoodieTable) -> str:
    """The base path as readers of a catalogue know it: a plain path for local files, otherwise the URL."""
    return table.base_path.removeprefix("file://").rstrip("/")


def _database(catalog: Catalog, options: SyncOptions) -> None:
    if catalog.has_database(options.database):
        return
    if not options.auto_create_database:
        raise UnsupportedTableError(
            f"{catalog.name} has no database {options.database}, and hoodie.datasource.hive_sync.auto_create_database is "
            "false: create the database, or set that key to true"
        )
    catalog.create_database(options.database)


@dataclass
class _Source:
    """What the entries of one sync read of the table: each partition list and each change once."""

    table: HoodieTable
    timeline: Timeline
    _changes: dict[Cursor, PartitionChanges] = field(default_factory=dict)

    @cached_property
    def partitions(self) -> list[str]:
        """The partition paths on storage."""
        return list_partitions(self.table.storage)

    def changes(self, commits: Sequence[Instant], since: Cursor) -> PartitionChanges:
        """The partitions that the commits after a cursor changed."""
        if since not in self._changes:
            self._changes[since] = partition_changes(self.table, self.timeline, commits, since)
        return self._changes[since]


class _Entry:
    """The sync of one entry of the table."""

    def __init__(self, source: _Source, catalog: Catalog, options: SyncOptions, wanted: TableEntry) -> None:
        self._source = source
        self._catalog, self._options, self._wanted = catalog, options, wanted
        keys = tuple(key.name for key in wanted.partition_keys)
        self._keys, self._extractor = keys, extractor_name(options.extractor, len(keys))

    def sync(self, newest: Cursor) -> EntryResult:
        found = self._catalog.table(self._wanted.database, self._wanted.name)
        if found is None:
            return self._create(newest)
        self._check_ours(found)
        if plain_path(found.location) != plain_path(self._wanted.location):
            return self._replace_other_location(found, newest)
        before = found.cursor
        commits = commits_since(self._source.timeline, before) if self._options.incremental else None
        if commits is not None and not commits and before == newest and self._is_equal(found):
            return EntryResult(found.name, "unchanged", commits=0)
        try:
            action, entry = self._alter(found)
        except IncompatibleColumnsError:
            if not self._options.recreate_on_error:
                raise
            LOG.warning("%s refuses the columns of %s: the entry is created again", self._catalog.name, found.full_name)
            return self._create(newest, instead_of=found)
        if commits is None or before is None:
            counts = self._all_partitions(entry)
        else:
            counts = self._changed_partitions(entry, self._source.changes(commits, before))
        result = EntryResult(found.name, action, *counts, commits=None if commits is None else len(commits))
        if result.changed or not self._options.conditional:
            self._catalog.alter_table(entry.with_cursor(newest), cascade=False)
        return result

    def _check_ours(self, found: TableEntry) -> None:
        if found.is_hudi:
            return
        raise TableConfigMismatchError(
            f"{self._catalog.name} has a table {found.full_name} at {found.location} that is not a Hudi table: it was not "
            "changed. Set another name with hoodie.datasource.hive_sync.table or hoodie.datasource.hive_sync.database"
        )

    def _create(self, newest: Cursor, instead_of: TableEntry | None = None) -> EntryResult:
        """Create the entry with all partitions. ``instead_of``: an entry of this name, which is dropped first."""
        entry = self._wanted
        partitions = self._on_storage()  # before any change: a path that does not fit the keys is an error
        if instead_of is not None:
            self._catalog.drop_table(instead_of.database, instead_of.name)
        self._catalog.create_table(entry)
        self._add(entry, partitions)
        self._catalog.alter_table(entry.with_cursor(newest), cascade=False)
        return EntryResult(entry.name, "created" if instead_of is None else "recreated", added=len(partitions))

    def _replace_other_location(self, found: TableEntry, newest: Cursor) -> EntryResult:
        if not self._options.recreate_on_error:
            raise TableConfigMismatchError(
                f"{self._catalog.name} has a Hudi table {found.full_name} at {found.location}, and this table is at "
                f"{self._wanted.location}: if the table has moved, set "
                "hoodie.datasource.hive_sync.recreate_table_on_error=true for one sync; otherwise set another name with "
                "hoodie.datasource.hive_sync.table"
            )
        return self._create(newest, instead_of=found)

    def _is_equal(self, found: TableEntry) -> bool:
        wanted = self._wanted
        return (
            same_columns(found.columns, wanted.columns)
            and same_columns(found.partition_keys, wanted.partition_keys)
            and (found.input_format, found.output_format) == (wanted.input_format, wanted.output_format)
            and wanted.serde_parameters.items() <= found.serde_parameters.items()
            and wanted.parameters.items() <= found.parameters.items()
            and (not self._options.comments or self._comments(found) == self._comments(wanted))
        )

    @staticmethod
    def _comments(entry: TableEntry) -> dict[str, str]:
        return {c.name.lower(): c.comment for c in entry.columns}

    def _alter(self, found: TableEntry) -> tuple[str, TableEntry]:
        """Update the different schema and parameters of the entry; its other fields are kept."""
        wanted = self._wanted
        if [k.name.lower() for k in found.partition_keys] != [k.name.lower() for k in wanted.partition_keys]:
            raise TableConfigMismatchError(
                f"{found.full_name} of {self._catalog.name} is partitioned by "
                f"{', '.join(k.name for k in found.partition_keys) or 'nothing'}, and the table by "
                f"{', '.join(self._keys) or 'nothing'}: drop the entry, and sync again"
            )
        columns = wanted.columns
        if not self._options.comments:  # comments that others wrote are kept
            comments = self._comments(found)
            columns = tuple(replace(c, comment=comments.get(c.name.lower(), "")) for c in columns)
        entry = replace(
            found,
            columns=columns,
            location=wanted.location,
            input_format=wanted.input_format,
            output_format=wanted.output_format,
            serde=wanted.serde,
            serde_parameters={**found.serde_parameters, **wanted.serde_parameters},
            parameters={**_without_schema(found.parameters), **wanted.parameters},
        )
        if self._is_equal(found):
            return "unchanged", entry
        self._catalog.alter_table(entry, cascade=bool(self._keys) and not same_columns(found.columns, wanted.columns))
        return "altered", entry

    def _on_storage(self) -> list[PartitionEntry]:
        if not self._keys:
            return []
        return [self._partition(path) for path in self._source.partitions]

    def _partition(self, path: str) -> PartitionEntry:
        values = partition_values(path, self._keys, self._extractor, decode=self._options.decode_partition)
        return PartitionEntry(values, join(self._wanted.location, path))

    def _all_partitions(self, entry: TableEntry) -> tuple[int, int, int]:
        """Compare all partitions of the table and of the catalogue; added, updated and dropped ones."""
        if not self._keys:
            return 0, 0, 0
        there, have = self._on_storage(), self._catalog.partitions(entry)
        gone = sorted(set(have) - {p.values for p in there})
        added, updated, _ = self._put(entry, there, have)
        self._drop(entry, gone)
        return added, updated, len(gone)

    def _changed_partitions(self, entry: TableEntry, changes: PartitionChanges) -> tuple[int, int, int]:
        if not self._keys or not (changes.written or changes.dropped):
            return 0, 0, 0
        written = [self._partition(path) for path in changes.written]
        gone = [self._partition(path).values for path in changes.dropped]
        have: dict[Values, str] = {}
        for some in pieces([*(p.values for p in written), *gone], self._options.batch):
            have |= self._catalog.partitions(entry, some)
        added, updated, same = self._put(entry, written, have)
        if self._options.touch:
            self._update(entry, same)
        dropped = [values for values in gone if values in have]
        self._drop(entry, dropped)
        return added, updated + (len(same) if self._options.touch else 0), len(dropped)

    def _put(
        self, entry: TableEntry, there: Sequence[PartitionEntry], have: Mapping[Values, str]
    ) -> tuple[int, int, list[PartitionEntry]]:
        """Add those that the catalogue lacks, update those with another location; the others are the third value."""
        added: list[PartitionEntry] = []
        moved: list[PartitionEntry] = []
        same: list[PartitionEntry] = []
        for each in there:
            if each.values not in have:
                added.append(each)
            else:
                (same if plain_path(have[each.values]) == plain_path(each.location) else moved).append(each)
        self._add(entry, added)
        self._update(entry, moved)
        return len(added), len(moved), same

    def _add(self, entry: TableEntry, partitions: Sequence[PartitionEntry]) -> None:
        for some in pieces(partitions, self._options.batch):
            self._catalog.add_partitions(entry, some)

    def _update(self, entry: TableEntry, partitions: Sequence[PartitionEntry]) -> None:
        for some in pieces(partitions, self._options.batch):
            self._catalog.update_partitions(entry, some)

    def _drop(self, entry: TableEntry, values: Sequence[Values]) -> None:
        for some in pieces(values, self._options.batch):
            self._catalog.drop_partitions(entry, some)


def _without_schema(parameters: Mapping[str, str]) -> dict[str, str]:
    """Parameters without pieces of Spark's schema: a shorter one has fewer of them."""
    return {key: value for key, value in parameters.items() if not key.startswith("spark.sql.sources.schema.")}
