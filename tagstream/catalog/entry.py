"""The entry of a table in a catalogue, as Hudi's HiveSyncTool 1.2.0 writes it.

A copy-on-write table has one entry. A merge-on-read table has ``<name>_ro`` with only its base files, ``<name>_rt`` with
all rows, and ``<name>``, which is the same as ``<name>_rt``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tagstream.catalog.changes import Cursor
from tagstream.catalog.options import SyncOptions
from tagstream.catalog.types import hive_type, spark_schema
from tagstream.table.meta_client.table_config import TableConfig
from tagstream.table.schema.schema import META_COLUMNS

BASE_FILES = "org.apache.hudi.hadoop.HoodieParquetInputFormat"
REALTIME = "org.apache.hudi.hadoop.realtime.HoodieParquetRealtimeInputFormat"
OUTPUT = "org.apache.hadoop.hive.ql.io.parquet.MapredParquetOutputFormat"
SERDE = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
READ_OPTIMIZED = "hoodie.query.as.ro.table"
PROVIDER = "spark.sql.sources.provider"
LAST_TIME, LAST_COMPLETION = "last_commit_time_sync", "last_commit_completion_time_sync"
WRITER_VERSION = "hudi_writer_version"
_AS_HUDI = "1.2.0"  # the writer of these entries: HiveSyncTool of another version replaces it with its own value
_SPARK_SCHEMA = "spark.sql.sources.schema."


@dataclass(frozen=True)
class Column:
    """A column or partition key; ``type`` in Hive's words."""

    name: str
    type: str
    comment: str = ""


@dataclass(frozen=True)
class TableEntry:
    """A table of a catalogue; ``location`` is its base path, ``owner`` empty where the catalogue has none."""

    database: str
    name: str
    location: str
    columns: tuple[Column, ...]
    partition_keys: tuple[Column, ...]
    input_format: str
    serde_parameters: Mapping[str, str]
    parameters: Mapping[str, str]
    output_format: str = OUTPUT
    serde: str = SERDE
    owner: str = ""

    @property
    def full_name(self) -> str:
        """Database and table, for a message."""
        return f"{self.database}.{self.name}"

    @property
    def is_hudi(self) -> bool:
        """Whether a Hudi tool made the entry."""
        return self.parameters.get(PROVIDER, "").lower() == "hudi" or self.input_format in (BASE_FILES, REALTIME)

    @property
    def cursor(self) -> Cursor | None:
        """The commit up to which the entry has the table; None before the first sync has ended."""
        time = self.parameters.get(LAST_TIME)
        return None if time is None else Cursor(time, self.parameters.get(LAST_COMPLETION))

    def with_cursor(self, cursor: Cursor) -> TableEntry:
        """The entry that has all commits up to the cursor."""
        found = {**self.parameters, LAST_TIME: cursor.time, WRITER_VERSION: _AS_HUDI}
        if cursor.completion_time is not None:
            found[LAST_COMPLETION] = cursor.completion_time
        return replace(self, parameters=found)


@dataclass(frozen=True)
class PartitionEntry:
    """One partition: the values of its keys and its folder."""

    values: tuple[str, ...]
    location: str


def entry_names(config: TableConfig, options: SyncOptions) -> list[tuple[str, bool, bool]]:
    """The entries of a table: name, whether Hive reads logs through it, whether Spark reads only base files."""
    name = options.table or config.name
    if not config.is_merge_on_read:
        return [(name, False, False)]
    if options.strategy == "RO":
        return [(name, False, True)]
    if options.strategy == "RT":
        return [(name, True, False)]
    read_optimized = name if options.skip_ro_suffix else f"{name}_ro"
    found = [(read_optimized, False, True), (f"{name}_rt", True, False)]
    if options.snapshot_with_table_name and not options.skip_ro_suffix:
        found.append((name, True, False))
    return found


def wanted_entries(
    config: TableConfig, location: str, avro_json: str, options: SyncOptions, owner: str
) -> list[TableEntry]:
    """The entries that a table should have, without a cursor.

    Args:
        location: the base path as the catalogue's readers know it.
        avro_json: the Avro schema of the table's rows, without meta columns.
        owner: the user that a new entry belongs to.
    """
    keys = options.partition_fields if options.partition_fields is not None else config.partition_fields
    fields: list[dict[str, Any]] = json.loads(avro_json)["fields"]
    if not options.omit_meta_fields:
        fields = [{"name": name, "type": "string"} for name in META_COLUMNS] + fields
    types = {f["name"]: f["type"] for f in fields}

    def column(field: Mapping[str, Any]) -> Column:
        comment = str(field.get("doc") or "") if options.comments else ""
        return Column(field["name"], hive_type(field["type"], timestamps=options.support_timestamp), comment)

    columns = tuple(column(f) for f in fields if f["name"] not in keys)
    partition_keys = tuple(column({"name": key, "type": types.get(key, "string")}) for key in keys)
    parameters = {"EXTERNAL": "TRUE", **(options.table_properties or {})}
    if options.as_datasource:
        parameters |= spark_parameters(fields, keys, options)
    found = []
    for name, realtime, read_optimized in entry_names(config, options):
        serde = {**(options.serde_properties or {}), "serialization.format": "1"}
        if options.as_datasource:
            serde |= {"path": location, READ_OPTIMIZED: str(read_optimized).lower()}
        found.append(
            TableEntry(
                options.database,
                name,
                location,
                columns,
                partition_keys,
                REALTIME if realtime else BASE_FILES,
                serde,
                parameters,
                owner=owner,
            )
        )
    return found


def spark_parameters(fields: Sequence[Mapping[str, Any]], keys: Sequence[str], options: SyncOptions) -> dict[str, str]:
    """The parameters with the schema for Spark: its JSON in pieces, partition columns last."""
    by_name = {f["name"]: f for f in fields}
    ordered = [f for f in fields if f["name"] not in keys] + [by_name[key] for key in keys if key in by_name]
    text = spark_schema(ordered)
    pieces = [text[start : start + options.schema_length] for start in range(0, len(text), options.schema_length)]
    found = {PROVIDER: "hudi", f"{_SPARK_SCHEMA}numParts": str(len(pieces))}
    if options.spark_version is not None:
        found["spark.sql.create.version"] = options.spark_version
    found |= {f"{_SPARK_SCHEMA}part.{number}": piece for number, piece in enumerate(pieces)}
    if keys:
        found[f"{_SPARK_SCHEMA}numPartCols"] = str(len(keys))
    return found | {f"{_SPARK_SCHEMA}partCol.{number}": key for number, key in enumerate(keys)}


def plain_path(location: str) -> str:
    """A location without scheme, host and final slash, to compare two spellings of one folder."""
    _, marker, rest = location.partition("://")
    path = rest.partition("/")[2] if marker else location.removeprefix("file:")
    return "/" + path.strip("/")


def same_columns(one: Sequence[Column], other: Sequence[Column]) -> bool:
    """Whether two lists have the same names and types; a catalogue has names in lower case, and types without spaces."""

    def plain(columns: Sequence[Column]) -> list[tuple[str, str]]:
        return [(c.name.lower(), "".join(c.type.split()).lower()) for c in columns]

    return plain(one) == plain(other)
