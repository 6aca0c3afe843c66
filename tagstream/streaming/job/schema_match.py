"""The schema that a stream writes: the table's schema, changed by the given schema and by schemas of records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tagstream.streaming.job.column_checks import check_corrected, check_dropped, check_former
from tagstream.streaming.options.options import Options
from tagstream.streaming.options.record_options import OPERATION
from tagstream.streaming.source.decode.debezium_envelope import STREAMER_COLUMNS
from tagstream.streaming.source.decode.record_format import Noticed, avro_facts
from tagstream.streaming.source.decode.record_schemas import row_schema
from tagstream.streaming.source.decode.schema_names import renamed, table_schema, with_operation
from tagstream.streaming.source.decode.schema_registry import USER_INFO_ENV, RegistryPlace, SchemaRegistry
from tagstream.streaming.source.decode.typed_rows import in_table_types
from tagstream.table.errors import ConfigError, SchemaRefusedError, UnsupportedTableError
from tagstream.table.fields import has_field, type_of
from tagstream.table.file_group.ordering_wrapper import DECIMAL_DIGITS
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import DROP_KEY, TableConfig
from tagstream.table.schema.evolve import EvolutionRules, Missing, evolve
from tagstream.table.schema.record_schema import default_of, keep_defaults, record_schema
from tagstream.table.schema.schema import arrow_to_avro, avro_json, avro_to_arrow
from tagstream.table.storage.opening import is_supported


def stream_schema(options: Options, table: HoodieTable, noticed: Sequence[Noticed] = ()) -> tuple[str, str]:
    """The user columns to write as Avro JSON of the table (no meta columns), and the Avro JSON with the default values.

    It is the table's schema, changed by the given one (``table.schema.evolve``), if any, and by those of records
    (``noticed``). SchemaRefusedError for a change that is not possible, with its reason.
    """
    text = table.schema_json()
    dropped, own = table.config.dropped_fields, None
    if not has_given_schema(options):
        if text is None:
            raise ConfigError(
                f"table {options.table.base_path} has no schema yet; give "
                "hoodie.streamer.schemaprovider.source.schema.file"
            )
        _check_partition_types(options, table)
        given = text = record_schema(text, dropped)
        schema = own = avro_to_arrow(text)
        if not options.run.bootstrap_only:
            check_fields(schema, table.config, options)
    else:
        names = () if text is None else (*avro_to_arrow(text).names, *dropped)
        schema, given = read_schema_file(options, names)
        if text is not None:
            text = record_schema(text, dropped, schema)
            own = avro_to_arrow(text)
        check_fields(schema, table.config, options)
        if own is not None and options.source.frame_schema is not None:
            mark = options.records.delete_field
            if mark in own.names and mark not in schema.names:  # it marks deletes, and this table stores it
                schema = schema.append(own.field(mark))
            schema = in_table_types(schema, own)
        if own is not None:
            schema = evolve(own, schema, given_rules(options, table.config), given_name(options)).schema
            check_former(table, own, schema, given_name(options))
            check_corrected(table, own, schema)
    if not options.run.bootstrap_only:
        check_ordering(schema, table.config)
        check_dropped(schema, table.config, options)
    sources = [given, *([] if text is None else [text])]
    schema = _with_noticed(table, schema, noticed, record_rules(options, table.config, sources[::-1]))
    if text is not None and own is not None and schema.equals(own) and not has_given_schema(options):
        return text, text
    sources += [item.avro_json for item in noticed]
    written = avro_json(keep_defaults(arrow_to_avro(schema, table.config.name), *sources))
    return written, _with_columns(given, written)


def _check_partition_types(options: Options, table: HoodieTable) -> None:
    """ConfigError where partition columns are in no file and their types would come from records: these types would be
    lost.
    """
    if table.config.dropped_fields and brings_schema(options) and not options.run.bootstrap_only:
        raise ConfigError(
            f"table {table.config.name} leaves out its partition columns ({DROP_KEY}=true), so the types that records have "
            "for them are not stored: set hoodie.streamer.schemaprovider.source.schema.file"
        )


def _with_noticed(
    table: HoodieTable, schema: pa.Schema, noticed: Sequence[Noticed], rules: EvolutionRules
) -> pa.Schema:
    for item in noticed:
        try:
            incoming = row_schema(item.avro_json, schema.names, rules.aliases)
        except UnsupportedTableError as e:
            raise SchemaRefusedError(f"{item.source}: {e}; the table's schema is not changed") from e
        made = evolve(schema, incoming, rules, item.source).schema
        check_former(table, schema, made, item.source)
        schema = made
    return schema


def given_rules(options: Options, config: TableConfig) -> EvolutionRules:
    """The rules by which the given schema changes the table's.

    The types of a schema file apply where records have no schema. Where records have one, they may have widened the
    table since.
    """
    from_file = options.source.schema_file is not None and not options.records.format.brings_schema
    return EvolutionRules(
        roles=roles_of(config),
        missing=options.schema.missing,
        given=from_file,
        new_nullable=options.schema.new_nullable or options.source.schema_file is None,
        filled=frozenset(STREAMER_COLUMNS),
        corrected=options.schema.correct_times,
    )


def evolution_rules(options: Options, config: TableConfig, *defaults: str) -> EvolutionRules | None:
    """The rules by which schemas of records change the table's; None where they do not, or records have none."""
    if not (options.schema.by_records and options.records.format.brings_schema):
        return None
    return record_rules(options, config, defaults)


def record_rules(options: Options, config: TableConfig, defaults: Sequence[str] = ()) -> EvolutionRules:
    """The rules by which schemas of records change the table's. They never drop a column, since older records still
    have it.

    ``defaults``: Avro JSON with the default values of columns that records lack.
    """
    missing: Missing = "fail" if options.schema.missing == "fail" else "null"
    filled = {f["name"] for text in defaults for f in json.loads(text)["fields"] if default_of(f) is not None}
    known = avro_facts(defaults[-1]) if defaults else {}
    return EvolutionRules(
        roles=roles_of(config),
        missing=missing,
        filled=frozenset({*STREAMER_COLUMNS, *filled}),
        aliases={alias: column for column, facts in known.items() for alias in facts.aliases},
    )


def roles_of(config: TableConfig) -> dict[str, str]:
    """The role of each column, or field of a struct column, that the table's files and index depend on."""
    fields = (
        ("ordering", config.ordering_fields),
        ("partition path", config.partition_fields),
        ("record key", config.record_key_fields),
    )
    return {name: role for role, names in fields for name in names}


def columns_left_null(options: Options, avro_text: str) -> tuple[str, ...]:
    """Columns of the table that the schema file lacks. They are null in every row that the stream writes."""
    if not has_given_schema(options):
        return ()
    names = avro_to_arrow(avro_text).names
    known = read_schema_file(options, names)[0].names
    return tuple(name for name in names if name not in known)


def has_given_schema(options: Options) -> bool:
    """Whether a schema is given in addition to the table's: by a file, a DataFrame, the registry of an Avro format, or
    the first records for a table without one.
    """
    records = options.records.registry_url or options.source.first_schema
    return (options.source.schema_file or options.source.frame_schema or records) is not None


def brings_schema(options: Options) -> bool:
    """Whether no schema is given, and records of this format can contain theirs."""
    return options.records.format.has_schema and not has_given_schema(options)


def waits_for_records(options: Options) -> bool:
    """Whether a dry run cannot know the schema of a table without one, because it is in records that only Spark reads."""
    return options.run.dry_run and reads_by_spark(options) and brings_schema(options)


def reads_by_spark(options: Options) -> bool:
    """Whether only Spark can read the source: a topic, or files on a store that this program does not read itself."""
    if options.source.kind == "hudi":
        return False
    return options.source.kind == "kafka" or not is_supported(options.files.root or "")


def given_name(options: Options) -> str:
    """The name of the given schema in messages."""
    if options.source.frame_schema is not None:
        return "the DataFrame" if options.source.kind == "frame" else "the transformed records"
    if options.source.schema_file is None and options.source.first_schema is not None:
        return options.source.first_schema.source
    return options.source.schema_file or f"the registry's subject {options.records.registry_subject}"


def read_schema_file(options: Options, columns: Sequence[str] = ()) -> tuple[pa.Schema, str]:
    """Arrow schema and text of the given Avro schema. ConfigError when it can't be used.

    A field that is one of the table's ``columns`` by an alias gets that column's name in both.
    """
    name = given_name(options)
    if options.source.frame_schema is None and options.source.schema_file is not None:
        name = f"schema file {name}"
    try:
        text = with_dms_operation(_given_text(options), options)
        if options.records.format.source_types:
            text = table_schema(text)
        text = renamed(text, columns)
        schema = avro_to_arrow(text)
        arrow_to_avro(schema, "t")  # raises for a type that a table cannot store
        return schema, text
    except OSError as e:
        raise ConfigError(
            f"schema file {options.source.schema_file}: {e.strerror}; check "
            "hoodie.streamer.schemaprovider.source.schema.file"
        ) from e
    except (ValueError, UnsupportedTableError) as e:
        raise ConfigError(f"{name} can't be used: {e}") from e


def with_dms_operation(avro_json: str, options: Options) -> str:
    """The schema with the column of AWS DMS, if its payload or its transformer is named. ValueError for text that is not
    JSON.
    """
    records = options.records
    if not (records.dms_deletes or records.dms_operation) or options.source.frame_schema is not None:
        return avro_json
    return with_operation(avro_json, OPERATION, filled=records.dms_operation)


def schema_columns(options: Options) -> tuple[str, ...]:
    """The columns of the given schema in its order, for CSV files without a header; empty without a schema."""
    try:
        return tuple(avro_to_arrow(_given_text(options)).names) if options.source.schema_file is not None else ()
    except (OSError, ValueError, UnsupportedTableError):
        return ()  # the start reports it


def _given_text(options: Options) -> str:
    if options.source.frame_schema is not None:
        return options.source.frame_schema
    if options.source.schema_file is not None:
        return Path(options.source.schema_file.removeprefix("file://")).read_text(encoding="utf-8")
    if options.source.first_schema is not None:
        return options.source.first_schema.avro_json
    records = options.records
    assert records.registry_url is not None
    place = RegistryPlace(records.registry_url, records.registry_ca_file)
    env = {USER_INFO_ENV: records.registry_user_info} if records.registry_user_info else {}
    return SchemaRegistry(place, env).latest(records.registry_subject)


def _with_columns(given: str, written: str) -> str:
    """The given schema with the columns that only the written one has."""
    record = json.loads(given)
    known = {f["name"] for f in record["fields"]}
    more = [f for f in json.loads(written)["fields"] if f["name"] not in known]
    return json.dumps({**record, "fields": [*record["fields"], *more]}) if more else given


def check_fields(schema: pa.Schema, config: TableConfig, options: Options) -> None:
    """ConfigError for a field of the table's properties that is not a column, or is inside a struct where that is not
    possible.
    """
    for role, names in (
        ("record key", config.record_key_fields),
        ("partition path", config.partition_fields),
        ("ordering", config.ordering_fields),
    ):
        for name in names:
            if not has_field(schema, name):
                raise ConfigError(
                    f"{role} field {name!r} is not a column of {given_name(options)}; its columns are "
                    f"{', '.join(schema.names)}"
                )
            if name not in schema.names:
                _check_inside(role, name, options)


def _check_inside(role: str, name: str, options: Options) -> None:
    """ConfigError for a field inside a struct where records are rows of a database."""
    if options.records.format.rows_of_database and options.source.frame_schema is None:
        raise ConfigError(
            f"{role} field {name!r} is inside a struct, and records of {options.records.format.name} are rows of a "
            "database, whose keys are columns; name a column"
        )


def check_ordering(schema: pa.Schema, config: TableConfig) -> None:
    """ConfigError for an ordering field whose values a delete of a merge-on-read table cannot store."""
    for name in config.ordering_fields if config.is_merge_on_read else ():
        kind = type_of(schema, name) if has_field(schema, name) else None
        if kind is not None and pa.types.is_decimal(kind) and kind.scale > DECIMAL_DIGITS:
            raise ConfigError(
                f"ordering field {name!r} is {kind}, but deletes of a merge-on-read table store decimals with at most "
                f"{DECIMAL_DIGITS} digits after the point; use another ordering field, or make the table copy-on-write"
            )
