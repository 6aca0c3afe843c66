"""The format of a source by its name: the values of `tagstream.source.format`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from tagstream.state.layout import OrderingKind
from tagstream.streaming.record_formats import (
    AVRO_FILES,
    CSV_FILES,
    HUDI_ROWS,
    PARQUET_FILES,
    PLAIN_JSON,
    PROTOBUF,
    TYPED_ROWS,
    SourceFormat,
    source_format,
)
from tagstream.streaming.source.decode.confluent_avro import ByWireForm, ConfluentAvro
from tagstream.streaming.source.decode.connect_json import Body, EnvelopedJson, JsonBody
from tagstream.streaming.source.decode.debezium import DebeziumEvents, DebeziumRules
from tagstream.streaming.source.decode.debezium_envelope import (
    STREAMER_COLUMNS,
    FlatBody,
    Order,
    envelope_fields,
    flat_fields,
)
from tagstream.streaming.source.decode.encodings import BytesAs, Encoding
from tagstream.streaming.source.decode.file_rows import FileRows
from tagstream.streaming.source.decode.maxwell_canal import CanalJson, MaxwellJson
from tagstream.streaming.source.decode.plain_json import DELETED, with_delete_mark
from tagstream.streaming.source.decode.proto_rules import ProtoRules, proto_body
from tagstream.streaming.source.decode.record_decoder import Path
from tagstream.streaming.source.decode.record_format import DecodeRules, Facts, RecordFormat, Watch
from tagstream.streaming.source.decode.row_messages import SourceTables, TableFilter
from tagstream.streaming.source.decode.schema_names import column_encodings
from tagstream.streaming.source.decode.schema_registry import RegistryPlace, SchemaRegistry
from tagstream.streaming.source.decode.text_keys import TextKeys
from tagstream.streaming.source.decode.typed_rows import TypedRows
from tagstream.table.fields import path_of, type_of
from tagstream.table.keys.keys import KeyGenerator


@dataclass(frozen=True)
class FormatRules:
    """The format and how it is read; a small value that is sent to every task. ``bytes_as``: how bytes are encoded in a
    text.

    ``delete_field``: the column of typed rows (``rows``) that marks deletes. ``operation``: the column whose ``D`` does.
    ``tables``: the tables whose events are read.
    """

    name: str = PLAIN_JSON.name
    debezium: DebeziumRules = field(default_factory=DebeziumRules)
    bytes_as: BytesAs = "base64"
    null_if_lost: bool = False
    registry: RegistryPlace | None = None
    delete_field: str = DELETED
    operation: str | None = None
    proto: ProtoRules | None = None
    tables: SourceTables = field(default_factory=SourceTables)

    @property
    def kind(self) -> SourceFormat:
        """The format's capabilities. ConfigError for an unknown name."""
        return source_format(self.name)

    @property
    def ordering_kind(self) -> OrderingKind:
        """How the order of events is stored that no column of the table has."""
        if not self.kind.positions:
            return "none"
        return {"lsn": "int64", "binlog": "bytes", "arrival": "none"}[self.debezium.order]  # type: ignore[return-value]


PLAIN = FormatRules()


@dataclass(frozen=True)
class TableFacts:
    """What a format needs to know about the table. ``avro_json``: the schema file's text, which may name encodings.
    ``ordered``: the table has an ordering field.

    ``watch``: gets the schemas of records.
    """

    schema: pa.Schema
    avro_json: str
    facts: Mapping[str, Facts]
    generator: KeyGenerator
    ordered: bool
    global_index: bool
    files: bool
    rules: DecodeRules
    watch: Watch | None = None


def make_format(rules: FormatRules, table: TableFacts) -> RecordFormat | None:
    """Make the decoder of a format; None for plain JSON, which is the default. ConfigError for an unknown name."""
    return _MAKERS[source_format(rules.name).name](rules, table)


def _typed_rows(rules: FormatRules, table: TableFacts) -> RecordFormat:
    return TypedRows(table.schema, rules.delete_field)


def _file_rows(rules: FormatRules, table: TableFacts) -> RecordFormat:
    return FileRows(with_delete_mark(table.schema), table.facts, table.rules, table.watch, rules.operation)


def _maxwell(rules: FormatRules, table: TableFacts) -> RecordFormat:
    return MaxwellJson(table.schema, table.facts, table.rules, table.generator, TableFilter(rules.tables))


def _canal(rules: FormatRules, table: TableFacts) -> RecordFormat:
    return CanalJson(table.schema, table.rules, table.generator, TableFilter(rules.tables), rules.debezium.truncate)


def _debezium(rules: FormatRules, table: TableFacts) -> RecordFormat:
    """Debezium's change events, as envelopes or flattened, in JSON or Avro. Rows in Avro are read as flattened events."""
    keys, order = table.generator.record_key_fields, rules.debezium.order
    named, gate = column_encodings(table.avro_json), TableFilter(rules.tables)
    cut, envelopes = table.rules.truncate_times, rules.kind.envelopes
    if envelopes:
        schema, paths = envelope_fields(table.schema, keys, order, files=table.files)
    else:
        schema, paths = flat_fields(table.schema, order)
    body: Body
    of_keys: Body = json_keys(named, rules, table)
    if rules.registry is not None:
        registry = SchemaRegistry(rules.registry)
        body = ConfluentAvro(schema, paths, table.facts, registry, table.watch, gate, envelopes=envelopes, truncate=cut)
        key_schema, places = _of_keys(table)
        text = of_keys if rules.kind.names_tables else _or_text(of_keys, table)
        of_keys = ByWireForm(ConfluentAvro(key_schema, places, {}, registry), text)
    else:
        body = _enveloped(schema, paths, named, "after" if envelopes else None, rules, table, table.watch, gate)
    return DebeziumEvents(
        table.schema,
        table.generator,
        body if envelopes else FlatBody(body, order),
        of_keys,
        rules.debezium,
        ordered=table.ordered,
        global_index=table.global_index,
        needs_message_key=rules.kind.names_tables,
        gate=gate,
        json=None if rules.registry is not None else "envelopes" if envelopes else "rows",
    )


def _protobuf(rules: FormatRules, table: TableFacts) -> RecordFormat:
    """Rows as messages. A field ``_hoodie_is_deleted`` marks deletes, and a value that is null is one, too."""
    assert rules.proto is not None
    order: Order = "arrival"
    schema, paths = flat_fields(table.schema, order)
    names = {column: path[-1] for column, path in paths.items()}
    body = FlatBody(proto_body(schema, names, table.facts, rules.proto, table.rules), order)
    return DebeziumEvents(
        table.schema,
        table.generator,
        body,
        _or_text(json_keys({}, rules, table), table),
        DebeziumRules(order=order),
        ordered=table.ordered,
        global_index=table.global_index,
        needs_message_key=False,
        json=None,
        no_value=None,
    )


def json_keys(named: Mapping[str, Encoding], rules: FormatRules, table: TableFacts) -> EnvelopedJson:
    """The decoder of message keys in JSON, with or without a schema."""
    schema, paths = _of_keys(table)
    return _enveloped(schema, paths, named, None, rules, table)


def _or_text(objects: Body, table: TableFacts) -> Body:
    """``objects``, or with one record key field also its bare text: rows that no Debezium has made may have such keys."""
    names = table.generator.record_key_fields
    return TextKeys(path_of(names[0], table.schema.names), objects) if len(names) == 1 else objects


def _of_keys(table: TableFacts) -> tuple[pa.Schema, dict[str, Path]]:
    """The record key fields as columns, by their names in the table, and the path of each in a key."""
    names = table.generator.record_key_fields
    schema = pa.schema([pa.field(name, type_of(table.schema, name)) for name in names])
    return schema, {name: path_of(name, table.schema.names) for name in names}


def _enveloped(
    schema: pa.Schema,
    paths: Mapping[str, Path],
    named: Mapping[str, Encoding],
    row: str | None,
    rules: FormatRules,
    table: TableFacts,
    watch: Watch | None = None,
    gate: TableFilter | None = None,
) -> EnvelopedJson:
    strict = replace(table.rules, drop_utc=True)

    def of_fields(fields: Mapping[str, Encoding]) -> JsonBody:
        lacks = frozenset(table.schema.names) - frozenset(fields) - frozenset(STREAMER_COLUMNS)
        return JsonBody(schema, paths, fields, table.facts, strict, rules.bytes_as, lacks & frozenset(schema.names))

    return EnvelopedJson(JsonBody(schema, paths, named, {}, strict, rules.bytes_as), of_fields, row, watch, gate)


# The decoder of each format of FORMATS (a test compares the two).
_MAKERS: Final[Mapping[str, Callable[[FormatRules, TableFacts], RecordFormat | None]]] = {
    PLAIN_JSON.name: lambda _rules, _table: None,
    CSV_FILES.name: lambda _rules, _table: None,  # its records are lines of JSON when they come here
    TYPED_ROWS.name: _typed_rows,
    PARQUET_FILES.name: _file_rows,
    AVRO_FILES.name: _file_rows,
    HUDI_ROWS.name: _file_rows,
    "debezium-json": _debezium,
    "debezium-flat-json": _debezium,
    "debezium-avro": _debezium,
    "avro": _debezium,
    PROTOBUF.name: _protobuf,
    "maxwell-json": _maxwell,
    "canal-json": _canal,
}
