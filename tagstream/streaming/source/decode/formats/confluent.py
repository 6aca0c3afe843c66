"""Avro in Confluent's wire form: a zero, the schema's id in four bytes, a datum. Each record has its writer's schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import mask_of, text_where
from tagstream.streaming.source.decode.events import Watch
from tagstream.streaming.source.decode.facts import Facts
from tagstream.streaming.source.decode.formats.body import Body, finished
from tagstream.streaming.source.decode.formats.datums import Datums
from tagstream.streaming.source.decode.formats.encodings import Encoding
from tagstream.streaming.source.decode.formats.enveloped import together
from tagstream.streaming.source.decode.formats.registry import SchemaRegistry, UnknownSchemaError
from tagstream.streaming.source.decode.formats.schema_names import avro_encoding, row_record, writer_fields
from tagstream.streaming.source.decode.messages.rowless import NO_ROW, is_of_signals, is_rowless
from tagstream.streaming.source.decode.messages.tables import SourceTables, TableGate
from tagstream.streaming.source.decode.record import Path
from tagstream.table.chunks import flat

_PREFIX = 5
Ids = npt.NDArray[np.int64]


class ConfluentAvro:
    """``schema``: the columns wanted, ``paths``: where each is; ``facts`` of the row's columns have their defaults.

    ``watch``: notes the schemas of the stream's own records, by ``gate``. ``envelopes``: records are Debezium's, and
    some may be of no row. ``truncate``: as of ``encodings.finish``.
    """

    def __init__(
        self,
        schema: pa.Schema,
        paths: Mapping[str, Path],
        facts: Mapping[str, Facts],
        registry: SchemaRegistry,
        watch: Watch | None = None,
        gate: TableGate | None = None,
        *,
        envelopes: bool = False,
        truncate: bool = False,
    ) -> None:
        self._truncate = truncate
        self._gate = gate or TableGate(SourceTables())
        self._envelopes = envelopes
        self._own: set[int] = set()
        self._schema = pa.schema([f.with_nullable(True) for f in schema])
        self._paths = paths
        self._facts = facts
        self._registry = registry
        self._watch = watch
        self._known: dict[int, _Writer] = {}

    def decode(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """Rows and reasons, of records of any mixture of schemas."""
        values = values.cast(pa.binary())
        ids = schema_ids(values)
        parts = []
        for number in np.unique(ids).tolist():  # a step a schema
            at = np.flatnonzero(ids == number)
            mine = values if len(at) == len(values) else values.take(pa.array(at))
            parts.append((at, *self._of_schema(number, mine)))
        return together(parts, len(values)) if parts else (self._schema.empty_table(), pa.array([], pa.string()))

    def _of_schema(self, number: int, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        if number < 0:
            return self._none(
                len(values), "not in Confluent's wire form: it does not begin with a zero and a schema id"
            )
        try:
            writer = self._writer(number)
        except UnknownSchemaError as e:
            return self._none(len(values), str(e))
        if writer.rowless and self._envelopes:
            return self._none(len(values), NO_ROW)
        longest = int(pc.max(pc.binary_length(values)).as_py() or 0)
        found, reason = writer.datums.decode(pc.binary_slice(values, _PREFIX, max(longest, _PREFIX)))
        columns = {f.name: _at(found, writer.paths.get(f.name, self._paths[f.name])) for f in self._schema}
        wire = pa.table({name: column for name, column in columns.items() if column is not None})
        if not wire.num_columns:
            wire = pa.table({"": pa.nulls(len(values))})
        used = {f.name: writer.encodings.get(f.name, Encoding()) for f in self._schema}
        rows, reason = finished(wire, reason, self._schema, used, "raw", self._facts, truncate=self._truncate)
        if writer.signals and self._envelopes and (self._gate.is_open or self._gate.foreign(rows).all()):
            return self._none(len(values), NO_ROW)
        if self._watch is not None and (number in self._own or self._gate.has_own(rows)):
            self._own.add(number)
            self._watch.saw_avro(number, writer.schema)
        return rows, reason

    def _none(self, count: int, why: str) -> tuple[pa.Table, pa.Array]:
        nothing = pa.Table.from_arrays([pa.nulls(count, f.type) for f in self._schema], schema=self._schema)
        return nothing, text_where(np.ones(count, np.bool_), why)

    def _writer(self, number: int) -> _Writer:
        if number not in self._known:
            schema = self._registry.by_id(number)
            encodings = {f["name"]: avro_encoding(f["type"]) for f in _fields(schema)}
            names = writer_fields(schema, self._schema.names, self._facts)
            paths = {column: (*self._paths[column][:-1], name) for column, name in names.items()}
            encodings |= {column: encodings[name] for column, name in names.items()}
            self._known[number] = _Writer(
                schema, Datums(schema), encodings, paths, is_rowless(schema), is_of_signals(row_record(schema))
            )
        return self._known[number]


@dataclass(frozen=True)
class _Writer:
    """A writer's schema: what decodes it, the columns' encodings, and the places of those that an alias names.

    ``rowless``: its records are Debezium's messages of no row. ``signals``: they may be rows of its signaling table.
    """

    schema: Mapping[str, Any]
    datums: Datums
    encodings: Mapping[str, Encoding]
    paths: Mapping[str, Path]
    rowless: bool
    signals: bool


class ByWireForm:
    """Avro where a record begins as one, else JSON: converters of keys and values differ, and headers are always JSON."""

    def __init__(self, avro: Body, text: Body) -> None:
        self._avro = avro
        self._text = text

    def decode(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """Rows and reasons."""
        values = flat(values).cast(pa.binary())
        is_avro = mask_of(pc.starts_with(values, b"\0"))
        if is_avro.all() or not is_avro.any():
            return (self._avro if len(values) and is_avro.all() else self._text).decode(values)
        parts = [
            (np.flatnonzero(mask), *body.decode(values.filter(pa.array(mask))))
            for mask, body in ((is_avro, self._avro), (~is_avro, self._text))
        ]
        return together(parts, len(values))


def schema_ids(values: pa.Array) -> Ids:
    """The schema id of each record; -1 where it has none."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1].astype(
        np.int64
    )
    content = values.buffers()[2]
    data = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    ids = np.full(len(values), -1, np.int64)
    at = np.flatnonzero(np.diff(offsets) >= _PREFIX)
    at = at[data[offsets[at]] == 0]
    begin = offsets[at]
    ids[at] = sum(data[begin + 1 + i].astype(np.int64) << (24 - 8 * i) for i in range(4))
    return ids


def _fields(schema: Mapping[str, Any]) -> list[dict[str, Any]]:
    fields = row_record(schema).get("fields", [])
    return [f for f in fields if isinstance(f, dict)]


def _at(records: pa.Array, path: Path) -> pa.Array | None:
    """The values at a path; None where the records' schema has no such field."""
    for step in path:
        if not pa.types.is_struct(records.type) or records.type.get_field_index(step) < 0:
            return None
        records = pc.struct_field(records, step)
    return records
