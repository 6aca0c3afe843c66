"""The schema that a stream writes: the schema file's, held against the table's."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tagstream.streaming.options.options import Options
from tagstream.streaming.source.decode.formats.registry import USER_INFO_ENV, RegistryPlace, SchemaRegistry
from tagstream.streaming.source.decode.formats.schema_names import table_schema
from tagstream.streaming.source.decode.typed.row_schema import in_table_types
from tagstream.table.errors import ConfigError, UnsupportedTableError
from tagstream.table.file_group.log.ordering_wrapper import DECIMAL_DIGITS
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import TableConfig
from tagstream.table.schema.avro_defaults import keep_defaults
from tagstream.table.schema.schema import arrow_to_avro, avro_json, avro_to_arrow


def stream_schema(options: Options, table: HoodieTable) -> tuple[str, str]:
    """The user columns to write as the table's Avro JSON (no meta columns), and the Avro JSON that has the defaults.

    The schema file, where one is given, must have the table's columns with their types; new nullable columns may
    follow. A nullable column that only the table has (another writer added it) stays, and is null in the rows that the
    stream writes. Without a file the table's own schema is used.
    """
    text = table.schema_json()
    own = None if text is None else avro_to_arrow(text)
    if not has_given_schema(options):
        if own is None:
            raise ConfigError(
                f"table {options.target_base_path} has no schema yet; give "
                "hoodie.streamer.schemaprovider.source.schema.file"
            )
        assert text is not None
        if not options.bootstrap_only:
            check_ordering(own, table.config)
        return text, text
    schema, file_text = read_schema_file(options)
    check_fields(schema, table.config, options)
    if not options.bootstrap_only:
        check_ordering(schema, table.config)
    if own is not None:
        if options.frame_schema is not None:
            mark = options.records.delete_field
            if mark in own.names and mark not in schema.names:  # it marks deletes, and this table keeps it
                schema = schema.append(own.field(mark))
            schema = in_table_types(schema, own)
        _check_evolution(own, schema, given_name(options))
        added = [f for f in schema if f.name not in own.names]
        schema = pa.schema([*(schema.field(f.name) if f.name in schema.names else f for f in own), *added])
    written = arrow_to_avro(schema, table.config.name)
    return avro_json(keep_defaults(written, file_text, *([] if text is None else [text]))), file_text


def columns_left_null(options: Options, avro_json: str) -> tuple[str, ...]:
    """Columns of the table that the schema file does not have: null in every row that the stream writes."""
    if not has_given_schema(options):
        return ()
    known = read_schema_file(options)[0].names
    return tuple(name for name in avro_to_arrow(avro_json).names if name not in known)


def has_given_schema(options: Options) -> bool:
    """Whether a schema is given beside the table's own: by a file, a DataFrame, or the registry of a format in Avro."""
    given = options.schema_file or options.frame_schema or options.records.registry_url
    return given is not None


def given_name(options: Options) -> str:
    """What the given schema is called in messages."""
    if options.frame_schema is not None:
        return "the DataFrame" if options.source_class == "frame" else "the transformed records"
    return options.schema_file or f"the registry's subject {options.records.registry_subject}"


def read_schema_file(options: Options) -> tuple[pa.Schema, str]:
    """Arrow schema and text of the Avro schema that is given; ConfigError when it can't be used."""
    name = given_name(options)
    try:
        text = _given_text(options)
        if options.records.format not in ("json", "rows"):
            text = table_schema(text)
        schema = avro_to_arrow(text)
        arrow_to_avro(schema, "t")  # what it reads may have no form in a table
        return schema, text
    except OSError as e:
        raise ConfigError(
            f"schema file {name}: {e.strerror}; check hoodie.streamer.schemaprovider.source.schema.file"
        ) from e
    except (ValueError, UnsupportedTableError) as e:
        raise ConfigError(f"schema file {name} can't be used: {e}") from e


def _given_text(options: Options) -> str:
    if options.frame_schema is not None:
        return options.frame_schema
    if options.schema_file is not None:
        return Path(options.schema_file.removeprefix("file://")).read_text(encoding="utf-8")
    records = options.records
    assert records.registry_url is not None
    place = RegistryPlace(records.registry_url, records.registry_ca_file)
    env = {USER_INFO_ENV: records.registry_user_info} if records.registry_user_info else {}
    return SchemaRegistry(place, env).latest(records.registry_subject)


def check_fields(schema: pa.Schema, config: TableConfig, options: Options) -> None:
    """ConfigError for a field of the table's description that is no column."""
    for role, names in (
        ("record key", config.record_key_fields),
        ("partition path", config.partition_fields),
        ("ordering", config.ordering_fields),
    ):
        for name in names:
            if name not in schema.names:
                raise ConfigError(
                    f"{role} field {name!r} is no column of {given_name(options)}; its columns are "
                    f"{', '.join(schema.names)}"
                )


def check_ordering(schema: pa.Schema, config: TableConfig) -> None:
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
                f"{source}: column {field.name!r} is {_avro(new.field(field.name))}, in the table it is {_avro(field)}; "
                "this version does not change a column's type: keep it, or give the new type to a column of another name"
            )
    for field in new:
        if field.name not in own.names and not field.nullable:
            raise ConfigError(
                f"{source}: the new column {field.name!r} must be nullable, for older rows have no value (a default is for "
                f'records only): give it the type ["null", "{_avro(field)}"] with the default null'
            )


def _avro(field: pa.Field) -> str:
    """A column's type as a schema file says it."""
    avro = arrow_to_avro(pa.schema([pa.field("c", field.type, nullable=False)]), "t")["fields"][0]["type"]
    if isinstance(avro, dict):
        name = avro.get("logicalType") or avro["type"]
        size = f"({avro['precision']}, {avro['scale']})" if name == "decimal" else ""
        return f"{name}{size}"
    return str(avro)
