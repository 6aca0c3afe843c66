"""JSON of Kafka Connect's converter, with its schema in front of each record or without.

A schema is some thousand bytes that stay the same until the source's table changes. So each distinct text in front of the
payload is read once, and records are known by comparing their first bytes with it. The converter writes no blanks; a program
that has written records again may have put some between the names and the values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import mask_of
from tagstream.streaming.source.decode.events import Mask, Watch
from tagstream.streaming.source.decode.formats.body import Body
from tagstream.streaming.source.decode.formats.encodings import Encoding, by_name
from tagstream.streaming.source.decode.messages.tables import SourceTables, TableGate

_BEGIN, _PAYLOAD = r'^\s*\{\s*"schema"\s*:\s*', r'\s*,\s*"payload"\s*:'
_KEPT = 64  # schemas: a table changes some times, not more
_WIRE = {
    "int8": pa.int32(),
    "int16": pa.int32(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
}

Fields = Mapping[str, Mapping[str, Any]]


class EnvelopedJson:
    """``plain`` decodes records without a schema; ``of_fields`` makes the decoder of records whose row has these Connect
    fields; ``row``: under which field of the schema the row is (None: it is all of it). ``watch``: is told of the schemas
    of the stream's own tables, by ``gate``.
    """

    def __init__(
        self,
        plain: Body,
        of_fields: Callable[[dict[str, Encoding]], Body],
        row: str | None,
        watch: Watch | None = None,
        gate: TableGate | None = None,
    ) -> None:
        self._gate = gate or TableGate(SourceTables())
        self._own: set[bytes] = set()
        self._plain = plain
        self._of_fields = of_fields
        self._row = row
        self._watch = watch
        self._known: dict[bytes, tuple[Body, Fields]] = {}

    def decode(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """Rows and reasons, of records of any mixture of schemas."""
        values = values.cast(pa.binary())
        enveloped = mask_of(pc.match_substring_regex(values, _BEGIN))
        if not enveloped.any():
            return self._plain.decode(values)
        parts: list[tuple[np.ndarray, pa.Table, pa.Array]] = []
        rest = enveloped.copy()
        if not enveloped.all():
            parts.append(_part(~enveloped, *self._plain.decode(values.filter(pa.array(~enveloped)))))
        for prefix in list(self._known):
            rest &= ~self._take(values, prefix, rest, parts)
        while rest.any():
            first = int(np.flatnonzero(rest)[0])
            learnt = self._learn(values[first].as_py())
            if learnt is None:  # no such record: the plain decoder says what is wrong with it
                alone = np.zeros(len(values), np.bool_)
                alone[first] = True
                parts.append(_part(alone, *self._plain.decode(values.slice(first, 1))))
                rest[first] = False
                continue
            rest &= ~self._take(values, learnt, rest, parts)
        return together(parts, len(values))

    def _take(self, values: pa.Array, prefix: bytes, rest: Mask, parts: list[Any]) -> Mask:
        """Decode the records of a schema; which these were."""
        mine = rest & mask_of(pc.starts_with(values, prefix))
        if mine.any():
            chosen = values if mine.all() else values.filter(pa.array(mine))
            body, fields = self._known[prefix]
            rows, reason = body.decode(_cut(chosen, prefix))
            parts.append(_part(mine, rows, reason))
            if self._watch is not None and (prefix in self._own or self._gate.has_own(rows)):
                self._own.add(prefix)
                self._watch.saw_connect(prefix, fields)
        return mine

    def _learn(self, record: bytes) -> bytes | None:
        try:
            text = record.decode("utf-8")
            begin = re.match(_BEGIN, text)
            schema, end = json.JSONDecoder().raw_decode(text, begin.end() if begin is not None else 0)
        except (ValueError, RecursionError):
            return None
        payload = re.compile(_PAYLOAD).match(text, end)
        if payload is None or not isinstance(schema, dict):
            return None
        fields = connect_fields(schema, self._row)
        if fields is None:
            return None
        prefix = text[: payload.end()].encode()
        while len(self._known) >= _KEPT:
            self._known.pop(next(iter(self._known)))
        body = self._of_fields({name: connect_encoding(f) for name, f in fields.items()})
        self._known[prefix] = body, fields
        return prefix


def connect_fields(schema: Mapping[str, Any], row: str | None) -> dict[str, Mapping[str, Any]] | None:
    """The fields of a row by name, of a Connect schema in JSON; None where it has no such row."""
    found: Any = schema
    if row is not None:
        found = next((f for f in schema.get("fields") or () if isinstance(f, dict) and f.get("field") == row), None)
    if not isinstance(found, dict) or not isinstance(found.get("fields"), list):
        return None
    return {f["field"]: f for f in found["fields"] if isinstance(f, dict) and "field" in f}


def connect_encoding(field: Mapping[str, Any]) -> Encoding:
    """How a Connect field comes."""
    scale = (field.get("parameters") or {}).get("scale", 0)
    return by_name(field.get("name"), int(scale), _WIRE.get(str(field.get("type"))))


def together(parts: list[tuple[np.ndarray, pa.Table, pa.Array]], count: int) -> tuple[pa.Table, pa.Array]:
    """Rows and reasons that were found in parts, in the order of the records."""
    if len(parts) == 1 and len(parts[0][0]) == count:
        return parts[0][1], parts[0][2]
    place = np.empty(count, np.int64)
    place[np.concatenate([at for at, _, _ in parts])] = np.arange(count)
    take = pa.array(place)
    rows = pa.concat_tables([rows for _, rows, _ in parts]).combine_chunks()
    return rows.take(take), pa.concat_arrays([reason.cast(pa.string()) for _, _, reason in parts]).take(take)


def _part(mine: Mask, rows: pa.Table, reason: pa.Array) -> tuple[np.ndarray, pa.Table, pa.Array]:
    return np.flatnonzero(mine), rows, reason.combine_chunks() if isinstance(reason, pa.ChunkedArray) else reason


def _cut(values: pa.Array, prefix: bytes) -> pa.Array:
    """The payloads: without the prefix and the brace that ends the record; nothing for a record that is cut short."""
    whole = pc.and_(pc.greater(pc.binary_length(values), len(prefix)), pc.ends_with(values, b"}"))
    if not pc.all(whole, min_count=0).as_py():
        values = pc.if_else(whole, values, pa.scalar(prefix + b"}", pa.binary()))
    return pc.binary_slice(values, len(prefix), -1)
