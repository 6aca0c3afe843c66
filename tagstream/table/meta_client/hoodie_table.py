"""A Hudi table: its storage and configuration. Create one, open one, and refuse unsupported tables by an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from tagstream.table.errors import ConfigError, CorruptFileError, TableConfigMismatchError, UnsupportedTableError
from tagstream.table.file_group.fs_view import FileSystemView, Listing
from tagstream.table.history.action_files import ArchivedAction
from tagstream.table.history.archive import TimelinePlace, archived_after, newest_archived
from tagstream.table.history.lsm import History
from tagstream.table.keys.generators import Times, default_generator, generator_of
from tagstream.table.meta_client.properties import create_properties, new_properties, read_properties, update_properties
from tagstream.table.meta_client.table_config import (
    COPY_ON_WRITE,
    MERGE_ON_READ,
    MergeMode,
    PartialUpdate,
    TableConfig,
    cdc_problem,
    drop_problem,
    partial_update_of,
    without_fields,
)
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import META_FOLDER, Storage
from tagstream.table.table_version import VERSIONS, listed_versions
from tagstream.table.timeline.commit_metadata import SCHEMA_KEY
from tagstream.table.timeline.instant import Instant
from tagstream.table.timeline.timeline import Timeline

_METADATA_TABLE = f"{META_FOLDER}/metadata"
_METADATA_PROPERTIES = f"{_METADATA_TABLE}/{META_FOLDER}/hoodie.properties"
_METADATA_KEYS = ("hoodie.table.metadata.partitions", "hoodie.table.metadata.partitions.inflight")


@dataclass(frozen=True)
class HoodieTable:
    """Storage and configuration of one table. A picklable value: a task uses the copy that it was sent.

    ``lister``: a function that returns the table's files for a timeline without listing its folders, or None if it
    cannot.
    """

    storage: Storage
    config: TableConfig
    lister: Callable[[HoodieTable, Timeline], Listing | None] | None = None

    @staticmethod
    def create(place: str | Storage, config: TableConfig, at_ms: int) -> HoodieTable:
        """Create an empty table at a URL or in a storage; TableConfigMismatchError when a table exists there."""
        storage = _storage(place)
        check_new(config)
        try:
            create_properties(storage, new_properties(config), at_ms)
        except FileExistsError:
            raise TableConfigMismatchError(f"{storage.root} is a Hudi table already: open it instead") from None
        if config.has_completion_times:  # Hudi 1.2 fails without this folder; object stores have no empty folders
            storage.replace(f"{config.timeline_folder}/history/.keep", b"")
        return HoodieTable.open(storage)

    @staticmethod
    def open(place: str | Storage) -> HoodieTable:
        """Open the table at a URL or in a storage. UnsupportedTableError names a version or layout that cannot be read."""
        storage = _storage(place)
        config = TableConfig.from_properties(read_properties(storage))
        where = f"table {config.name} at {storage.root}"
        if config.version not in VERSIONS:
            with_what = "a Hudi before 1.0, such as 0.15: Hudi 1.x reads none below 6" if config.version < 6 else "Hudi"
            raise UnsupportedTableError(
                f"{where} has table version {config.version}; versions {listed_versions()} can be read: "
                f"upgrade it with {with_what}"
            )
        if config.table_type not in (COPY_ON_WRITE, MERGE_ON_READ):
            raise CorruptFileError(f"{where}: unknown hoodie.table.type {config.table_type!r} in hoodie.properties")
        if config.base_file_format != "PARQUET":
            raise UnsupportedTableError(f"{where} has {config.base_file_format} base files; only PARQUET can be read")
        if config.raw.get("hoodie.bootstrap.base.path"):
            raise UnsupportedTableError(f"{where} is a bootstrapped table over other files: rewrite it with Hudi first")
        return HoodieTable(storage, config)

    @property
    def base_path(self) -> str:
        """The path or URL of the table's folder."""
        return self.storage.root

    def reload(self) -> HoodieTable:
        """The table with its properties read again: another engine may have changed them."""
        return replace(HoodieTable.open(self.storage), lister=self.lister)

    def timeline(self) -> Timeline:
        """Read the active timeline."""
        return Timeline.load(self.storage, self.config.timeline_folder)

    def instant_path(self, instant: Instant) -> str:
        """The instant's file on the timeline, relative to the base path."""
        return f"{self.config.timeline_folder}/{instant.file_name()}"

    def view(self, timeline: Timeline | None = None, as_of: str | None = None) -> FileSystemView:
        """The file slices as of an instant; without one, as of the newest completed write."""
        timeline = timeline if timeline is not None else self.timeline()
        archived = self.history() if self.config.has_completion_times else None
        as_of = as_of or timeline.newest_completed
        listing = self.lister(self, timeline) if self.lister is not None else None
        return FileSystemView(self.storage, timeline, as_of, self.config.version, archived, listing)

    def timeline_place(self) -> TimelinePlace:
        """The folders of the active timeline and its archive."""
        config = self.config
        return TimelinePlace(
            self.storage,
            config.table_version.layout,
            config.timeline_folder,
            config.history_folder,
            config.timezone_utc,
        )

    def history(self) -> History:
        """The archived instants of a table of version 8 or 9, which are read at the first use."""
        return History(self.storage, self.config.history_folder)

    def archived_writes(self) -> Iterator[ArchivedAction]:
        """The completed writes of the archive, newest first; files are read while the caller iterates."""
        return newest_archived(self.timeline_place())

    def archived_after(self, since: str) -> Iterator[ArchivedAction]:
        """The archived writes completed after a time, in no order; up to version 7 those with a later instant time."""
        return archived_after(self.timeline_place(), since)

    def schema_json(self, timeline: Timeline | None = None, as_of: str | None = None) -> str | None:
        """The Avro schema of the table's stored rows: of the newest commit that has one, else of the properties.

        It has no meta fields, and no partition columns if the table drops them: some writers' commits include these.
        """
        timeline = timeline if timeline is not None else self.timeline()
        for instant in reversed(timeline.completed_writes):
            if as_of is not None and instant.time > as_of:
                continue
            schema = timeline.metadata(self.storage, instant).extra.get(SCHEMA_KEY)
            if schema:
                return without_fields(without_meta_fields(schema), self.config.dropped_fields)
        created = self.config.create_schema
        return created and without_fields(created, self.config.dropped_fields)

    def check_writable(self, *, keeps_metadata: bool = False) -> None:
        """UnsupportedTableError names the first property of this table that prevents writing; call it before a commit.

        ``keeps_metadata``: the caller updates the table's metadata table with each commit.
        """
        config = replace(self.config, metadata_partitions=()) if keeps_metadata else self.config
        problem = _write_problem(config)
        if problem is not None:
            raise UnsupportedTableError(f"cannot write table {self.config.name} at {self.storage.root}: {problem}")

    def without_metadata_table(self) -> HoodieTable:
        """The table as if its metadata table had been dropped; nothing is changed on disk."""
        raw = {key: "" if key in _METADATA_KEYS else value for key, value in self.config.raw.items()}
        return replace(self, config=replace(self.config, metadata_partitions=(), raw=raw))

    @property
    def has_lost_metadata_table(self) -> bool:
        """Whether the properties name a metadata table whose folder is missing: it was not copied, or was removed."""
        return bool(self.config.metadata_partitions) and not self.storage.exists(_METADATA_PROPERTIES)

    def drop_metadata_table(self, at_ms: int) -> tuple[str, ...]:
        """Remove the metadata table, first from the properties, then from disk; returns the partitions that it had.

        In this order a reader never uses a metadata table that is being removed.
        """
        partitions = self.config.metadata_partitions
        if partitions:
            update_properties(self.storage, dict.fromkeys(_METADATA_KEYS, ""), at_ms)
        self.storage.delete_tree(_METADATA_TABLE)
        return partitions


def _storage(place: str | Storage) -> Storage:
    return open_storage(place) if isinstance(place, str) else place


def without_meta_fields(avro_json: str) -> str:
    """An Avro record schema without Hudi's ``_hoodie_`` meta columns (a delete flag is a user's column)."""
    return without_fields(avro_json, _META_FIELDS)


_META_FIELDS = frozenset({
    "_hoodie_commit_time", "_hoodie_commit_seqno", "_hoodie_record_key",
    "_hoodie_partition_path", "_hoodie_file_name", "_hoodie_operation",
})  # fmt: skip


def check_new(config: TableConfig) -> None:
    """Raise ConfigError, UnsupportedTableError or ValueError if no table can be made with these properties."""
    if config.version not in VERSIONS:
        raise UnsupportedTableError(
            f"tables are created with version {listed_versions(last='or')}, not {config.version}"
        )
    if not config.name or "/" in config.name:
        raise ValueError(f"table name {config.name!r} is empty or contains a slash")
    if not config.record_key_fields:
        raise ValueError("a table needs at least one record key field")
    generator = config.key_generator or default_generator(config.record_key_fields, config.partition_fields).class_name
    facts = generator_of(generator)
    if facts is not None and facts.times is Times.ALL and (config.times is None or not config.time_fields):
        raise ConfigError(
            f"cannot create table {config.name}: {facts.name} needs hoodie.keygen.timebased.timestamp.type "
            "and hoodie.keygen.timebased.output.dateformat"
        )
    problem = _write_problem(replace(config, key_generator=generator))
    if problem is not None:
        raise UnsupportedTableError(f"cannot create table {config.name}: {problem}")


def _write_problem(config: TableConfig) -> str | None:
    checks = (
        (
            bool(config.metadata_partitions),
            f"it has a metadata table ({', '.join(config.metadata_partitions)}), which is not kept up to date: "
            "drop it with hoodie.metadata.enable=false",
        ),
        (not config.populate_meta_fields, "hoodie.populate.meta.fields=false: its rows have no record keys"),
        (
            generator_of(config.key_generator) is None,
            f"key generator {config.key_generator or '(none)'} is not supported; simple, complex, non-partitioned, "
            "timestamp and custom ones are",
        ),
        (
            config.merge_mode is MergeMode.CUSTOM,
            f"its records are merged by Java code ({config.payload_class or 'CUSTOM merge mode'})",
        ),
        (
            config.partial_update in (PartialUpdate.IGNORE_DEFAULTS, PartialUpdate.OTHER),
            f"it has {partial_update_of(config)}: fields that a record lacks must keep their values, and this writer would "
            "write nulls; write it with Hudi, or make a table without this mode",
        ),
        (
            len(config.ordering_fields) > 1 and not config.table_version.several_ordering_fields,
            f"it has several ordering fields ({', '.join(config.ordering_fields)}), which readers of version "
            f"{config.version} do not support: use one ordering field, or version 8 or 9",
        ),
    )
    found = next((problem for applies, problem in checks if applies), None)
    return found or drop_problem(config) or cdc_problem(config)
