"""A body of records in one shape: its columns by their encodings, and what stands beside the row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.facts import NO_FACTS, Facts
from tagstream.streaming.source.decode.formats.encodings import BytesAs, Encoding, finish, for_column, json_type
from tagstream.streaming.source.decode.json_decoder import JsonDecoder
from tagstream.streaming.source.decode.record import Path
from tagstream.streaming.source.decode.rules import DecodeRules
from tagstream.table.chunks import flat


class Body(Protocol):
    """Decodes values of one shape, or of several: the columns that were asked for, and why a value is bad."""

    def decode(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """(rows, reasons), both as long as ``values`` (binary, without nulls)."""
        ...


class JsonBody:
    """Values in JSON. ``schema``: the columns wanted (read as nullable), those of a row and those beside it;
    ``paths``: where each is; ``encodings``: of those that do not come as their own type. ``facts`` are of the row's columns;
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
        """Rows and reasons."""
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
    """Columns as they came, into ``schema``; a column that did not come has the schema's default, else it is null."""
    columns = []
    for field in schema:
        if field.name not in wire.column_names:
            default = (facts or {}).get(field.name, NO_FACTS).default
            value = pa.scalar(None, field.type) if default is None else pa.scalar(default).cast(field.type)
            columns.append(pa.repeat(value, wire.num_rows))
            continue
        array, why = finish(flat(wire.column(field.name)), encodings[field.name], field, bytes_as, truncate=truncate)
        columns.append(array)
        if why is not None:
            reason = pc.coalesce(reason, why)
    return pa.Table.from_arrays(columns, schema=schema), reason
