"""``.hoodie/hoodie.properties``: Java properties text, changed safely; and the properties of a new table.

The file is ISO-8859-1 with ``\\uXXXX`` escapes. Readers of other engines may read it at any moment, so it is never
missing. While it is changed, ``hoodie.properties.backup`` exists, as with Hudi, whose writers remove the main file
during the change.

A new table gets the properties that Hudi of its version writes and needs. Version 6 names Java classes (key
generator, payload). Version 8 has kinds (key generator type, merge mode) and still the payload class. Version 9 has
only the merge mode, and ``ordering.fields`` instead of ``precombine.field``.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache

import javaproperties

from tagstream.table.errors import CorruptFileError, TableNotFoundError
from tagstream.table.keys.generators import KeyKind, default_generator, key_generator_type
from tagstream.table.meta_client.table_config import (
    CDC_KEY,
    CDC_MODE_KEY,
    COMMIT_TIME_PAYLOAD,
    DEFAULT_MERGE_STRATEGY,
    DROP_KEY,
    EVENT_TIME_PAYLOAD,
    PAYLOAD_KEY,
    MergeMode,
    TableConfig,
)
from tagstream.table.storage.storage import META_FOLDER, Storage
from tagstream.table.table_version import TableVersion

PROPERTIES_FILE = f"{META_FOLDER}/hoodie.properties"
BACKUP_FILE = f"{META_FOLDER}/hoodie.properties.backup"
CHECKSUM_KEY = "hoodie.table.checksum"


def table_checksum(database: str, table: str) -> str:
    """CRC-32 of ``<database>.<table>`` as decimal text: Hudi's checksum covers only these names."""
    return str(zlib.crc32(f"{database}.{table}".encode()))


def parse(data: bytes) -> dict[str, str]:
    """The keys and values of properties text, with escapes resolved."""
    return dict(_parsed(data))


@lru_cache(maxsize=64)  # the file is read each time a table is opened, and rarely changes
def _parsed(data: bytes) -> dict[str, str]:
    parsed: dict[str, str] = javaproperties.loads(data.decode("iso-8859-1"))
    return parsed


def dump(properties: Mapping[str, str], comment: str, at_ms: int) -> bytes:
    """Properties text with Java's two comment lines; ``at_ms`` is their time, in milliseconds since 1970."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    lines = [f"#{comment} {at.strftime('%Y-%m-%dT%H:%M:%S.%f')}Z", f"#{at.strftime('%a %b %d %H:%M:%S UTC %Y')}"]
    lines.extend(javaproperties.join_key_value(key, value) for key, value in sorted(properties.items()))
    return ("\n".join(lines) + "\n").encode("iso-8859-1")


def read_properties(storage: Storage) -> dict[str, str]:
    """The table's properties; TableNotFoundError without the file, CorruptFileError on a wrong checksum."""
    for rel in (PROPERTIES_FILE, BACKUP_FILE):
        try:
            properties = parse(storage.read(rel))
        except (FileNotFoundError, NotADirectoryError):
            continue
        _verify(properties, storage.where(rel))
        return properties
    raise TableNotFoundError(
        f"{storage.root} is not a Hudi table: {PROPERTIES_FILE} is missing; check the base path or create the table first"
    )


def _verify(properties: Mapping[str, str], where: str) -> None:
    stored = properties.get(CHECKSUM_KEY)
    name = properties.get("hoodie.table.name")
    if not name:
        raise CorruptFileError(f"{where} has no hoodie.table.name: restore the file from its backup")
    if stored and stored != table_checksum(properties.get("hoodie.database.name", ""), name):
        raise CorruptFileError(
            f"{where}: {CHECKSUM_KEY} {stored} is not that of database and table name; the file was edited by hand "
            "or damaged: correct the names or remove the checksum line"
        )


def create_properties(storage: Storage, properties: Mapping[str, str], at_ms: int) -> None:
    """Write the file of a new table; FileExistsError when it exists."""
    storage.write_new(PROPERTIES_FILE, dump(properties, "Properties saved on", at_ms))


def replace_properties(storage: Storage, properties: Mapping[str, str], at_ms: int) -> None:
    """Replace the file, with a backup during the change: keys that are not in ``properties`` are removed."""
    recover_properties(storage)
    _replace(storage, properties, at_ms)


def update_properties(storage: Storage, changes: Mapping[str, str], at_ms: int) -> dict[str, str]:
    """Set keys in the file, with a backup during the change; returns all properties after it."""
    recover_properties(storage)
    updated = {**read_properties(storage), **changes}
    _replace(storage, updated, at_ms)
    return updated


def _replace(storage: Storage, properties: Mapping[str, str], at_ms: int) -> None:
    storage.write_new(BACKUP_FILE, storage.read(PROPERTIES_FILE))
    # In one step: hudi-rs ignores the backup, and finds no table where the file is missing.
    storage.replace(PROPERTIES_FILE, dump(properties, "Updated at", at_ms))
    storage.delete(BACKUP_FILE)


def recover_properties(storage: Storage) -> None:
    """Finish an interrupted change: restore the backup when the main file is missing, then remove the backup."""
    if not storage.exists(BACKUP_FILE):
        return
    if not storage.exists(PROPERTIES_FILE):
        storage.write_new(PROPERTIES_FILE, storage.read(BACKUP_FILE))
    storage.delete(BACKUP_FILE)


COMMIT_TIME_STRATEGY = "ce9acb64-bde0-424c-9b91-f6ebba25356d"
_EXTRACTORS = "org.apache.hudi.hive."


def new_properties(config: TableConfig) -> dict[str, str]:
    """The properties of a new table of the config's version."""
    properties = _common(config)
    if config.partition_fields:
        properties["hoodie.table.partition.fields"] = ",".join(_partition_fields(config))
    if config.times is not None and config.time_fields:
        properties |= config.times.properties
    if config.create_schema:
        properties["hoodie.table.create.schema"] = config.create_schema
    version = config.table_version
    if version.names_classes:
        return properties | _layout_1(config)
    return properties | _layout_2(config) | (_payload_properties(config) if version.names_payload else {})


def has_kinds(config: TableConfig, version: int) -> bool:
    """Whether a table of a version has a kind after each partition field: from 8 on with the custom key generator."""
    return TableVersion.of(version).partition_kinds and key_generator_type(_key_generator(config)) == KeyKind.CUSTOM


def fields_with_kinds(names: Iterable[str], timed: Collection[str]) -> list[str]:
    """Partition fields with their kinds; ``timed``: the fields whose paths are made of times."""
    return [f"{name}:{'TIMESTAMP' if name in timed else 'SIMPLE'}" for name in names]


def _partition_fields(config: TableConfig) -> list[str]:
    names = config.partition_fields
    return fields_with_kinds(names, config.time_fields) if has_kinds(config, config.version) else list(names)


def _common(config: TableConfig) -> dict[str, str]:
    properties = {
        "hoodie.table.name": config.name,
        "hoodie.database.name": config.database,
        "hoodie.table.type": config.table_type,
        "hoodie.table.version": str(config.version),
        CHECKSUM_KEY: table_checksum(config.database, config.name),
        "hoodie.table.recordkey.fields": ",".join(config.record_key_fields),
        "hoodie.datasource.write.hive_style_partitioning": _text(config.hive_style),
        "hoodie.datasource.write.partitionpath.urlencode": _text(config.url_encode),
        DROP_KEY: _text(config.drops_partition_columns),
        "hoodie.populate.meta.fields": "true",
        "hoodie.table.base.file.format": "PARQUET",
        "hoodie.table.timeline.timezone": "UTC" if config.timezone_utc else "LOCAL",
        CDC_KEY: _text(config.change_logging is not None),
        "hoodie.partition.metafile.use.base.format": "false",
    }
    if config.change_logging is not None:
        properties[CDC_MODE_KEY] = config.change_logging.value
    if config.ordering_fields:
        properties[config.table_version.ordering_property] = ",".join(config.ordering_fields)
    return properties


def _layout_1(config: TableConfig) -> dict[str, str]:
    return {
        "hoodie.timeline.layout.version": "1",
        "hoodie.table.keygenerator.class": _key_generator(config),
        PAYLOAD_KEY: _payload(config),
        "hoodie.compaction.record.merger.strategy": DEFAULT_MERGE_STRATEGY,
        "hoodie.archivelog.folder": "archived",
    }


def _layout_2(config: TableConfig) -> dict[str, str]:
    return {
        "hoodie.table.initial.version": str(config.version),
        "hoodie.timeline.layout.version": "2",
        "hoodie.timeline.path": "timeline",
        "hoodie.timeline.history.path": "history",
        "hoodie.archivelog.folder": "history",
        "hoodie.table.format": "native",
        "hoodie.table.keygenerator.type": key_generator_type(_key_generator(config)),
        "hoodie.record.merge.mode": (MergeMode.EVENT_TIME if config.is_event_time else MergeMode.COMMIT_TIME).value,
        "hoodie.table.multiple.base.file.formats.enable": "false",
        "hoodie.table.partition_extractor_class": _EXTRACTORS + _extractor(config),
    }


def _payload_properties(config: TableConfig) -> dict[str, str]:
    return {
        PAYLOAD_KEY: _payload(config),
        "hoodie.record.merge.strategy.id": DEFAULT_MERGE_STRATEGY if config.is_event_time else COMMIT_TIME_STRATEGY,
    }


def _key_generator(config: TableConfig) -> str:
    return config.key_generator or default_generator(config.record_key_fields, config.partition_fields).class_name


def _payload(config: TableConfig) -> str:
    return EVENT_TIME_PAYLOAD if config.is_event_time else COMMIT_TIME_PAYLOAD


def _extractor(config: TableConfig) -> str:
    """The class with which a catalog reads partition values from a path. Hudi infers it from the partition fields."""
    if not config.partition_fields:
        return "NonPartitionedExtractor"
    if len(config.partition_fields) > 1:
        return "MultiPartKeysValueExtractor"
    return "HiveStylePartitionValueExtractor" if config.hive_style else "SinglePartPartitionValueExtractor"


def _text(value: bool) -> str:
    return "true" if value else "false"
