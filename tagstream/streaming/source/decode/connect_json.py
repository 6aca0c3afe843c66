"""Bodies of records, above all JSON of Kafka Connect's converter, with the schema in each record or without it.

A body decodes the row's columns by their encodings, and what the record has in addition to the row.

A schema is some thousand bytes that stay the same until the source's table changes. So each distinct text around the
payload is parsed once, and records are matched by comparing their first and last bytes with it. The converter writes
the schema first and no blanks. A program that has rewritten records may have put the payload first, or blanks between
names and values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import mask_of
from tagstream.streaming.source.decode.encodings import (
    BytesAs,
    Encoding,
    by_name,
    finish,
    for_column,
    json_type,
    nested,
)
from tagstream.streaming.source.decode.json_decoder import JsonDecoder
from tagstream.streaming.source.decode.record_decoder import Path
from tagstream.streaming.source.decode.record_format import NO_FACTS, DecodeRules, Facts, Mask, Watch
from tagstream.streaming.source.decode.row_messages import SourceTables, TableFilter
from tagstream.table.chunks import flat


class Body(Protocol):
    """Decodes values of one or several forms: to the requested columns, with the reasons for bad values."""

    def decode(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """(rows, reasons), both as long as ``values`` (binary, without nulls)."""
        ...


class JsonBody:
    """Values in JSON. ``schema``: the requested columns (read as nullable), of the row and additional ones. ``paths``:
    where each is. ``encodings``: of those that are not encoded as their own type. ``facts``: of the row's columns.
    ``lacks``: columns that these records do not have.
    """

    def __init__(
        self,
        schema: pa.Schema,
        paths: Mapping[str, Path],
        encodings: Mapping[str, Encoding],
        facts: Mapping[str, Facts],
        rules: DecodeRules,
        bytes_as: BytesAs,
        lacks: frozenset[str] = frozenset(),
    ) -> None:
        self._schema = pa.schema([f.with_nullable(True) for f in schema])
        self._bytes_as = bytes_as
        self._truncate = rules.truncate_times
        self._encodings = {f.name: for_column(encodings.get(f.name, Encoding()), f.type) for f in schema}
        self._facts = facts
        wire = [pa.field(f.name, json_type(self._encodings[f.name], f.type)) for f in schema if f.name not in lacks]
        self._decoder = JsonDecoder(pa.schema(wire), None, rules, paths)

    def decode(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """(rows, reasons), see :class:`Body`."""
        wire, reason = self._decoder.decode(values)
        return finished(
            wire, reason, self._schema, self._encodings, self._bytes_as, self._facts, truncate=self._truncate
        )


def finished(
    wire: pa.Table,
    reason: pa.Array,
    schema: pa.Schema,
    encodings: Mapping[str, Encoding],
    bytes_as: BytesAs,
    facts: Mapping[str, Facts] | None = None,
    *,
    truncate: bool = False,
) -> tuple[pa.Table, pa.Array]:
    """Convert decoded columns to ``schema``. A missing column gets the schema's default, else null."""
    columns = []
    for field in schema:
        if field.name not in wire.column_names:
            default = (facts or {}).get(field.name, NO_FACTS).default
            value = pa.scalar(None, field.type) if default is None else pa.scalar(default).cast(field.type)
            columns.append(pa.repeat(value, len(reason)))  # a table without columns has no rows
            continue
        array, why = finish(flat(wire.column(field.name)), encodings[field.name], field, bytes_as, truncate=truncate)
        columns.append(array)
        if why is not None:
            reason = pc.coalesce(reason, why)
    return pa.Table.from_arrays(columns, schema=schema), reason


_BEGIN, _NEXT = r'^\s*\{\s*"(schema|payload)"\s*:\s*', r'\s*,\s*"(payload|schema)"\s*:\s*'
_KEPT = 64  # most schemas to remember; a table's schema changes only a few times
_WIRE = {
    "int8": pa.int32(),
    "int16": pa.int32(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}

Fields = Mapping[str, Mapping[str, Any]]
# The bytes before and after a payload. After a payload that comes last there is a brace, perhaps with blanks.
_Around = tuple[bytes, bytes]
_END = b"}"
_DECODER = json.JSONDecoder()


class EnvelopedJson:
    """Records with or without a schema.

    ``plain`` decodes records without a schema. ``of_fields`` makes the decoder for records whose row has these Connect
    fields. ``row``: the field of the schema that is the row (None: the whole schema). ``watch``: gets the schemas of
    the stream's tables, selected by ``gate``.
    """

    def __init__(
        self,
        plain: Body,
        of_fields: Callable[[dict[str, Encoding]], Body],
        row: str | None,
        watch: Watch | None = None,
        gate: TableFilter | None = None,
    ) -> None:
        self._gate = gate or TableFilter(SourceTables())
        self._own: set[_Around] = set()
        self._plain = plain
        self._of_fields = of_fields
        self._row = row
        self._watch = watch
        self._known: dict[_Around, tuple[Body, Fields | None]] = {}

    def decode(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """(rows, reasons) of records with any mixture of schemas."""
        values = _trimmed(values.cast(pa.binary()))
        enveloped = mask_of(pc.match_substring_regex(values, _BEGIN))
        if not enveloped.any():
            return self._plain.decode(values)
        parts: list[tuple[np.ndarray, pa.Table, pa.Array]] = []
        rest = enveloped.copy()
        if not enveloped.all():
            parts.append(_part(~enveloped, *self._plain.decode(values.filter(pa.array(~enveloped)))))
        for around in list(self._known):
            rest &= ~self._take(values, around, rest, parts)
        while rest.any():
            first = int(np.flatnonzero(rest)[0])
            learnt = self._learn(values[first].as_py())
            if learnt is None:  # not a record with a schema: the plain decoder gives the reason
                alone = np.zeros(len(values), np.bool_)
                alone[first] = True
                parts.append(_part(alone, *self._plain.decode(values.slice(first, 1))))
                rest[first] = False
                continue
            rest &= ~self._take(values, learnt, rest, parts)
        return combined(parts, len(values))

    def _take(self, values: pa.Array, around: _Around, rest: Mask, parts: list[Any]) -> Mask:
        """Decode the records of one schema. Returns the mask of these records."""
        prefix, suffix = around
        mine = rest & mask_of(pc.starts_with(values, prefix))
        if suffix != _END:
            mine &= mask_of(pc.ends_with(values, suffix))
        if mine.any():
            chosen = values if mine.all() else values.filter(pa.array(mine))
            body, fields = self._known[around]
            rows, reason = body.decode(_cut(chosen, around))
            parts.append(_part(mine, rows, reason))
            watch = self._watch
            if watch is not None and fields is not None and (around in self._own or self._gate.has_own(rows)):
                self._own.add(around)
                watch.saw_connect(prefix if suffix == _END else suffix, fields)
        return mine

    def _learn(self, record: bytes) -> _Around | None:
        """The bytes around the payload of a record, and of all records with the same schema in the same form. None
        where it is not a record with a schema.
        """
        try:
            text = record.decode("utf-8")
            values: dict[str, Any] = {}
            places: dict[str, tuple[int, int]] = {}
            at = re.match(_BEGIN, text)
            while at is not None and at.group(1) not in places:
                values[at.group(1)], end = _DECODER.raw_decode(text, at.end())
                places[at.group(1)] = at.end(), end
                at = re.compile(_NEXT).match(text, end)
        except (ValueError, RecursionError):
            return None
        if places.keys() != {"schema", "payload"}:
            return None
        schema, (begin, end) = values["schema"], places["payload"]
        fields = connect_fields(schema, self._row) if isinstance(schema, dict) else None
        if fields is None and schema is not None:
            return None
        first = places["schema"][0] < begin
        around = text[:begin].encode(), _END if first else text[end:].encode()
        while len(self._known) >= _KEPT:
            self._known.pop(next(iter(self._known)))
        if fields is None:  # without its schema, in the form of one
            self._known[around] = self._plain, None
        else:
            self._known[around] = self._of_fields({name: connect_encoding(f) for name, f in fields.items()}), fields
        return around


def connect_fields(schema: Mapping[str, Any], row: str | None) -> dict[str, Mapping[str, Any]] | None:
    """The fields of a row, by name, in a Connect schema in JSON; None where it has no such row."""
    found: Any = schema
    if row is not None:
        found = next((f for f in schema.get("fields") or () if isinstance(f, dict) and f.get("field") == row), None)
    if not isinstance(found, dict) or not isinstance(found.get("fields"), list):
        return None
    return {f["field"]: f for f in found["fields"] if isinstance(f, dict) and "field" in f}


def connect_encoding(field: Mapping[str, Any]) -> Encoding:
    """The encoding of a Connect field, at any depth."""
    scale, kind = (field.get("parameters") or {}).get("scale", 0), str(field.get("type"))
    found = by_name(field.get("name"), int(scale), _WIRE.get(kind))
    if found.kind != "plain":
        return found
    if kind == "struct":
        return nested((f["field"], connect_encoding(f)) for f in field.get("fields") or () if "field" in f)
    inner = {"array": field.get("items"), "map": field.get("values")}.get(kind)
    return nested(item=connect_encoding(inner)) if isinstance(inner, dict) else found


def combined(parts: list[tuple[np.ndarray, pa.Table, pa.Array]], count: int) -> tuple[pa.Table, pa.Array]:
    """Rows and reasons that were decoded in parts, in the order of the records."""
    if len(parts) == 1 and len(parts[0][0]) == count:
        return parts[0][1], parts[0][2]
    place = np.empty(count, np.int64)
    place[np.concatenate([at for at, _, _ in parts])] = np.arange(count)
    take = pa.array(place)
    rows = pa.concat_tables([rows for _, rows, _ in parts]).combine_chunks()
    return rows.take(take), pa.concat_arrays([reason.cast(pa.string()) for _, _, reason in parts]).take(take)


def _part(mine: Mask, rows: pa.Table, reason: pa.Array) -> tuple[np.ndarray, pa.Table, pa.Array]:
    return np.flatnonzero(mine), rows, flat(reason)


def _trimmed(values: pa.Array) -> pa.Array:
    """The records without blanks at their end, which few writers add."""
    ends = pc.fill_null(pc.ends_with(values, _END), True)
    if pc.all(ends, min_count=0).as_py():
        return values
    return pc.if_else(ends, values, pc.replace_substring_regex(values, r"[ \t\r\n]+$", ""))


def _cut(values: pa.Array, around: _Around) -> pa.Array:
    """The payloads, without the bytes around them; empty for a truncated record."""
    prefix, suffix = around
    whole = pc.and_(pc.greater(pc.binary_length(values), len(prefix)), pc.ends_with(values, suffix))
    if not pc.all(whole, min_count=0).as_py():
        values = pc.if_else(whole, values, pa.scalar(prefix + suffix, pa.binary()))
    return pc.binary_slice(values, len(prefix), -len(suffix))
