"""The job's table: opened and held against the options, or made from them."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tagstream.streaming.job.column_checks import check_dropped
from tagstream.streaming.job.schema_match import (
    check_fields,
    check_ordering,
    given_name,
    has_given_schema,
    read_schema_file,
    waits_for_records,
)
from tagstream.streaming.options.options import Options
from tagstream.table.errors import ConfigError, TableConfigMismatchError, TableNotFoundError
from tagstream.table.keys.time_partition import PREFIX, TimePartition
from tagstream.table.meta_client.hoodie_table import HoodieTable, check_new
from tagstream.table.meta_client.properties import (
    CHECKSUM_KEY,
    fields_with_kinds,
    has_kinds,
    new_properties,
    replace_properties,
)
from tagstream.table.meta_client.table_config import DROP_KEY, KEYGEN_PACKAGE, MERGE_MODE_KEY, MergeMode, TableConfig
from tagstream.table.schema.conform import alike
from tagstream.table.services.upgrade import upgrade
from tagstream.table.storage.opening import open_storage
from tagstream.table.storage.storage import META_FOLDER
from tagstream.table.timeline import lease as leases
from tagstream.table.timeline.lease import LeaseOwner

_VERSION, _MODE = "hoodie.write.table.version", "hoodie.write.record.merge.mode"
LOG = logging.getLogger("tagstream")
LEASE_MS = 60_000

GENERATOR_CLASSES = {
    "SIMPLE": "SimpleKeyGenerator",
    "COMPLEX": "ComplexKeyGenerator",
    "NON_PARTITION": "NonpartitionedKeyGenerator",
    "TIMESTAMP": "TimestampBasedKeyGenerator",
    "CUSTOM": "CustomKeyGenerator",
}


@dataclass(frozen=True)
class PlannedTable:
    """The job's table as it is, or as it would be: ``new`` where there is none yet.

    ``changes`` says which properties of a table without commits the job would replace; ``table`` has them already.
    """

    table: HoodieTable
    new: bool = False
    changes: str | None = None


def planned_table(options: Options) -> PlannedTable:
    """What a start would work on, and nothing is made; ConfigError or TableError say what is wrong."""
    storage = open_storage(options.target_base_path)
    try:
        table = HoodieTable.open(storage)
    except TableNotFoundError:
        if options.bootstrap_only:
            raise
        if storage.names(""):
            raise TableNotFoundError(
                f"{storage.root} holds files but no Hudi table (.hoodie/hoodie.properties is missing); "
                "give the folder of a table, or an empty or new one"
            ) from None
        return PlannedTable(HoodieTable(storage, new_config(options)), new=True)
    if not options.bootstrap_only and _may_be_made_anew(options, table):
        config = new_config(options)
        changes = _changes(table.config, config)
        if changes:
            return PlannedTable(HoodieTable(storage, config), changes=changes)
    check_options(options, table.config)
    return PlannedTable(table)


def open_or_create(options: Options, now_ms: int) -> HoodieTable:
    """The table at ``--target-base-path``; a new one where there is none. ConfigError or TableError say what is wrong.

    A table without commits is given the job's properties, with the writer lease held: nobody has written by the old ones.
    """
    planned = planned_table(options)
    if planned.new:
        return HoodieTable.create(planned.table.storage, planned.table.config, now_ms)
    if planned.changes is None:
        return _upgraded(options, planned.table, now_ms)
    storage = planned.table.storage
    lease = leases.acquire(storage, LeaseOwner.this_process("new properties"), now_ms, LEASE_MS)
    try:
        planned = planned_table(options)
        if planned.changes is not None:
            replace_properties(storage, new_properties(planned.table.config), now_ms)
            LOG.warning("table %s has no commit yet and takes the job's properties: %s", storage.root, planned.changes)
    finally:
        leases.release(storage, lease)
    return HoodieTable.open(storage)


def wants_upgrade(options: Options, table: HoodieTable) -> bool:
    """Whether the job is to bring the table to the version that it names: one that is higher than the table's own."""
    named = _VERSION in options.explicit and options.auto_upgrade and not options.bootstrap_only
    return named and table.config.version < options.table_version


def upgraded_fields(options: Options, table: HoodieTable) -> str | None:
    """The partition fields with their kinds that an upgrade gives a table whose version does not say them; None: its own."""
    config = table.config
    if config.table_version.partition_kinds or not has_kinds(config, options.table_version):
        return None
    return ",".join(fields_with_kinds(config.partition_fields, options.time_fields))


def _upgraded(options: Options, table: HoodieTable, now_ms: int) -> HoodieTable:
    """The table in the version that the user named, with the writer lease held meanwhile."""
    if not wants_upgrade(options, table):
        return table
    lease = leases.acquire(table.storage, LeaseOwner.this_process("table upgrade"), now_ms, LEASE_MS)
    try:
        fields = upgraded_fields(options, table)
        done = upgrade(
            table, options.table_version, lambda: now_ms, lambda: _held(table, lease), partition_fields=fields
        )
        LOG.warning(
            "table %s was brought from version %s to %s (hoodie.write.table.version); give its other writers the same",
            table.base_path,
            done.before,
            done.after,
        )
    finally:
        leases.release(table.storage, lease)
    return table.reload()


def _held(table: HoodieTable, lease: leases.Lease) -> None:
    leases.check(table.storage, lease)


def _may_be_made_anew(options: Options, table: HoodieTable) -> bool:
    """Whether a table holds nothing, was made by a job like this one, and the options have all that a new one needs.

    One that was made with a schema (by Hudi's SQL) was described on purpose: the job has to fit it.
    """
    config = table.config
    described = config.create_schema is not None or config.version != options.table_version
    if described or not (options.target_table and options.record_key_fields and has_given_schema(options)):
        return False
    storage = table.storage
    return (
        table.timeline().newest is None
        and not storage.names(f"{META_FOLDER}/archived")
        and set(storage.names("")) <= {META_FOLDER}
    )


def _changes(have: TableConfig, wanted: TableConfig) -> str:
    """The properties that differ, in words; empty when they are the same."""
    before, after = ({k: v for k, v in new_properties(config).items() if v} for config in (have, wanted))
    before |= {name: have.raw[name] for name in after if name in have.raw}
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name) and name != CHECKSUM_KEY)
    return ", ".join(f"{name}={after.get(name, '(none)')} (was {before.get(name, 'none')})" for name in names)


def new_config(options: Options) -> TableConfig:
    """The properties of the table that is to be made; ConfigError when the options do not say enough."""
    missing = [
        name
        for name, value in (
            ("--target-table (hoodie.table.name)", options.target_table),
            ("hoodie.datasource.write.recordkey.field", options.record_key_fields),
            (
                "hoodie.streamer.schemaprovider.source.schema.file",
                has_given_schema(options) or waits_for_records(options),
            ),
        )
        if not value
    ]
    if missing:
        raise ConfigError(f"there is no table at {options.target_base_path} yet; to make it give {', '.join(missing)}")
    assert options.target_table is not None
    config = TableConfig(
        name=options.target_table,
        database=options.database or "",
        table_type=options.table_type,
        version=options.table_version,
        record_key_fields=options.record_key_fields,
        partition_fields=options.partition_fields,
        time_fields=options.time_fields,
        times=options.times if options.time_fields else None,
        ordering_fields=options.ordering_fields,
        key_generator=KEYGEN_PACKAGE + GENERATOR_CLASSES[options.key_generator],
        hive_style=options.hive_style,
        url_encode=options.url_encode,
        drops_partition_columns=options.drop_partition_columns,
        merge_mode=MergeMode.EVENT_TIME if options.ordering_fields else MergeMode.COMMIT_TIME,
    )
    if len(config.ordering_fields) > 1 and not config.table_version.several_ordering_fields:
        raise ConfigError(
            f"several ordering fields ({', '.join(config.ordering_fields)}, "
            f"{options.origin('hoodie.table.ordering.fields')}), which tables of version {config.version} do not know: give "
            "hoodie.write.table.version=8 or 9, or name the one field that decides"
        )
    check_new(config)
    if waits_for_records(options):
        return config
    schema = read_schema_file(options)[0]  # a table is only made when its schema can be used
    twins = alike(schema)
    if twins is not None:
        raise ConfigError(
            f"{given_name(options)} has the columns {twins[0]!r} and {twins[1]!r}, which differ in their case alone, and "
            "engines take the two for one; give one of them another name"
        )
    check_fields(schema, config, options)
    check_dropped(schema, config, options)
    check_ordering(schema, config)
    return config


def check_options(options: Options, config: TableConfig) -> None:
    """Every setting the user gave must be the table's own."""
    given = (
        ("hoodie.table.name", options.target_table, config.name),
        ("hoodie.datasource.write.table.type", options.table_type, config.table_type),
        ("hoodie.datasource.write.recordkey.field", options.record_key_fields, config.record_key_fields),
        ("hoodie.datasource.write.partitionpath.field", options.partition_fields, config.partition_fields),
        ("hoodie.table.ordering.fields", options.ordering_fields, config.ordering_fields),
        ("hoodie.datasource.write.hive_style_partitioning", options.hive_style, config.hive_style),
        ("hoodie.datasource.write.partitionpath.urlencode", options.url_encode, config.url_encode),
        (DROP_KEY, options.drop_partition_columns, config.drops_partition_columns),
    )
    for key, asked, have in given:
        if options.is_set(key) and asked != have:
            raise TableConfigMismatchError(
                f"table {options.target_base_path} has {key}={_show(have)}, but the job says {_show(asked)} "
                f"({options.origin(key)}); remove the option, or give another --target-base-path"
            )
    told = config.raw.get(MERGE_MODE_KEY)
    if options.is_set(_MODE) and told in list(MergeMode) and told != options.merge_mode:
        raise TableConfigMismatchError(
            f"table {options.target_base_path} has {MERGE_MODE_KEY}={told}, but the job says {options.merge_mode} "
            f"({options.origin(_MODE)}); remove the option"
        )
    if (
        options.is_set(_MODE)
        and told is None
        and config.raw
        and options.merge_mode == MergeMode.COMMIT_TIME
        and config.deciding_fields
    ):
        raise TableConfigMismatchError(
            f"table {options.target_base_path} of version {config.version} has the ordering field "
            f"{', '.join(config.deciding_fields)} and no merge mode, so the newer event wins; the job says "
            f"{options.merge_mode} ({options.origin(_MODE)}): remove the option"
        )
    if options.times is not None and config.times is not None and options.times != config.times:
        raise TableConfigMismatchError(
            f"table {options.target_base_path} makes partition paths of times by {_told(config.times)}, the job says "
            f"{_told(options.times)}; remove the keys {PREFIX}*, or give another --target-base-path"
        )
    generator = KEYGEN_PACKAGE + GENERATOR_CLASSES[options.key_generator]
    chosen = any(options.is_set(f"hoodie.datasource.write.keygenerator.{x}") for x in ("type", "class"))
    if chosen and config.key_generator and config.key_generator != generator:
        raise TableConfigMismatchError(
            f"table {options.target_base_path} uses key generator {config.key_generator}, the job says {generator}; "
            "with another one every key would be new: remove the option"
        )


def _told(times: TimePartition) -> str:
    return ", ".join(f"{key}={value}" for key, value in times.properties.items())


def _show(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)
