"""A body of records in one shape: its columns by their encodings, and what stands beside the row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import flat
from tagstream.streaming.source.decode.facts import Facts
from tagstream.streaming.source.decode.formats.encodings import BytesAs, Encoding, finish, for_column, json_type
from tagstream.streaming.source.decode.json_decoder import JsonDecoder
from tagstream.streaming.source.decode.paths import Path
from tagstream.streaming.source.decode.rules import DecodeRules


class Body(Protocol):
    """Decodes values of one shape, or of several: the columns that were asked for, and why a value is bad."""

    def decode(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """(rows, reasons), both as long as ``values`` (binary, without nulls)."""
        ...


class JsonBody:
    """Values in JSON. ``schema``: the columns wanted (read as nullable), those of a row and those beside it;
    ``paths``: where each is; ``encodings``: of those that do not come as their own type. ``facts`` are of the row's columns.
    """

    def __init__(
        self,
        schema: pa.Schema,
        paths: Mapping[str, Path],
        encodings: Mapping[str, Encoding],
        facts: Mapping[str, Facts],
        rules: DecodeRules,
        bytes_as: BytesAs,
    ) -> None:
        self._schema = pa.schema([f.with_nullable(True) for f in schema])
        self._bytes_as = bytes_as
        self._encodings = {f.name: for_column(encodings.get(f.name, Encoding()), f.type) for f in schema}
        wire = pa.schema([pa.field(f.name, json_type(self._encodings[f.name], f.type)) for f in schema])
        self._decoder = JsonDecoder(wire, {n: f for n, f in facts.items() if n in paths}, rules, paths)

    def decode(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """Rows and reasons."""
        wire, reason = self._decoder.decode(values)
        return finished(wire, reason, self._schema, self._encodings, self._bytes_as)


def finished(
    wire: pa.Table, reason: pa.Array, schema: pa.Schema, encodings: Mapping[str, Encoding], bytes_as: BytesAs
) -> tuple[pa.Table, pa.Array]:
    """Columns as they came, into ``schema``; a column that did not come is null."""
    columns = []
    for field in schema:
        if field.name not in wire.column_names:
            columns.append(pa.nulls(wire.num_rows, field.type))
            continue
        array, why = finish(flat(wire.column(field.name)), encodings[field.name], field, bytes_as)
        columns.append(array)
        if why is not None:
            reason = pc.coalesce(reason, why)
    return pa.Table.from_arrays(columns, schema=schema), reason
