"""The job's table: an existing one that is checked against the options, or a new one that is made from them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tagstream.state.checkpoint import same_stream
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
from tagstream.table.keys.generators import GENERATORS
from tagstream.table.keys.time_partition import PREFIX, TimePartition
from tagstream.table.locks.lock import TableLock
from tagstream.table.locks.opened import open_table_lock
from tagstream.table.meta_client.hoodie_table import HoodieTable, check_new
from tagstream.table.meta_client.properties import (
    CHECKSUM_KEY,
    PROPERTIES_FILE,
    fields_with_kinds,
    has_kinds,
    new_properties,
    replace_properties,
    update_properties,
)
from tagstream.table.meta_client.table_config import (
    CDC_KEY,
    CDC_MODE_KEY,
    DROP_KEY,
    MERGE_MODE_KEY,
    MergeMode,
    TableConfig,
)
from tagstream.table.schema.conform import alike
from tagstream.table.services.options import TTL_KEY
from tagstream.table.services.upgrade import upgrade
from tagstream.table.storage.opening import open_storage, same_place
from tagstream.table.storage.storage import META_FOLDER, Storage
from tagstream.table.timeline import lease as leases
from tagstream.table.timeline.job_leases import Share
from tagstream.table.timeline.lease import LeaseOwner

_VERSION, _MODE = "hoodie.write.table.version", "hoodie.write.record.merge.mode"
LOG = logging.getLogger("tagstream")
LEASE_MS = 60_000


@dataclass(frozen=True)
class PlannedTable:
    """The job's table as it is, or as it would be made (``new``).

    ``changes``: the properties of a table without commits that the job would replace, as text. ``table`` has the new
    ones.
    """

    table: HoodieTable
    new: bool = False
    changes: str | None = None


def planned_table(options: Options) -> PlannedTable:
    """The table that a start would use. Nothing is made. ConfigError or TableError where it cannot be used."""
    storage = open_storage(options.table.base_path)
    try:
        table = HoodieTable.open(storage)
    except TableNotFoundError:
        if options.run.bootstrap_only:
            raise
        if not _is_empty(storage):
            if storage.exists(PROPERTIES_FILE):  # another stream has just made it
                return planned_table(options)
            raise TableNotFoundError(
                f"{storage.root} has files but is not a Hudi table (.hoodie/hoodie.properties is missing); "
                "set --target-base-path to the folder of a table, or to an empty or new folder"
            ) from None
        return PlannedTable(HoodieTable(storage, new_config(options)), new=True)
    if not options.run.bootstrap_only and _may_be_made_anew(options, table):
        config = new_config(options)
        changes = _changes(table.config, config)
        if changes:
            return PlannedTable(HoodieTable(storage, config), changes=changes)
    check_options(options, table.config)
    return PlannedTable(table)


def _is_empty(storage: Storage) -> bool:
    """Whether a folder has nothing, or only what another stream writes first when it makes the table."""
    begun = [name for name in storage.names("") if name != META_FOLDER]
    return not begun and all(name.startswith(".") for name in storage.names(META_FOLDER))


def open_or_create(options: Options, now_ms: int) -> HoodieTable:
    """Open the table at ``--target-base-path``, or create it. ConfigError or TableError where it cannot be used.

    A table without commits gets the job's properties, while the job holds the writer lease: no writer has used the old
    ones.
    """
    planned = planned_table(options)
    if planned.new:
        try:
            return HoodieTable.create(planned.table.storage, planned.table.config, now_ms)
        except TableConfigMismatchError:  # another stream has just made it
            planned = planned_table(options)
    if planned.changes is None:
        return _with_change_logging(options, _upgraded(options, planned.table, now_ms), now_ms)
    storage = planned.table.storage
    lease = leases.acquire(storage, LeaseOwner.this_process("new properties"), now_ms, LEASE_MS)
    try:
        planned = planned_table(options)
        if planned.changes is not None:
            replace_properties(storage, new_properties(planned.table.config), now_ms)
            LOG.warning("table %s has no commit yet and gets the job's properties: %s", storage.root, planned.changes)
    finally:
        leases.release(storage, lease)
    return HoodieTable.open(storage)


def wants_upgrade(options: Options, table: HoodieTable) -> bool:
    """Whether the job upgrades the table: the options name a higher version than the table's."""
    named = _VERSION in options.explicit and options.table.auto_upgrade and not options.run.bootstrap_only
    return named and table.config.version < options.table.version


def upgraded_fields(options: Options, table: HoodieTable) -> str | None:
    """The partition fields with their kinds, which an upgrade adds where the table's version lacks them; None: no
    change.
    """
    config = table.config
    if config.table_version.partition_kinds or not has_kinds(config, options.table.version):
        return None
    return ",".join(fields_with_kinds(config.partition_fields, options.table.time_fields))


def _upgraded(options: Options, table: HoodieTable, now_ms: int) -> HoodieTable:
    """Upgrade the table to the version that the user named, while the job holds the writer lease."""
    if not wants_upgrade(options, table):
        return table
    lease = leases.acquire(table.storage, LeaseOwner.this_process("table upgrade"), now_ms, LEASE_MS)
    try:
        fields = upgraded_fields(options, table)
        done = upgrade(
            table, options.table.version, lambda: now_ms, lambda: _held(table, lease), partition_fields=fields
        )
        LOG.warning(
            "table %s was upgraded from version %s to %s (hoodie.write.table.version); set the same version for its other "
            "writers",
            table.base_path,
            done.before,
            done.after,
        )
    finally:
        leases.release(table.storage, lease)
    return table.reload()


def turns_on_changes(options: Options, table: HoodieTable) -> str | None:
    """What a start says of change data capture that it turns on; None where the table has it, or is not to get it."""
    if not options.table.logs_changes or options.run.bootstrap_only or table.config.change_logging is not None:
        return None
    done = table.timeline().completed_writes
    newest = max((instant.completion_time or instant.time for instant in done), default=None)
    since = (
        f"its change stream begins after {newest}: changes can be read since this time"
        if newest
        else "it has no commit"
    )
    alone = ""
    if newest and table.config.is_merge_on_read:
        alone = "; Hudi cannot read the changes of file groups without a base file, so compact the table first if it has any"
    return f"table {table.base_path} gets {CDC_KEY}=true with {options.table.logging_mode}: {since}{alone}"


def _with_change_logging(options: Options, table: HoodieTable, now_ms: int) -> HoodieTable:
    """Turn on change data capture if the options ask for it, while the job holds the writer lease."""
    if turns_on_changes(options, table) is None:
        return table
    lease = leases.acquire(table.storage, LeaseOwner.this_process("change data capture"), now_ms, LEASE_MS)
    try:
        if turns_on_changes(options, table.reload()) is not None:
            changed = {CDC_KEY: "true", CDC_MODE_KEY: options.table.logging_mode.value}
            update_properties(table.storage, changed, now_ms)  # a start's warnings say so
    finally:
        leases.release(table.storage, lease)
    return table.reload()


def _held(table: HoodieTable, lease: leases.Lease) -> None:
    leases.check(table.storage, lease)


def _may_be_made_anew(options: Options, table: HoodieTable) -> bool:
    """Whether the table is empty, was made by a job like this one, and the options have all that a new table needs.

    A table that was made with a schema (by Hudi's SQL) was described on purpose, and the job must match it.
    """
    config = table.config
    described = config.create_schema is not None or config.version != options.table.version
    if described or not (options.table.name and options.table.record_key_fields and has_given_schema(options)):
        return False
    storage = table.storage
    return (
        table.timeline().newest is None
        and not storage.names(f"{META_FOLDER}/archived")
        and set(storage.names("")) <= {META_FOLDER}
    )


def _changes(have: TableConfig, wanted: TableConfig) -> str:
    """The properties that differ, as text; empty when they are equal."""
    before, after = ({k: v for k, v in new_properties(config).items() if v} for config in (have, wanted))
    before |= {name: have.raw[name] for name in after if name in have.raw}
    names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name) and name != CHECKSUM_KEY)
    return ", ".join(f"{name}={after.get(name, '(none)')} (was {before.get(name, 'none')})" for name in names)


def new_config(options: Options) -> TableConfig:
    """The properties of the table to create. ConfigError when options are missing or do not fit."""
    missing = [
        name
        for name, value in (
            ("--target-table (hoodie.table.name)", options.table.name),
            ("hoodie.datasource.write.recordkey.field", options.table.record_key_fields),
            (
                "hoodie.streamer.schemaprovider.source.schema.file",
                has_given_schema(options) or waits_for_records(options),
            ),
        )
        if not value
    ]
    if missing:
        raise ConfigError(f"no table exists at {options.table.base_path} yet; to create it, set {', '.join(missing)}")
    assert options.table.name is not None
    config = TableConfig(
        name=options.table.name,
        database=options.table.database or "",
        table_type=options.table.type,
        version=options.table.version,
        record_key_fields=options.table.record_key_fields,
        partition_fields=options.table.partition_fields,
        time_fields=options.table.time_fields,
        times=options.table.times if options.table.time_fields else None,
        ordering_fields=options.table.ordering_fields,
        key_generator=GENERATORS[options.table.key_generator].class_name,
        hive_style=options.table.hive_style,
        url_encode=options.table.url_encode,
        drops_partition_columns=options.table.drop_partition_columns,
        merge_mode=MergeMode.EVENT_TIME if options.table.ordering_fields else MergeMode.COMMIT_TIME,
        change_logging=options.table.change_logging,
    )
    if len(config.ordering_fields) > 1 and not config.table_version.several_ordering_fields:
        raise ConfigError(
            f"several ordering fields ({', '.join(config.ordering_fields)}, "
            f"{options.origin('hoodie.table.ordering.fields')}), which tables of version {config.version} do not support: "
            "set hoodie.write.table.version=8 or 9, or name only one field"
        )
    check_new(config)
    _check_ttl(options, config)
    if waits_for_records(options):
        return config
    schema = read_schema_file(options)[0]  # create a table only when its schema can be used
    twins = alike(schema)
    if twins is not None:
        raise ConfigError(
            f"{given_name(options)} has the columns {twins[0]!r} and {twins[1]!r}, which differ only in upper and lower "
            "case, and engines treat them as the same column; rename one of them"
        )
    check_fields(schema, config, options)
    check_dropped(schema, config, options)
    check_ordering(schema, config)
    return config


def check_options(options: Options, config: TableConfig) -> None:
    """TableConfigMismatchError where a setting that the user gave differs from the table's."""
    given: tuple[tuple[str, object, object], ...] = (
        ("hoodie.table.name", options.table.name, config.name),
        ("hoodie.datasource.write.table.type", options.table.type, config.table_type),
        ("hoodie.datasource.write.recordkey.field", options.table.record_key_fields, config.record_key_fields),
        ("hoodie.datasource.write.partitionpath.field", options.table.partition_fields, config.partition_fields),
        ("hoodie.table.ordering.fields", options.table.ordering_fields, config.ordering_fields),
        ("hoodie.datasource.write.hive_style_partitioning", options.table.hive_style, config.hive_style),
        ("hoodie.datasource.write.partitionpath.urlencode", options.table.url_encode, config.url_encode),
        (DROP_KEY, options.table.drop_partition_columns, config.drops_partition_columns),
    )
    if config.change_logging is not None:
        given += (
            (CDC_KEY, options.table.logs_changes, True),
            (CDC_MODE_KEY, options.table.logging_mode, config.change_logging),
        )
    for key, asked, have in given:
        if options.is_set(key) and asked != have:
            raise TableConfigMismatchError(
                f"table {options.table.base_path} has {key}={_show(have)}, but the job has {_show(asked)} "
                f"({options.origin(key)}); remove the option, or set another --target-base-path"
            )
    mode = config.raw.get(MERGE_MODE_KEY)
    if options.is_set(_MODE) and mode in list(MergeMode) and mode != options.table.merge_mode:
        raise TableConfigMismatchError(
            f"table {options.table.base_path} has {MERGE_MODE_KEY}={mode}, but the job has {options.table.merge_mode} "
            f"({options.origin(_MODE)}); remove the option"
        )
    if (
        options.is_set(_MODE)
        and mode is None
        and config.raw
        and options.table.merge_mode == MergeMode.COMMIT_TIME
        and config.deciding_fields
    ):
        raise TableConfigMismatchError(
            f"table {options.table.base_path} of version {config.version} has the ordering field "
            f"{', '.join(config.deciding_fields)} and no merge mode, so the newer event wins; but the job has "
            f"{options.table.merge_mode} ({options.origin(_MODE)}): remove the option"
        )
    if options.table.times is not None and config.times is not None and options.table.times != config.times:
        raise TableConfigMismatchError(
            f"table {options.table.base_path} makes partition paths of times by {_time_rules_text(config.times)}, "
            f"but the job has {_time_rules_text(options.table.times)}; remove the keys {PREFIX}*, or set another "
            "--target-base-path"
        )
    _check_ttl(options, config)
    generator = GENERATORS[options.table.key_generator].class_name
    chosen = any(options.is_set(f"hoodie.datasource.write.keygenerator.{x}") for x in ("type", "class"))
    if chosen and config.key_generator and config.key_generator != generator:
        raise TableConfigMismatchError(
            f"table {options.table.base_path} uses key generator {config.key_generator}, but the job has {generator}; "
            "with another key generator every key would be new: remove the option"
        )


def _check_ttl(options: Options, config: TableConfig) -> None:
    if options.services.ttl is not None and not config.partition_fields:
        raise ConfigError(
            f"{options.origin(TTL_KEY)}: table {options.table.base_path} has no partitions, so none can expire; remove "
            f"{TTL_KEY}"
        )


def _time_rules_text(times: TimePartition) -> str:
    return ", ".join(f"{key}={value}" for key, value in times.properties.items())


def _show(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def share_of(options: Options, lock: TableLock) -> Share | None:
    """What the job's lease says of it where it shares the table with other streams; None where it takes no lock."""
    if lock.place is None:
        return None
    checkpoint = open_storage(options.run.checkpoint_dir).root
    return Share(
        options.stream_id or f"the stream of {checkpoint}",
        checkpoint,
        lock.place,
        not options.lock.excludes_processes,
        same_stream,
        same_place,
    )


def table_lock(
    options: Options, table: HoodieTable, clock_ms: Callable[[], int], env: Mapping[str, str] = os.environ
) -> TableLock:
    """The lock that other writers of the table take, too; one for this process where the options name none.

    Nothing is connected yet. ConfigError for a missing package, or a provider that does not fit the table's storage.
    """
    return open_table_lock(
        options.lock,
        table.config.name,
        options.table.base_path,
        table.storage,
        who=f"stream {options.stream_id}",
        clock_ms=clock_ms,
        env=env,
    )
