"""Maxwell's JSON (its documentation, "Data format"): ``data`` is the row, ``old`` the columns that an update changed."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import mask_of, nulls_of, text_where
from tagstream.streaming.source.decode.events import Events
from tagstream.streaming.source.decode.facts import Facts
from tagstream.streaming.source.decode.formats.row_images import Images, events_of
from tagstream.streaming.source.decode.json_decoder import JsonDecoder
from tagstream.streaming.source.decode.messages.tables import NameReader, SourceTables, TableGate, name_fields
from tagstream.streaming.source.decode.plain_json import without_blank_lines
from tagstream.streaming.source.decode.record import Path
from tagstream.streaming.source.decode.rules import DecodeRules
from tagstream.table.chunks import flat
from tagstream.table.keys.keys import KeyGenerator

_TYPE, _OLD = "@type", "@old."
_UPSERTS, _DELETES = ("insert", "update", "bootstrap-insert"), ("delete",)
_NO_ROWS = ("bootstrap-start", "bootstrap-complete", "heartbeat")
_DDL = r"^(table|database)-(create|alter|drop)$"


class MaxwellJson:
    """Maxwell's messages as events; the key is that of the row, whichever key the producer gives the message."""

    may_lack = False

    def __init__(
        self,
        schema: pa.Schema,
        facts: Mapping[str, Facts],
        rules: DecodeRules,
        generator: KeyGenerator,
        gate: TableGate | None = None,
    ) -> None:
        self._gate = gate or TableGate(SourceTables())
        self._names = NameReader(self._gate, [(("database",), (), ("table",))])
        self._generator = generator
        self._schema = pa.schema([f.with_nullable(True) for f in schema])
        self._required = [f.name for f in schema if not f.nullable]
        keys = generator.record_key_fields
        old = [schema.field(name).with_name(_OLD + name).with_nullable(True) for name in keys]
        paths: dict[str, Path] = {f.name: ("data", f.name) for f in schema}
        paths.update({_OLD + name: ("old", name) for name in keys})
        names, places = name_fields(("database",), (), ("table",))
        wire = pa.schema([*self._schema, pa.field(_TYPE, pa.string()), *names, *old])
        self._decoder = JsonDecoder(wire, facts, rules, paths | places | {_TYPE: ("type",)})

    @property
    def wants_table(self) -> bool:
        """Whether the stream has no table yet: it will be the first one that is seen."""
        return self._gate.is_open

    def first_table(self) -> str | None:
        """The first table that was seen since the last call, of a stream that has none yet."""
        return self._gate.take_first()

    def read(self, batch: pa.RecordBatch) -> Events:
        """The events; messages about schemas and bootstraps are of no row."""
        batch = without_blank_lines(batch)
        values = flat(batch.column("value"))
        empty = nulls_of(values)  # a compacted topic's tombstone: its delete stands before it
        found, reason, sifted = self._names.decode(pc.fill_null(values, b"{}"), self._decoder.decode)
        foreign = self._names.foreign(found, sifted)
        kind = flat(found.column(_TYPE))
        upsert = mask_of(pc.is_in(kind, value_set=pa.array(_UPSERTS))) & ~foreign
        deleted = mask_of(pc.is_in(kind, value_set=pa.array(_DELETES))) & ~foreign
        skipped = mask_of(pc.is_in(kind, value_set=pa.array(_NO_ROWS))) | empty
        skipped |= mask_of(pc.match_substring_regex(kind, _DDL))
        known = upsert | deleted | skipped | foreign
        reason = pc.coalesce(reason, text_where(~known, "no Maxwell message: its type is unknown"))
        if foreign.any():
            reason = pc.if_else(pa.array(foreign), self._gate.reasons(found, foreign), reason)
        if self._gate.passes_over:
            skipped |= foreign
        for name in self._required:
            wrong = upsert & nulls_of(found.column(name))
            reason = pc.coalesce(reason, text_where(wrong, f"field {name} is null, which the schema forbids"))
        skipped = skipped & (nulls_of(reason) | empty)
        reason = pc.if_else(pa.array(skipped), pa.scalar(None, pa.string()), reason)
        keys = self._generator.record_key_fields
        old = pa.table({name: flat(found.column(_OLD + name)) for name in keys})
        rows = found.select(self._schema.names)
        images = Images(np.arange(batch.num_rows), rows, deleted, skipped, reason, old)
        return events_of(batch, images, self._generator)
