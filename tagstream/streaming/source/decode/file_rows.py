"""Records of Parquet and Avro files: they are columns already, and are converted to the table's types.

A batch has the records of one file as the struct column ``row``. Its schema's metadata has the file's own schema: for
Avro the writer's, whose logical types give the columns their meaning as in messages of Kafka; for Parquet the Arrow
schema. A bad record becomes a line of JSON for the quarantine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.arrow_columns import wrong_texts
from tagstream.streaming.source.decode.columns import mask_of, text_where
from tagstream.streaming.source.decode.connect_json import finished
from tagstream.streaming.source.decode.encodings import PLAIN, Encoding
from tagstream.streaming.source.decode.file_values import missing, stored, typed
from tagstream.streaming.source.decode.plain_json import DELETED, operation_deletes
from tagstream.streaming.source.decode.record_format import NO_FACTS, DecodeRules, Events, Facts, Watch
from tagstream.streaming.source.decode.schema_names import avro_encoding, row_record, writer_fields
from tagstream.streaming.source.decode.text_bytes import only_utf8
from tagstream.streaming.source.decode.typed_rows import ROW, may_lack_all, missing_values, row_lines, rows_avro

AVRO_SCHEMA, ARROW_SCHEMA = b"tagstream.avro", b"tagstream.arrow"


class FileRows:
    """Records of typed files. ``schema``: the requested columns, with the mark of deletes. ``watch``: gets the schemas of
    files. ``operation``: the column whose ``D`` marks deletes; None without one.
    """

    may_lack = False

    def __init__(
        self,
        schema: pa.Schema,
        facts: Mapping[str, Facts],
        rules: DecodeRules,
        watch: Watch | None = None,
        operation: str | None = None,
    ) -> None:
        self._schema = schema
        self._columns = pa.schema([pa.field(f.name, may_lack_all(f.type)) for f in schema])
        self._facts = facts
        self._rules = rules
        self._watch = watch
        self._operation = operation
        self._writers: dict[bytes, _Writer] = {}

    def read(self, batch: pa.RecordBatch) -> Events:
        """The records in the table's types, see ``RecordFormat.read``."""
        given, metadata = batch.column(ROW), batch.schema.metadata or {}
        count = batch.num_rows
        if AVRO_SCHEMA in metadata:
            rows, reason = self._of_avro(given, metadata[AVRO_SCHEMA])
        else:
            rows, reason = self._of_parquet(given)
        self._notice(batch, metadata)
        deleted = mask_of(rows.column(DELETED)) | operation_deletes(rows, self._operation)
        if self._rules.check_texts:
            reason = pc.coalesce(reason, text_faults(rows, self._columns, self._facts))
        reason = pc.coalesce(reason, missing_values(rows, self._schema, ~deleted))
        nothing = np.zeros(count, np.bool_)
        lines = batch.select([name for name in batch.schema.names if name != ROW])
        return Events(lines, rows, reason, deleted, nothing, nothing, lines=lambda bad: row_lines(given, bad))

    def _of_parquet(self, given: pa.StructArray) -> tuple[pa.Table, pa.Array]:
        columns, reason = [], pa.nulls(len(given), pa.string())
        for field in self._columns:
            known = self._facts.get(field.name, NO_FACTS)
            at = next((i for n in (field.name, *known.aliases) if (i := given.type.get_field_index(n)) >= 0), None)
            if at is None:
                columns.append(missing(field, known, len(given)))
                continue
            texts, wrong = only_utf8(stored(given.field(at)), field.name)
            array, why = typed(texts, field, self._rules, known)
            columns.append(array)
            for each in (wrong, why):
                reason = reason if each is None else pc.coalesce(reason, each)
        return pa.Table.from_arrays(columns, schema=self._columns), reason

    def _of_avro(self, given: pa.StructArray, schema: bytes) -> tuple[pa.Table, pa.Array]:
        if schema not in self._writers:
            self._writers[schema] = _Writer(json.loads(schema), self._columns.names, self._facts)
        writer = self._writers[schema]
        found = {
            name: only_utf8(given.field(at), name)
            for name, field in writer.fields.items()
            if (at := given.type.get_field_index(field)) >= 0
        }
        wire = {name: values for name, (values, _) in found.items()}
        wrong = [why for _, why in found.values() if why is not None]
        table = pa.table(wire) if wire else pa.table({"": pa.nulls(len(given))})
        used = {name: writer.encodings.get(name, PLAIN) for name in self._columns.names}
        reason = pc.coalesce(*wrong, pa.nulls(len(given), pa.string()))
        return finished(table, reason, self._columns, used, "raw", self._facts, truncate=self._rules.truncate_times)

    def _notice(self, batch: pa.RecordBatch, metadata: Mapping[bytes, bytes]) -> None:
        """Report the schema of the batch's file."""
        if self._watch is None or not batch.num_rows:
            return
        src, rank = batch.column("src")[0].as_py(), batch.column("pos_hi")[0].as_py()
        text = metadata.get(AVRO_SCHEMA) or metadata[ARROW_SCHEMA]
        self._watch.saw_file(text, rank, f"the schema of {src}", lambda: file_schema(metadata, str(src)))


def text_faults(rows: pa.Table, schema: pa.Schema, facts: Mapping[str, Facts]) -> pa.Array:
    """Why a text in ``rows`` is not a symbol of its enum, or not a uuid; null where it is."""
    reason = pa.nulls(rows.num_rows, pa.string())
    for field in schema:
        known = facts.get(field.name, NO_FACTS)
        if known.restricts and pa.types.is_string(field.type):
            wrong = wrong_texts(rows.column(field.name).combine_chunks(), known)
            if wrong is not None:
                what = "a uuid" if known.symbols is None else f"a symbol of the enum ({', '.join(known.symbols)})"
                reason = pc.coalesce(reason, text_where(wrong, f"field {field.name}: the text is not {what}"))
    return reason


def file_schema(metadata: Mapping[bytes, bytes], where: str) -> str:
    """The Avro schema of a file's records. ConfigError for a column that a table cannot store."""
    if AVRO_SCHEMA in metadata:
        return metadata[AVRO_SCHEMA].decode()
    schema = pa.ipc.read_schema(pa.BufferReader(metadata[ARROW_SCHEMA]))
    return parquet_avro(schema, where)


def parquet_avro(schema: pa.Schema, where: str) -> str:
    """The Avro schema of a table for the rows of a Parquet file. All columns may be null, as in Spark.

    ConfigError for a column that a table cannot store.
    """
    return rows_avro(pa.schema([pa.field(f.name, _storable(f.type)) for f in schema]), DELETED, f"source file {where}")


def _storable(kind: pa.DataType) -> pa.DataType:
    """The type of the table for a type of Parquet that Avro and Spark do not have: the next one with all of its values."""
    t = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return pa.string() if isinstance(kind, pa.UuidType) else _storable(kind.storage_type)
    if t.is_dictionary(kind):
        return _storable(kind.value_type)
    if t.is_unsigned_integer(kind):
        return pa.int64() if kind.bit_width >= 32 else pa.int32()
    if t.is_integer(kind) and kind.bit_width < 32:
        return pa.int32()
    if t.is_float16(kind):
        return pa.float32()
    if t.is_timestamp(kind):
        return pa.timestamp("ms" if kind.unit in ("s", "ms") else "us", None if kind.tz is None else "UTC")
    if t.is_struct(kind):
        return pa.struct([pa.field(f.name, _storable(f.type)) for f in kind])
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return pa.list_(_storable(kind.value_type))
    if t.is_map(kind):
        return pa.map_(pa.string(), _storable(kind.item_type))
    return kind


class _Writer:
    """A writer's schema: the field of each column, and the columns' encodings."""

    def __init__(self, schema: Mapping[str, Any], columns: list[str], facts: Mapping[str, Facts]) -> None:
        fields = {f["name"]: f for f in row_record(schema).get("fields", ())}
        aliases = writer_fields(schema, columns, facts)
        self.fields = {name: aliases.get(name, name) for name in columns}
        self.encodings: dict[str, Encoding] = {
            name: avro_encoding(fields[field]["type"]) for name, field in self.fields.items() if field in fields
        }
