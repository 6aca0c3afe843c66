"""The settings in ``hoodie.properties`` of a table, as one value.

A table may omit its partition columns from its files (``hoodie.datasource.write.drop.partition.columns``), as
Hudi does it: key and partition path are made of the whole record, then the partition columns are removed from it,
and the schema in the commits lacks them. Readers add them at the end, as texts with the values of the path.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import pyarrow as pa

from tagstream.table.errors import ConfigError
from tagstream.table.file_group.change_file import OLD_MODES, LoggingMode
from tagstream.table.keys.generators import Times, class_of, default_generator, generator_of
from tagstream.table.keys.time_partition import OLD_PREFIX, PREFIX, TimePartition
from tagstream.table.table_version import TableVersion

COPY_ON_WRITE = "COPY_ON_WRITE"
MERGE_ON_READ = "MERGE_ON_READ"
EVENT_TIME_PAYLOAD = "org.apache.hudi.common.model.DefaultHoodieRecordPayload"
COMMIT_TIME_PAYLOAD = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
DEFAULT_MERGE_STRATEGY = "eeb8d96f-b1e4-49fd-bbf8-28ac514178e5"

DROP_KEY = "hoodie.datasource.write.drop.partition.columns"
CDC_KEY = "hoodie.table.cdc.enabled"
CDC_MODE_KEY = "hoodie.table.cdc.supplemental.logging.mode"
MERGE_MODE_KEY = "hoodie.record.merge.mode"
PAYLOAD_KEY = "hoodie.compaction.payload.class"
PARTIAL_UPDATE_MODE = "hoodie.table.partial.update.mode"
_MARKER = "hoodie.write.partial.update.unavailable.value"
_EVENT_TIME_PAYLOADS = ("DefaultHoodieRecordPayload", "EventTimeAvroPayload")


class MergeMode(StrEnum):
    """How two versions of a record are merged: the greater ordering value wins, the later commit wins, or by Java code."""

    EVENT_TIME = "EVENT_TIME_ORDERING"
    COMMIT_TIME = "COMMIT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


class PartialUpdate(StrEnum):
    """How a record marks a value as unchanged (``hoodie.table.partial.update.mode``, version 9): by null, or by a marker."""

    NONE = ""
    IGNORE_DEFAULTS = "IGNORE_DEFAULTS"
    FILL_UNAVAILABLE = "FILL_UNAVAILABLE"
    OTHER = "OTHER"


# Payload classes of version 8 for which null in a record means an unchanged value, with their merge mode after Hudi
# upgrades the table to version 9.
_KNOWN_PAYLOADS = {
    "PartialUpdateAvroPayload": MergeMode.EVENT_TIME,
    "OverwriteNonDefaultsWithLatestAvroPayload": MergeMode.COMMIT_TIME,
}


@dataclass(frozen=True)
class TableConfig:
    """A table's settings. ``raw`` has every property of an existing table, known or not.

    ``time_fields``: partition fields whose paths are made of times by the rules ``times``; empty and None without such
    fields. ``drops_partition_columns``: files have no partition columns; readers take their values from the partition
    path. ``change_logging``: what change files have; None without change data capture.
    """

    name: str
    table_type: str = COPY_ON_WRITE
    record_key_fields: tuple[str, ...] = ()
    partition_fields: tuple[str, ...] = ()
    ordering_fields: tuple[str, ...] = ()
    database: str = ""
    version: int = 6
    key_generator: str = ""
    hive_style: bool = False
    url_encode: bool = False
    merge_mode: MergeMode = MergeMode.EVENT_TIME
    timezone_utc: bool = True
    metadata_partitions: tuple[str, ...] = ()
    create_schema: str | None = None
    populate_meta_fields: bool = True
    base_file_format: str = "PARQUET"
    payload_class: str = ""
    delete_field: str | None = None
    delete_marker: str | None = None
    time_fields: tuple[str, ...] = ()
    times: TimePartition | None = None
    partial_update: PartialUpdate = PartialUpdate.NONE
    unavailable_marker: str | None = None
    drops_partition_columns: bool = False
    change_logging: LoggingMode | None = None
    raw: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def is_merge_on_read(self) -> bool:
        """True for tables with log files."""
        return self.table_type == MERGE_ON_READ

    @property
    def table_version(self) -> TableVersion:
        """The capabilities of the table's version; UnsupportedTableError for an unknown version."""
        return TableVersion.of(self.version)

    @property
    def names_logs_by_commit(self) -> bool:
        """True from version 8 on: log files have the instant of their delta commit, before that the one of their slice."""
        return self.table_version.names_logs_by_commit

    @property
    def has_completion_times(self) -> bool:
        """True from version 8 on: the file name of a completed action has its completion time."""
        return self.table_version.has_completion_times

    @property
    def timeline_folder(self) -> str:
        """The folder of the active timeline, which is separate from version 8 on."""
        return self.table_version.timeline_folder

    @property
    def history_folder(self) -> str:
        """The folder of archived instants: below the timeline's folder from version 8 on, before that in ``.hoodie``."""
        if self.table_version.layout == 2:
            return f"{self.timeline_folder}/{self.raw.get('hoodie.timeline.history.path') or 'history'}"
        return f".hoodie/{self.raw.get('hoodie.archivelog.folder') or 'archived'}"

    @property
    def is_event_time(self) -> bool:
        """True when the greater ordering value wins."""
        return self.merge_mode is MergeMode.EVENT_TIME and bool(self.ordering_fields)

    @property
    def deciding_fields(self) -> tuple[str, ...]:
        """The ordering fields that decide which of two events of a row is newer.

        There are none if the table's merge mode is COMMIT_TIME_ORDERING: the later event wins. A table of version 6 has
        no merge mode: its ordering fields decide.
        """
        return () if self.raw.get(MERGE_MODE_KEY) == MergeMode.COMMIT_TIME else self.ordering_fields

    @property
    def dropped_fields(self) -> tuple[str, ...]:
        """The columns that only partition paths have. Hudi keeps fields of struct columns in its rows."""
        return tuple(name for name in self.partition_fields if "." not in name) if self.drops_partition_columns else ()

    @staticmethod
    def from_properties(properties: Mapping[str, str]) -> TableConfig:
        """The settings of an existing table, from keys of the 0.x and 1.x lines."""
        ordering = _names(properties.get("hoodie.table.ordering.fields")) or _names(
            properties.get("hoodie.table.precombine.field")
        )
        payload = properties.get(PAYLOAD_KEY, "")
        keys = _names(properties.get("hoodie.table.recordkey.fields"))
        # From version 8 on a field may have its kind after a colon (``day:SIMPLE``).
        partitions, timed = split_kinds(_names(properties.get("hoodie.table.partition.fields")))
        generator = _key_generator(properties, keys, partitions)
        facts = generator_of(generator)
        times = Times.NONE if facts is None else facts.times
        return TableConfig(
            name=properties["hoodie.table.name"],
            database=properties.get("hoodie.database.name", ""),
            table_type=properties.get("hoodie.table.type", COPY_ON_WRITE),
            version=int(properties.get("hoodie.table.version", "0")),
            record_key_fields=keys,
            partition_fields=partitions,
            time_fields=partitions if times is Times.ALL else timed,
            times=time_rules(properties) if times is not Times.NONE else None,
            ordering_fields=ordering,
            key_generator=generator,
            hive_style=_flag(properties, "hoodie.datasource.write.hive_style_partitioning"),
            url_encode=_flag(properties, "hoodie.datasource.write.partitionpath.urlencode"),
            merge_mode=_merge_mode(properties, payload, bool(ordering)),
            timezone_utc=properties.get("hoodie.table.timeline.timezone", "LOCAL").upper() == "UTC",
            metadata_partitions=_names(properties.get("hoodie.table.metadata.partitions"))
            + _names(properties.get("hoodie.table.metadata.partitions.inflight")),
            create_schema=properties.get("hoodie.table.create.schema") or None,
            populate_meta_fields=_flag(properties, "hoodie.populate.meta.fields", default=True),
            base_file_format=properties.get("hoodie.table.base.file.format", "PARQUET").upper(),
            payload_class=payload,
            delete_field=_merge_property(properties, "hoodie.payload.delete.field"),
            delete_marker=_merge_property(properties, "hoodie.payload.delete.marker"),
            partial_update=(mode := _partial_update(properties)),
            unavailable_marker=_merge_property(properties, _MARKER) if mode is PartialUpdate.FILL_UNAVAILABLE else None,
            drops_partition_columns=_flag(properties, DROP_KEY),
            change_logging=_change_logging(properties),
            raw=dict(properties),
        )


def _change_logging(properties: Mapping[str, str]) -> LoggingMode | None:
    """The logging mode; without one Hudi's default. None for an unknown one, too: ``cdc_problem`` names it."""
    if not _flag(properties, CDC_KEY):
        return None
    mode = properties.get(CDC_MODE_KEY, "").strip().upper() or LoggingMode.DATA_BEFORE_AFTER.value
    return LoggingMode(mode) if mode in list(LoggingMode) else OLD_MODES.get(mode)


def cdc_problem(config: TableConfig) -> str | None:
    """Why the changes of a table cannot be logged; None when they can, or need not."""
    if config.change_logging is not None or not _flag(config.raw, CDC_KEY):
        return None
    return (
        f"it has {CDC_KEY}=true with {CDC_MODE_KEY}={config.raw.get(CDC_MODE_KEY)}, and only "
        f"{', '.join(LoggingMode)} are known: correct the property"
    )


def split_kinds(fields: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(names, names of those with times) of partition fields that may have a kind (``city:SIMPLE``, ``at:TIMESTAMP``)."""
    named = [field.partition(":") for field in fields]
    timed = tuple(name for name, _, kind in named if kind.strip().upper() == "TIMESTAMP")
    return tuple(name for name, _, _ in named), timed


def time_rules(properties: Mapping[str, str]) -> TimePartition | None:
    """The rules for times in properties; None without rules, or with rules that are not supported."""
    if not any(prefix + "timestamp.type" in properties for prefix in (PREFIX, OLD_PREFIX)):
        return None
    try:
        return TimePartition.from_properties(properties)
    except ConfigError:
        return None  # the table can be read; a writer gets an error for its own settings


def _key_generator(properties: Mapping[str, str], keys: Sequence[str], partitions: Sequence[str]) -> str:
    kind = properties.get("hoodie.table.keygenerator.type", "")
    found = properties.get("hoodie.table.keygenerator.class") or class_of(kind) or kind
    # Writers may omit it; then the fields decide, as when Hudi reads such a table.
    return found or (default_generator(keys, partitions).class_name if keys else "")


def _merge_mode(properties: Mapping[str, str], payload: str, has_ordering: bool) -> MergeMode:
    mode, name = properties.get(MERGE_MODE_KEY), payload.rsplit(".", 1)[-1]
    if mode == MergeMode.CUSTOM and name in _KNOWN_PAYLOADS:
        return _KNOWN_PAYLOADS[name]
    if mode:
        return MergeMode(mode) if mode in list(MergeMode) else MergeMode.CUSTOM
    if name in _EVENT_TIME_PAYLOADS:
        return MergeMode.EVENT_TIME if has_ordering else MergeMode.COMMIT_TIME
    return MergeMode.COMMIT_TIME if name in ("", "OverwriteWithLatestAvroPayload") else MergeMode.CUSTOM


def _partial_update(properties: Mapping[str, str]) -> PartialUpdate:
    mode = properties.get(PARTIAL_UPDATE_MODE, "").strip().upper()
    payload = properties.get(PAYLOAD_KEY, "").rsplit(".", 1)[-1]
    if properties.get(MERGE_MODE_KEY) == MergeMode.CUSTOM and payload in _KNOWN_PAYLOADS:
        return PartialUpdate.IGNORE_DEFAULTS
    if mode in ("", "NONE", "KEEP_VALUES"):
        return PartialUpdate.NONE
    return PartialUpdate(mode) if mode in list(PartialUpdate) else PartialUpdate.OTHER


def partial_update_of(config: TableConfig) -> str:
    """The property, with its value, that enables a table's partial updates, for messages."""
    mode = config.raw.get(PARTIAL_UPDATE_MODE)
    return f"{PARTIAL_UPDATE_MODE}={mode}" if mode else f"{PAYLOAD_KEY}={config.payload_class}"


def _merge_property(properties: Mapping[str, str], key: str) -> str | None:
    return properties.get(key) or properties.get(f"hoodie.record.merge.property.{key}") or None


def _names(value: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (value or "").split(",") if name.strip())


def _flag(properties: Mapping[str, str], key: str, default: bool = False) -> bool:
    return properties.get(key, _text(default)).strip().lower() == "true"


def _text(value: bool) -> str:
    return "true" if value else "false"


def drop_problem(config: TableConfig) -> str | None:
    """Why a table that drops its partition columns cannot be written; None when it can, or drops none."""
    if not config.drops_partition_columns:
        return None
    told = f"{DROP_KEY}=true"
    if not config.partition_fields:
        return f"{told}, and it has no partition field: remove the option"
    inside = [name for name in config.partition_fields if "." in name]
    if inside:
        return (
            f"{told}, and its partition field {inside[0]} is inside a struct: use a whole column, or remove the option"
        )
    if config.time_fields:
        return (
            f"{told}, and the partition paths of {', '.join(config.time_fields)} are made of times: the values cannot be "
            "read back from them. Add a column with the text of the path (docs/guide/dataframes.md#transformations), "
            "or remove the option"
        )
    if config.is_merge_on_read and not config.table_version.drops_columns_of_logs:
        return (
            f"{told}, and it is a merge-on-read table of version {config.version}, whose readers (Hudi 0.x) return nulls "
            "for the partition columns of rows in logs: use hoodie.write.table.version=8 or 9, or COPY_ON_WRITE, or "
            "remove the option"
        )
    for role, names in (("record key", config.record_key_fields), ("ordering", config.ordering_fields)):
        lost = [name for name in names if name.split(".")[0] in config.partition_fields]
        if lost:
            return (
                f"{told}, and its {role} field {lost[0]} is a partition column, which rows would lack: use another "
                f"{role} field, or remove the option"
            )
    return None


def without_fields(avro_json: str, names: Collection[str]) -> str:
    """An Avro record schema without these fields."""
    if not names:
        return avro_json
    record = json.loads(avro_json)
    kept = [field for field in record["fields"] if field["name"] not in names]
    if len(kept) == len(record["fields"]):
        return avro_json
    return json.dumps({**record, "fields": kept})


def with_dropped(schema: pa.Schema, config: TableConfig) -> pa.Schema:
    """A schema of stored rows with the columns that readers add: strings, at the end, as in Hudi."""
    stored = [field for field in schema if field.name not in config.dropped_fields]
    return pa.schema([*stored, *(pa.field(name, pa.string()) for name in config.dropped_fields)])
