"""The properties that a new table gets, by table version: what Hudi's own engine of that version writes and needs.

Version 6 names classes of Java code (key generator, payload). Version 8 names kinds (key generator type, merge mode) and
still the payload; version 9 has the merge mode alone, and ``ordering.fields`` where the others have ``precombine.field``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tagstream.table.meta_client.properties import CHECKSUM_KEY, table_checksum
from tagstream.table.meta_client.table_config import (
    COMMIT_TIME_PAYLOAD,
    DEFAULT_MERGE_STRATEGY,
    DROP_KEY,
    EVENT_TIME_PAYLOAD,
    PAYLOAD_KEY,
    MergeMode,
    TableConfig,
    default_key_generator,
    key_generator_type,
)
from tagstream.table.table_version import TableVersion

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
    """Whether a table of that version names a kind behind each partition field: the custom key generator's, from 8 on."""
    return TableVersion.of(version).partition_kinds and key_generator_type(_key_generator(config)) == "CUSTOM"


def fields_with_kinds(names: Iterable[str], timed: Collection[str]) -> list[str]:
    """Partition fields with their kinds; ``timed``: those whose paths are made of times."""
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
        "hoodie.table.cdc.enabled": "false",
        "hoodie.partition.metafile.use.base.format": "false",
    }
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
    return config.key_generator or default_key_generator(config.record_key_fields, config.partition_fields)


def _payload(config: TableConfig) -> str:
    return EVENT_TIME_PAYLOAD if config.is_event_time else COMMIT_TIME_PAYLOAD


def _extractor(config: TableConfig) -> str:
    """What tells a catalog the partition's values from its path; Hudi infers it from the partition fields."""
    if not config.partition_fields:
        return "NonPartitionedExtractor"
    if len(config.partition_fields) > 1:
        return "MultiPartKeysValueExtractor"
    return "HiveStylePartitionValueExtractor" if config.hive_style else "SinglePartPartitionValueExtractor"


def _text(value: bool) -> str:
    return "true" if value else "false"
