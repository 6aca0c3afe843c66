"""Avro in Confluent's wire format: a zero byte, the schema's id in four bytes, and a datum. Each record names its
writer's schema.

No library reads single datums into columns, but some read container files. So the datums of one schema are joined to
one block of a container file, each followed by a number of its own in eight bytes. If the numbers are not read back
unchanged, a datum was longer or shorter than its schema says. Datums that the fast reader rejects, or is not sure about,
are decoded one by one with fastavro.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import mask_of, text_where
from tagstream.streaming.source.decode.connect_json import Body, combined, finished
from tagstream.streaming.source.decode.encodings import Encoding
from tagstream.streaming.source.decode.record_decoder import Path
from tagstream.streaming.source.decode.record_format import Facts, Watch
from tagstream.streaming.source.decode.row_messages import NO_ROW, SourceTables, TableFilter, is_of_signals, is_rowless
from tagstream.streaming.source.decode.schema_names import avro_encoding, row_record, writer_fields
from tagstream.streaming.source.decode.schema_registry import SchemaRegistry, UnknownSchemaError
from tagstream.table.chunks import flat
from tagstream.table.errors import ConfigError
from tagstream.table.file_group.avro_reader import (
    AvroReader,
    container_block,
    container_header,
    readable_schema,
)

_MARK = 8
# No byte twice: then no bytes between a datum and its number, with the begin of the number, look like the number.
_FIRST = np.uint64(0x9E3779B97F4A1C05)
_FEW = 16
Rows = npt.NDArray[np.int64]


class UnreadableSchemaError(Exception):
    """A writer's schema whose datums cannot be read into columns."""


class Datums:
    """Decodes datums of one writer's schema. Logical types are ignored: the column's name determines its meaning.

    UnreadableSchemaError for a schema whose datums have no columns.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        try:
            plain = readable_schema(schema)
        except ConfigError as e:
            raise UnreadableSchemaError(str(e)) from e
        self._schema = fastavro.parse_schema(json.loads(json.dumps(plain)))
        mark = {"type": "fixed", "name": "tagstream_mark", "size": _MARK}
        fields = [{"name": "v", "type": plain}, {"name": "at", "type": mark}]
        self._header = container_header({"type": "record", "name": "tagstream_datum", "fields": fields})
        self._reader = AvroReader()
        try:
            self._kind = self._reader.types(self._header).field("v").type
        except ValueError as e:
            raise UnreadableSchemaError(str(e)) from e

    def decode(self, datums: pa.Array) -> tuple[pa.Array, pa.Array]:
        """(struct array of the records, why a datum is invalid), both as long as ``datums`` (binary, without nulls)."""
        found: list[tuple[Rows, pa.Array]] = []
        odd: list[int] = []
        self._take(datums, np.arange(len(datums)), found, odd)
        reasons: list[str | None] = [None] * len(datums)
        self._one_by_one(datums, odd, found, reasons)
        if not found:
            return pa.nulls(len(datums), self._kind), pa.array(reasons, pa.string())
        place = np.full(len(datums), -1, np.int64)
        at = np.concatenate([rows for rows, _ in found])
        place[at] = np.arange(len(at))
        values = pa.concat_arrays([array for _, array in found])
        return values.take(pa.array(place, mask=place < 0)), pa.array(reasons, pa.string())

    def _take(self, datums: pa.Array, rows: Rows, found: list[tuple[Rows, pa.Array]], odd: list[int]) -> None:
        """Decode ``rows`` as one block; where that fails, as two halves; a few rows one by one."""
        if not len(rows):
            return
        array = self._block(datums if len(rows) == len(datums) else datums.take(pa.array(rows)))
        if array is not None:
            found.append((rows, array))
        elif len(rows) <= _FEW:
            odd += rows.tolist()
        else:
            for half in (rows[: len(rows) // 2], rows[len(rows) // 2 :]):
                self._take(datums, half, found, odd)

    def _block(self, datums: pa.Array) -> pa.Array | None:
        n = len(datums)
        numbers = (np.arange(n, dtype=np.uint64) + _FIRST).astype(">u8").tobytes()
        marks = pa.Array.from_buffers(pa.binary(_MARK), n, [None, pa.py_buffer(numbers)])
        joined = pc.binary_join_element_wise(datums.cast(pa.binary()), marks.cast(pa.binary()), b"")
        data = joined.buffers()[2].to_pybytes()
        try:
            found = self._reader.read([self._header, *container_block(data, n)], n)
        except ValueError:
            return None
        same = pc.equal(found.field("at").cast(pa.binary(_MARK)), marks)
        return found.field("v") if pc.all(same, min_count=0).as_py() else None

    def _one_by_one(
        self, datums: pa.Array, odd: list[int], found: list[tuple[Rows, pa.Array]], reasons: list[str | None]
    ) -> None:
        """Decode the datums that were not decoded in a block. A loop over datums: they are few, unless the stream is
        broken.
        """
        for i in odd:
            raw = datums[i].as_py()
            stream = io.BytesIO(raw)
            try:
                record = fastavro.schemaless_reader(stream, self._schema, None)
            except Exception as e:
                reasons[i] = f"not an Avro datum of its schema: {type(e).__name__} {str(e)[:80]}"
                continue
            if stream.tell() != len(raw):
                reasons[i] = f"{len(raw) - stream.tell()} bytes follow the Avro datum"
                continue
            try:
                found.append((np.array([i]), pa.array([record], self._kind)))
            except (pa.ArrowInvalid, pa.ArrowTypeError) as e:
                reasons[i] = f"an Avro datum that cannot be converted to columns: {str(e)[:80]}"


def check_reader() -> None:
    """ConfigError where the Avro reader is not installed."""
    AvroReader()


_PREFIX = 5
Ids = npt.NDArray[np.int64]


class ConfluentAvro:
    """Decodes Avro records. ``schema``: the requested columns. ``paths``: where each is. ``facts``: of the row's
    columns, with their defaults.

    ``watch``: gets the schemas of the stream's own records, selected by ``gate``. ``envelopes``: records are
    Debezium's, and some may have no row. ``truncate``: see ``encodings.finish``.
    """

    def __init__(
        self,
        schema: pa.Schema,
        paths: Mapping[str, Path],
        facts: Mapping[str, Facts],
        registry: SchemaRegistry,
        watch: Watch | None = None,
        gate: TableFilter | None = None,
        *,
        envelopes: bool = False,
        truncate: bool = False,
    ) -> None:
        self._truncate = truncate
        self._gate = gate or TableFilter(SourceTables())
        self._envelopes = envelopes
        self._own: set[int] = set()
        self._schema = pa.schema([f.with_nullable(True) for f in schema])
        self._paths = paths
        self._facts = facts
        self._registry = registry
        self._watch = watch
        self._known: dict[int, _Writer] = {}

    def decode(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """(rows, reasons) of records with any mixture of schemas."""
        values = values.cast(pa.binary())
        ids = schema_ids(values)
        parts = []
        for number in np.unique(ids).tolist():  # a loop over schemas
            at = np.flatnonzero(ids == number)
            mine = values if len(at) == len(values) else values.take(pa.array(at))
            parts.append((at, *self._of_schema(number, mine)))
        return combined(parts, len(values)) if parts else (self._schema.empty_table(), pa.array([], pa.string()))

    def _of_schema(self, number: int, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        if number < 0:
            return self._none(
                len(values), "not in Confluent's wire format: it does not begin with a zero byte and a schema id"
            )
        try:
            writer = self._writer(number)
        except UnknownSchemaError as e:
            return self._none(len(values), str(e))
        except UnreadableSchemaError as e:
            return self._none(len(values), f"its Avro schema {number} cannot be read: {e}")
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
    """A writer's schema: its decoder, the columns' encodings, and the paths of columns that an alias names.

    ``rowless``: its records are Debezium's messages without a row. ``signals``: they may be rows of its signaling
    table.
    """

    schema: Mapping[str, Any]
    datums: Datums
    encodings: Mapping[str, Encoding]
    paths: Mapping[str, Path]
    rowless: bool
    signals: bool


class ByWireForm:
    """Decodes a record as Avro where it begins like Avro, else as JSON: keys and values may have different converters,
    and headers are always JSON.
    """

    def __init__(self, avro: Body, text: Body) -> None:
        self._avro = avro
        self._text = text

    def decode(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """(rows, reasons), see ``connect_json.Body``."""
        values = flat(values).cast(pa.binary())
        is_avro = mask_of(pc.starts_with(values, b"\0"))
        if is_avro.all() or not is_avro.any():
            return (self._avro if len(values) and is_avro.all() else self._text).decode(values)
        parts = [
            (np.flatnonzero(mask), *body.decode(values.filter(pa.array(mask))))
            for mask, body in ((is_avro, self._avro), (~is_avro, self._text))
        ]
        return combined(parts, len(values))


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
