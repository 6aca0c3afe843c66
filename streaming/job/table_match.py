"""The job's table: opened and held against the options, or made from them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tagstream.streaming.options.options import Options
from tagstream.table.errors import ConfigError, TableConfigMismatchError, TableNotFoundError, UnsupportedTableError
from tagstream.table.file_group.log.ordering_wrapper import DECIMAL_DIGITS
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import KEYGEN_PACKAGE, MergeMode, TableConfig
from tagstream.table.schema.schema import arrow_to_avro, avro_json, avro_to_arrow
from tagstream.table.storage.opening import open_storage

GENERATOR_CLASSES = {
    "SIMPLE": "SimpleKeyGenerator",
    "COMPLEX": "ComplexKeyGenerator",
    "NON_PARTITION": "NonpartitionedKeyGenerator",
}


def open_or_create(options: Options, now_ms: int) -> HoodieTable:
    """The table at ``--target-base-path``; a new one where there is none. ConfigError or TableError say what is wrong."""
    try:
        table = HoodieTable.open(options.target_base_path)
    except TableNotFoundError:
        return _create(options, now_ms)
    check_options(options, table.config)
    return table


def _create(options: Options, now_ms: int) -> HoodieTable:
    return HoodieTable.create(options.target_base_path, new_config(options), now_ms)


def new_config(options: Options) -> TableConfig:
    """The properties of the table that is to be made; ConfigError or TableError when it can't be."""
    storage = open_storage(options.target_base_path)
    if storage.names(""):
        raise TableNotFoundError(
            f"{storage.root} holds files but no Hudi table (.hoodie/hoodie.properties is missing); "
            "give the folder of a table, or an empty or new one"
        )
    missing = [
        name
        for name, value in (
            ("--target-table (hoodie.table.name)", options.target_table),
            ("hoodie.datasource.write.recordkey.field", options.record_key_fields),
            ("hoodie.streamer.schemaprovider.source.schema.file", options.schema_file),
        )
        if not value
    ]
    if missing:
        raise ConfigError(f"there is no table at {storage.root} yet; to make it give {', '.join(missing)}")
    assert options.target_table is not None
    config = TableConfig(
        name=options.target_table,
        database=options.database or "",
        table_type=options.table_type,
        record_key_fields=options.record_key_fields,
        partition_fields=options.partition_fields,
        ordering_fields=(options.ordering_field,) if options.ordering_field else (),
        key_generator=KEYGEN_PACKAGE + GENERATOR_CLASSES[options.key_generator],
        hive_style=options.hive_style,
        url_encode=options.url_encode,
        merge_mode=MergeMode.EVENT_TIME if options.ordering_field else MergeMode.COMMIT_TIME,
    )
    schema = read_schema_file(options)[0]  # a table is only made when its schema can be used
    _check_fields(schema, config, options)
    _check_ordering(schema, config)
    return config


def check_options(options: Options, config: TableConfig) -> None:
    """Every setting the user gave must be the table's own."""
    given = (
        ("hoodie.table.name", options.target_table, config.name),
        ("hoodie.datasource.write.table.type", options.table_type, config.table_type),
        ("hoodie.datasource.write.recordkey.field", options.record_key_fields, config.record_key_fields),
        ("hoodie.datasource.write.partitionpath.field", options.partition_fields, config.partition_fields),
        ("hoodie.table.ordering.fields", options.ordering_field, config.ordering_field),
        ("hoodie.datasource.write.hive_style_partitioning", options.hive_style, config.hive_style),
        ("hoodie.datasource.write.partitionpath.urlencode", options.url_encode, config.url_encode),
    )
    for key, asked, have in given:
        if options.is_set(key) and asked != have:
            raise TableConfigMismatchError(
                f"table {options.target_base_path} has {key}={_show(have)}, but the job says {_show(asked)} "
                f"({options.origin(key)}); remove the option, or give another --target-base-path"
            )
    generator = KEYGEN_PACKAGE + GENERATOR_CLASSES[options.key_generator]
    chosen = any(options.is_set(f"hoodie.datasource.write.keygenerator.{x}") for x in ("type", "class"))
    if chosen and config.key_generator and config.key_generator != generator:
        raise TableConfigMismatchError(
            f"table {options.target_base_path} uses key generator {config.key_generator}, the job says {generator}; "
            "with another one every key would be new: remove the option"
        )


def stream_schema(options: Options, table: HoodieTable) -> tuple[str, str]:
    """The user columns to write as the table's Avro JSON (no meta columns), and the Avro JSON that has the defaults.

    The schema file, where one is given, must have the table's columns with their types; new nullable columns may
    follow. A nullable column that only the table has (another writer added it) stays, and is null in the rows that the
    stream writes. Without a file the table's own schema is used.
    """
    text = table.schema_json()
    own = None if text is None else avro_to_arrow(text)
    if options.schema_file is None:
        if own is None:
            raise ConfigError(
                f"table {options.target_base_path} has no schema yet; give "
                "hoodie.streamer.schemaprovider.source.schema.file"
            )
        assert text is not None
        if not options.bootstrap_only:
            _check_ordering(own, table.config)
        return text, text
    schema, file_text = read_schema_file(options)
    _check_fields(schema, table.config, options)
    if not options.bootstrap_only:
        _check_ordering(schema, table.config)
    if own is not None:
        _check_evolution(own, schema, options.schema_file)
        added = [f for f in schema if f.name not in own.names]
        schema = pa.schema([*(schema.field(f.name) if f.name in schema.names else f for f in own), *added])
    return avro_json(arrow_to_avro(schema, table.config.name)), file_text


def columns_left_null(options: Options, avro_json: str) -> tuple[str, ...]:
    """Columns of the table that the schema file does not have: null in every row that the stream writes."""
    if options.schema_file is None:
        return ()
    known = read_schema_file(options)[0].names
    return tuple(name for name in avro_to_arrow(avro_json).names if name not in known)


def read_schema_file(options: Options) -> tuple[pa.Schema, str]:
    """Arrow schema and text of the Avro schema file; ConfigError when it can't be used."""
    path = Path((options.schema_file or "").removeprefix("file://"))
    try:
        text = path.read_text(encoding="utf-8")
        return avro_to_arrow(text), text
    except OSError as e:
        raise ConfigError(
            f"schema file {path}: {e.strerror}; check hoodie.streamer.schemaprovider.source.schema.file"
        ) from e
    except (ValueError, UnsupportedTableError) as e:
        raise ConfigError(f"schema file {path} can't be used: {e}") from e


def _check_fields(schema: pa.Schema, config: TableConfig, options: Options) -> None:
    for role, names in (
        ("record key", config.record_key_fields),
        ("partition path", config.partition_fields),
        ("ordering", config.ordering_fields),
    ):
        for name in names:
            if name not in schema.names:
                raise ConfigError(
                    f"{role} field {name!r} is no column of {options.schema_file}; its columns are "
                    f"{', '.join(schema.names)}"
                )


def _check_ordering(schema: pa.Schema, config: TableConfig) -> None:
    """ConfigError for an ordering field that no delete of a merge-on-read table can be written with."""
    for name in config.ordering_fields if config.is_merge_on_read else ():
        kind = schema.field(name).type if name in schema.names else None
        if kind is not None and pa.types.is_decimal(kind) and kind.scale > DECIMAL_DIGITS:
            raise ConfigError(
                f"ordering field {name!r} is {kind}, but deletes of a merge-on-read table hold a decimal with at most "
                f"{DECIMAL_DIGITS} digits after the point; give another ordering field, or make the table copy-on-write"
            )


def _check_evolution(own: pa.Schema, new: pa.Schema, source: str) -> None:
    for field in own:
        if field.name not in new.names:
            if field.nullable:
                continue
            raise ConfigError(f"{source} lacks the table's column {field.name!r}; add it (a column is never dropped)")
        if new.field(field.name).type != field.type:
            raise ConfigError(
                f"{source}: column {field.name!r} is {new.field(field.name).type}, in the table it is {field.type}; "
                "this version does not change a column's type"
            )
    for field in new:
        if field.name not in own.names and not field.nullable:
            raise ConfigError(f"{source}: the new column {field.name!r} must be nullable: older rows have no value")


def _show(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)
