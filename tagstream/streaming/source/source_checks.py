"""What must be so before records are read: the source can be reached, and the options and the table fit together.

The source is checked before Spark starts: Spark takes seconds to start, and reports such things late and at
length.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import pyarrow as pa

from tagstream.streaming.errors import SourceError, SourcePlaceError
from tagstream.streaming.options.keys.table import NEW_ENCODING
from tagstream.streaming.options.options import Options
from tagstream.streaming.source.decode.make_format import FormatRules
from tagstream.table.errors import ConfigError, TableConfigMismatchError
from tagstream.table.fields import has_field, is_text, type_of
from tagstream.table.keys.time_partition import NAMES, OLD_PREFIX, PREFIX, TimePartition
from tagstream.table.meta_client.hoodie_table import HoodieTable
from tagstream.table.meta_client.table_config import (
    MERGE_MODE_KEY,
    PAYLOAD_KEY,
    MergeMode,
    TableConfig,
    key_generator_type,
)
from tagstream.table.metadata.hfile_writer import LONGEST_KEY
from tagstream.table.metadata.metadata_table import RECORD_INDEX_PARTITION
from tagstream.table.read.stored_keys import names_single_key
from tagstream.table.table_version import listed_versions


def check_order(options: Options, config: TableConfig, reads: FormatRules) -> None:
    """ConfigError where records come in another order than their own, and nothing tells an older one from a newer one."""
    if config.deciding_fields:
        return
    own = {"dfs": "files", "frame": "rows of a DataFrame"}.get(options.source_class)
    if own == "files" and config.raw:
        return  # the table is as it is, and files have an order (``order_notes``)
    if own is not None and reads.ordering_kind == "none":
        has_positions = options.records.format.encodes_bytes and options.frame_schema is None
        kept = has_positions and options.records.debezium_order != "arrival"
        if config.raw:
            said = (
                f"says {MERGE_MODE_KEY}={config.merge_mode.value}"
                if config.ordering_fields
                else "has no ordering field"
            )
            raise ConfigError(
                f"{own} have no order among each other, and table {config.name} {said}: send them by files or a topic, "
                "where they count as they arrive, or write into a new table with hoodie.table.ordering.fields"
            )
        raise ConfigError(
            f"{own} have no order among each other: give hoodie.table.ordering.fields (the field whose greater value is the "
            f"newer event){', or hoodie.index.type=STATE, which keeps the positions of the log' if kept else ''}"
        )
    # An order that no column has is known to the state index alone.
    if options.replay_quarantine and (reads.ordering_kind == "none" or not options.index.is_state):
        raise ConfigError(
            "--replay-quarantine sends records that are older than what the table may have by now, and here records count "
            "as they arrive: they would overwrite newer rows. Give hoodie.table.ordering.fields (the field whose greater "
            "value is the newer event); or look at the records (tagstream quarantine list), and send those that nothing "
            "newer follows to the topic yourself"
        )


def order_notes(options: Options, config: TableConfig, ordering: str, schema: pa.Schema) -> tuple[str, ...]:
    """What a person should know of the order of events. ``ordering``: how the index keeps it; ``schema``: the columns."""
    texts = [name for name in config.deciding_fields if has_field(schema, name) and is_text(type_of(schema, name))]
    if texts:
        return (
            f"ordering field {', '.join(texts)} is a text, and texts are compared letter by letter: '9' counts as newer "
            "than '10'. Times in ISO 8601 of one zone and one length are fine; for numbers give the column the type long",
        )
    if config.deciding_fields and config.merge_mode is MergeMode.COMMIT_TIME and config.raw:
        payload = config.payload_class.rsplit(".", 1)[-1] or "none"
        return (
            f"table {config.name} is of version {config.version} and its {PAYLOAD_KEY} is {payload}: Hudi's writers put a "
            f"late event over a newer row; this job keeps the row with the greater {', '.join(config.deciding_fields)}",
        )
    if config.deciding_fields or not config.raw:
        return ()
    notes = []
    if config.ordering_fields:
        notes.append(
            f"table {config.name} has {MERGE_MODE_KEY}={config.merge_mode.value}: of two events of a row the later one to "
            f"arrive wins, whatever its ordering field {', '.join(config.ordering_fields)} holds"
        )
    if options.source_class == "dfs" and ordering == "none":
        notes.append(
            f"no field orders the events of table {config.name}: files count in the order of their modification times (then "
            "of their paths), and lines in the order of their file; a file that appears later counts as newer"
        )
    return tuple(notes)


def check_kinds(options: Options, config: TableConfig) -> None:
    """ConfigError for a table of the custom key generator that has names of partition fields alone, as tables of version 6
    have, where the job does not say their kinds.
    """
    told = config.raw.get("hoodie.table.partition.fields", "")
    lacks = key_generator_type(config.key_generator) == "CUSTOM" and bool(config.partition_fields) and ":" not in told
    if lacks and not options.is_set("hoodie.datasource.write.partitionpath.field"):
        kinds = ",".join(f"{name}:SIMPLE" for name in config.partition_fields)
        raise ConfigError(
            f"table {config.name} has the custom key generator, and does not say of which kind its partition fields are: "
            f"give hoodie.datasource.write.partitionpath.field, as {kinds} or with TIMESTAMP for a time"
        )


def partition_rules(options: Options, config: TableConfig) -> dict[str, Any]:
    """The fields of times (``time_fields``) and their rules (``times``): the table's; what it does not say, the job may.

    ConfigError where the two together are not enough, or contradict each other.
    """
    fields = config.time_fields or options.time_fields
    if config.times is not None or not config.time_fields:
        return {"time_fields": fields, "times": config.times or options.times}
    own = {name: found for name in NAMES if (found := config.raw.get(PREFIX + name, config.raw.get(OLD_PREFIX + name)))}
    told = {PREFIX + name: value for name, value in own.items()}
    table = f"table {config.name} makes partition paths of the times in {', '.join(fields)}"
    for name, value in options.time_keys.items():
        if told.setdefault(PREFIX + name, value) != value:
            raise TableConfigMismatchError(
                f"{table}, with {PREFIX}{name}={own[name]}, and the job says {value} "
                f"({options.origin(PREFIX + name)}); remove the option"
            )
    try:
        return {"time_fields": fields, "times": TimePartition.from_properties(told)}
    except ConfigError as e:
        known = ", ".join(f"{PREFIX}{name}={value}" for name, value in own.items()) or "none of its keys"
        raise ConfigError(
            f"{table}, and they cannot be made: {e}. The table's properties have {known}; what they lack can be given to "
            "the job"
        ) from e


def longest_key(options: Options, config: TableConfig) -> int | None:
    """Bytes of a record key that every index of the keys can hold; None where there is no limit."""
    kept = options.metadata.record_index or RECORD_INDEX_PARTITION in config.metadata_partitions
    limits = [options.index.longest_key, LONGEST_KEY if kept else None]
    return min((limit for limit in limits if limit is not None), default=None)


def key_names_its_field(table: HoodieTable, options: Options) -> bool:
    """Whether a complex key of one field is ``field:value``: as the rows have it, in a new table as the job asks for.

    ConfigError for what the rows contradict, and for version 9, where Hudi writes the value alone.
    """
    rows, asked = names_single_key(table), options.new_key_encoding
    if asked is None:
        return rows or False
    config = table.config
    if "Complex" in config.key_generator and len(config.record_key_fields) == 1:
        name = config.record_key_fields[0]
        if rows is not None and rows is asked:
            form = f"{name}:value" if rows else "the value alone"
            raise ConfigError(
                f"{NEW_ENCODING} = {str(asked).lower()} ({options.origin(NEW_ENCODING)}): the rows of table {config.name} "
                f"have keys of the other form ({form}), and every key would be new; remove it"
            )
        if not asked and config.table_version.key_alone:
            others = listed_versions(last="or", having=lambda version: not version.key_alone)
            raise ConfigError(
                f"{NEW_ENCODING} = false ({options.origin(NEW_ENCODING)}): a table of version {config.version} has keys of "
                f"the value alone; remove it, or take version {others}"
            )
    return not asked


CONNECT_S = 5.0
_ROOT = "hoodie.streamer.source.dfs.root"


def check_source(options: Options) -> None:
    """SourceError when the folder does not exist, is none or can't be read, or when no broker takes a connection."""
    if options.source_class == "kafka":
        _check_brokers(options.kafka_options["kafka.bootstrap.servers"])
        return
    if options.source_class == "frame":
        return
    root = options.dfs_root or ""
    if "://" in root:
        return
    if not os.path.exists(root):
        raise SourceError(f"source folder {root} does not exist; correct {_ROOT}")
    if not os.path.isdir(root):
        raise SourcePlaceError(f"source folder {root} is a file; name the folder that holds it with {_ROOT}")
    if not os.access(root, os.R_OK | os.X_OK):
        raise SourcePlaceError(f"source folder {root} can't be read by user {os.geteuid()}; let it, or correct {_ROOT}")


def _check_brokers(servers: str) -> None:
    failures = []
    for server in (s.strip() for s in servers.split(",") if s.strip()):
        host, _, port = server.rpartition(":")
        if not host or not port.isdecimal():
            failures.append(f"{server} (it names no port: write for example {server.strip(':')}:9092)")
            continue
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S):
                return
        except OSError as e:
            failures.append(f"{server} ({e})")
    raise SourceError(
        f"no Kafka broker answers: {', '.join(failures)}; check bootstrap.servers, that the broker runs, and the network"
    )
