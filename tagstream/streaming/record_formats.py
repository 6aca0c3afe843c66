"""The formats of records (``tagstream.source.format``) and their capabilities.

For a new format add an entry here, and its decoder in ``streaming.source.decode.make_format``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from tagstream.table.errors import ConfigError

Order = Literal["lsn", "binlog", "arrival"]


@dataclass(frozen=True)
class SourceFormat:
    """A format by its name in the option, and its capabilities."""

    name: str

    # What orders a row's events if the table has no ordering field and no option sets the order; whether events have
    # positions in their database's log.
    order: Order = "lsn"
    positions: bool = False

    # Messages in Confluent's wire format, only from a topic; events with the row before and after; events that name
    # their table.
    avro: bool = False
    envelopes: bool = False
    names_tables: bool = False

    # Rows of a database table, whose keys are never fields of structs; bytes as strings in an encoding that an option names.
    rows_of_database: bool = False
    encodes_bytes: bool = False

    # A schema may have type names of Kafka Connect or Debezium; the table's columns can be derived from the records, with
    # a registry or, if ``has_schema``, without one.
    source_types: bool = False
    brings_schema: bool = False
    has_schema: bool = False

    # A record may omit fields; transformers can work on its rows; an option can choose the format.
    partial_rows: bool = False
    transformed: bool = False
    chosen: bool = True


_DEBEZIUM: Final = SourceFormat(
    "debezium-json",
    positions=True,
    names_tables=True,
    source_types=True,
    brings_schema=True,
    has_schema=True,
    rows_of_database=True,
    encodes_bytes=True,
    envelopes=True,
)
PLAIN_JSON: Final = SourceFormat("json", partial_rows=True, transformed=True)
# Records that are not lines of JSON; the source class names them.
CSV_FILES: Final = replace(PLAIN_JSON, name="csv", chosen=False)
PARQUET_FILES: Final = SourceFormat("parquet", transformed=True, brings_schema=True, has_schema=True, chosen=False)
AVRO_FILES: Final = replace(PARQUET_FILES, name="avro-files", source_types=True)
PROTOBUF: Final = SourceFormat("protobuf", order="arrival", chosen=False)
HUDI_ROWS: Final = replace(PARQUET_FILES, name="hudi")  # rows of a Hudi table as the source
TYPED_ROWS: Final = SourceFormat("rows", order="arrival", chosen=False)
FORMATS: Final = {
    each.name: each
    for each in (
        PLAIN_JSON,
        _DEBEZIUM,
        replace(_DEBEZIUM, name="debezium-flat-json", envelopes=False),
        replace(_DEBEZIUM, name="debezium-avro", has_schema=False, avro=True),
        SourceFormat("avro", order="arrival", positions=True, avro=True, brings_schema=True, source_types=True),
        SourceFormat("maxwell-json", names_tables=True, source_types=True, rows_of_database=True),
        SourceFormat("canal-json", names_tables=True, source_types=True, rows_of_database=True),
        PROTOBUF,
        CSV_FILES,
        PARQUET_FILES,
        AVRO_FILES,
        HUDI_ROWS,
        TYPED_ROWS,
    )
}


def source_format(name: str) -> SourceFormat:
    """The format with this name; ConfigError for an unknown name."""
    if name not in FORMATS:
        raise ConfigError(f"records of format {name!r} are not known; known formats are {', '.join(chosen_formats())}")
    return FORMATS[name]


def chosen_formats() -> tuple[str, ...]:
    """The possible values of ``tagstream.source.format``."""
    return tuple(name for name, each in FORMATS.items() if each.chosen)
