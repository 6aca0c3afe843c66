"""Checks before records are read: the source can be reached, and the options fit the table.

The source is checked before Spark starts, because Spark takes seconds to start and reports such errors late and with
long texts.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import pyarrow as pa

from tagstream.streaming.errors import SourceError, SourcePlaceError
from tagstream.streaming.options.options import Options
from tagstream.streaming.options.record_options import OPERATION
from tagstream.streaming.options.table_options import NEW_ENCODING
from tagstream.streaming.source.decode.make_format import FormatRules
from tagstream.table.errors import ConfigError, TableConfigMismatchError, TableNotFoundError
from tagstream.table.fields import has_field, is_text, type_of
from tagstream.table.keys.generators import KeyKind, key_generator_type
from tagstream.table.keys.time_partition import NAMES, OLD_PREFIX, PREFIX, TimePartition
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import (
    MERGE_MODE_KEY,
    PAYLOAD_KEY,
    MergeMode,
    TableConfig,
)
from tagstream.table.metadata.hfile_writer import LONGEST_KEY
from tagstream.table.metadata.metadata_table import RECORD_INDEX_PARTITION
from tagstream.table.read.stored_keys import names_single_key
from tagstream.table.table_version import listed_versions
from tagstream.table.timeline.operation import WriteOperationType


def check_order(options: Options, config: TableConfig, reads: FormatRules) -> None:
    """ConfigError where records may come out of order, and nothing says which of two records is newer."""
    deletes = options.table.operation == WriteOperationType.DELETE
    if config.deciding_fields or deletes or (options.appends and not options.operation.combine):
        return  # or two records are never compared
    own = {"dfs": "files", "frame": "rows of a DataFrame"}.get(options.source.kind)
    if own == "files" and config.raw:
        return  # the table exists already, and files have an order (``order_notes``)
    if own is not None and reads.ordering_kind == "none":
        has_positions = options.records.format.encodes_bytes and options.source.frame_schema is None
        kept = has_positions and options.records.debezium_order != "arrival"
        if config.raw:
            said = (
                f"has {MERGE_MODE_KEY}={config.merge_mode.value}" if config.ordering_fields else "has no ordering field"
            )
            raise ConfigError(
                f"{own} have no order, and table {config.name} {said}: send the records as files or to a topic, where they "
                "count as they arrive, or write to a new table with hoodie.table.ordering.fields"
            )
        raise ConfigError(
            f"{own} have no order: set hoodie.table.ordering.fields (the field whose greater value is the newer event)"
            f"{', or hoodie.index.type=STATE, which stores the positions of the log' if kept else ''}"
        )
    # Only the state index has an order that is in no column.
    if options.run.replay_quarantine and (reads.ordering_kind == "none" or not options.index.is_state):
        raise ConfigError(
            "--replay-quarantine sends records that may be older than the table's rows by now, and here records count as "
            "they arrive: they would overwrite newer rows. Set hoodie.table.ordering.fields (the field whose greater value "
            "is the newer event); or list the records (tagstream quarantine list), and send those without a newer event to "
            "the topic yourself"
        )


def order_notes(options: Options, config: TableConfig, ordering: str, schema: pa.Schema) -> tuple[str, ...]:
    """Notes for the user about the order of events. ``ordering``: how the index stores it. ``schema``: the columns."""
    texts = [name for name in config.deciding_fields if has_field(schema, name) and is_text(type_of(schema, name))]
    if texts:
        return (
            f"ordering field {', '.join(texts)} is a text, and texts are compared character by character: '9' counts as "
            "newer than '10'. ISO 8601 times of one zone and one length are fine; for numbers use the type long",
        )
    if config.deciding_fields and config.merge_mode is MergeMode.COMMIT_TIME and config.raw:
        payload = config.payload_class.rsplit(".", 1)[-1] or "none"
        return (
            f"table {config.name} is of version {config.version} and its {PAYLOAD_KEY} is {payload}: Hudi's writers let a "
            f"late event replace a newer row; this job keeps the row with the greater {', '.join(config.deciding_fields)}",
        )
    if options.source.kind == "hudi":
        return _source_order_notes(options.incr.path or "", config)
    if config.deciding_fields or not config.raw:
        return ()
    notes = []
    if config.ordering_fields:
        notes.append(
            f"table {config.name} has {MERGE_MODE_KEY}={config.merge_mode.value}: of two events of a row the one that "
            f"arrives later wins, whatever the value of its ordering field {', '.join(config.ordering_fields)}"
        )
    if options.source.kind == "dfs" and ordering == "none":
        notes.append(
            f"no field orders the events of table {config.name}: files count in the order of their modification times (then "
            "of their paths), and lines in the order of their file; a file that appears later counts as newer"
        )
    return tuple(notes)


def _source_order_notes(path: str, config: TableConfig) -> tuple[str, ...]:
    """A note where the target orders rows by other fields than the source table."""
    try:
        source = HoodieTable.open(path).config
    except TableNotFoundError:  # the check of the source reports it
        return ()
    if not config.deciding_fields or source.deciding_fields == config.deciding_fields:
        return ()
    own = f"by {', '.join(source.deciding_fields)}" if source.deciding_fields else "by their commits"
    return (
        f"table {config.name} orders its rows by {', '.join(config.deciding_fields)}, and source table {path} orders them "
        f"{own}: a change whose value is less than the row's counts as late. Without an ordering field the order of the "
        "source's commits counts",
    )


def check_kinds(options: Options, config: TableConfig) -> None:
    """ConfigError for a table with the custom key generator whose properties lack the kinds of its partition fields, as
    in version 6, where the options lack them too.
    """
    told = config.raw.get("hoodie.table.partition.fields", "")
    lacks = (
        key_generator_type(config.key_generator) == KeyKind.CUSTOM and bool(config.partition_fields) and ":" not in told
    )
    if lacks and not options.is_set("hoodie.datasource.write.partitionpath.field"):
        kinds = ",".join(f"{name}:SIMPLE" for name in config.partition_fields)
        raise ConfigError(
            f"table {config.name} has the custom key generator, but not the kinds of its partition fields: set "
            f"hoodie.datasource.write.partitionpath.field, as {kinds} or with TIMESTAMP for a time"
        )


def check_columns(options: Options, schema: pa.Schema) -> None:
    """ConfigError for columns that the source's form cannot have, and without the column that marks the deletes of DMS."""
    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if options.files.form == "csv" and options.source.kind == "dfs" and not options.source.transformers and nested:
        raise ConfigError(
            f"column {nested[0]} has a nested type, and a field of CSV is one text; remove it from the schema, or write the "
            "files as Parquet, Avro or JSON"
        )
    if options.files.form == "csv" and not options.csv.header and options.source.schema_file is None:
        raise ConfigError(
            "CSV files without a header have their columns in the order of a schema: set "
            "hoodie.streamer.schemaprovider.source.schema.file, or hoodie.streamer.csv.header=true if they have one"
        )
    if options.records.dms_deletes and not options.source.transformers and OPERATION not in schema.names:
        raise ConfigError(
            f"the schema has no column {OPERATION}, whose D marks a delete with AWSDmsAvroPayload: add it to the schema "
            "file (hoodie.streamer.schemaprovider.source.schema.file), or remove the payload class"
        )


def partition_rules(options: Options, config: TableConfig) -> dict[str, Any]:
    """The time fields (``time_fields``) and their rules (``times``): those of the table, completed by the options.

    ConfigError where the two together are not enough. TableConfigMismatchError where they contradict each other.
    """
    fields = config.time_fields or options.table.time_fields
    if config.times is not None or not config.time_fields:
        return {"time_fields": fields, "times": config.times or options.table.times}
    own = {name: found for name in NAMES if (found := config.raw.get(PREFIX + name, config.raw.get(OLD_PREFIX + name)))}
    told = {PREFIX + name: value for name, value in own.items()}
    table = f"table {config.name} makes partition paths of the times in {', '.join(fields)}"
    for name, value in options.table.time_keys.items():
        if told.setdefault(PREFIX + name, value) != value:
            raise TableConfigMismatchError(
                f"{table}, with {PREFIX}{name}={own[name]}, but the job has {value} "
                f"({options.origin(PREFIX + name)}); remove the option"
            )
    try:
        return {"time_fields": fields, "times": TimePartition.from_properties(told)}
    except ConfigError as e:
        known = ", ".join(f"{PREFIX}{name}={value}" for name, value in own.items()) or "none of its keys"
        raise ConfigError(
            f"{table}, but its rules are not complete: {e}. The table's properties have {known}; set the missing ones for "
            "the job"
        ) from e


def longest_key(options: Options, config: TableConfig) -> int | None:
    """The most bytes of a record key that every index can store; None where there is no limit."""
    kept = options.metadata.record_index or RECORD_INDEX_PARTITION in config.metadata_partitions
    limits = [options.index.longest_key, LONGEST_KEY if kept else None]
    return min((limit for limit in limits if limit is not None), default=None)


def key_names_its_field(table: HoodieTable, options: Options) -> bool:
    """Whether a complex key of one field is ``field:value``: as in the table's rows, in a new table as the option says.

    ConfigError where the option contradicts the rows, and for version 9, where Hudi writes only the value.
    """
    rows, asked = names_single_key(table), options.table.new_key_encoding
    if asked is None:
        return rows or False
    config = table.config
    if key_generator_type(config.key_generator) == KeyKind.COMPLEX and len(config.record_key_fields) == 1:
        name = config.record_key_fields[0]
        if rows is not None and rows is asked:
            form = f"{name}:value" if rows else "only the value"
            raise ConfigError(
                f"{NEW_ENCODING} = {str(asked).lower()} ({options.origin(NEW_ENCODING)}): the rows of table {config.name} "
                f"have keys of the other form ({form}), so every key would be new; remove the option"
            )
        if not asked and config.table_version.key_alone:
            others = listed_versions(last="or", having=lambda version: not version.key_alone)
            raise ConfigError(
                f"{NEW_ENCODING} = false ({options.origin(NEW_ENCODING)}): a table of version {config.version} has keys "
                f"with only the value; remove the option, or use version {others}"
            )
    return not asked


CONNECT_S = 5.0
_ROOT, _TABLE = "hoodie.streamer.source.dfs.root", "hoodie.streamer.source.hoodieincr.path"


def check_source(options: Options) -> None:
    """SourceError when the folder or table does not exist, is not a folder or can't be read, or when no broker accepts
    a connection.
    """
    if options.source.kind == "kafka":
        _check_brokers(options.kafka.consumer["kafka.bootstrap.servers"])
        return
    if options.source.kind == "frame":
        return
    if options.source.kind == "hudi":
        _check_table(options.incr.path or "")
        return
    root = options.files.root or ""
    if "://" in root:
        return
    if not os.path.exists(root):
        raise SourceError(f"source folder {root} does not exist; correct {_ROOT}")
    if not os.path.isdir(root):
        raise SourcePlaceError(f"source folder {root} is a file; set {_ROOT} to the folder of the file")
    if not os.access(root, os.R_OK | os.X_OK):
        raise SourcePlaceError(
            f"user {os.geteuid()} can't read source folder {root}; give it access, or correct {_ROOT}"
        )


def _check_table(path: str) -> None:
    try:
        HoodieTable.open(path)
    except TableNotFoundError as e:
        raise SourceError(f"source table {path} does not exist; correct {_TABLE}, or start when it exists ({e})") from e


def _check_brokers(servers: str) -> None:
    failures = []
    for server in (s.strip() for s in servers.split(",") if s.strip()):
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal():
            failures.append(f"{server} (it has no port: write for example {server.strip(':')}:9092)")
            continue
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S):
                return
        except OSError as e:
            failures.append(f"{server} ({e})")
    raise SourceError(
        f"no Kafka broker answers: {', '.join(failures)}; check bootstrap.servers, that the broker runs, and the network"
    )
