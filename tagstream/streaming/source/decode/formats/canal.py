"""Canal's flat messages (its documentation, "FlatMessage"): ``data`` is an array of rows, all of whose values are texts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import mask_of, nulls_of, text_where
from tagstream.streaming.source.decode.convert import latin1_bytes
from tagstream.streaming.source.decode.events import Events
from tagstream.streaming.source.decode.formats.encodings import fitted
from tagstream.streaming.source.decode.formats.row_images import Images, events_of
from tagstream.streaming.source.decode.json_decoder import JsonDecoder
from tagstream.streaming.source.decode.messages.rowless import EMPTIED
from tagstream.streaming.source.decode.messages.tables import NameReader, SourceTables, TableGate, name_fields
from tagstream.streaming.source.decode.plain_json import without_blank_lines
from tagstream.streaming.source.decode.record import Path
from tagstream.streaming.source.decode.rules import DecodeRules
from tagstream.table.chunks import flat
from tagstream.table.keys.keys import KeyGenerator

_ROWS = ("INSERT", "UPDATE", "DELETE")


class CanalJson:
    """Canal's messages as events, a row each."""

    may_lack = False

    def __init__(
        self,
        schema: pa.Schema,
        rules: DecodeRules,
        generator: KeyGenerator,
        gate: TableGate | None = None,
        truncate: str = "fail",
    ) -> None:
        self._gate = gate or TableGate(SourceTables())
        self._names = NameReader(self._gate, [(("database",), (), ("table",))])
        self._truncate_fails = truncate == "fail"
        self._generator = generator
        self._schema = pa.schema([f.with_nullable(True) for f in schema])
        self._required = [f.name for f in schema if not f.nullable]
        row = pa.struct([pa.field(f.name, pa.string()) for f in schema])
        old = pa.struct([pa.field(name, pa.string()) for name in generator.record_key_fields])
        wire = [("type", pa.string()), ("isDdl", pa.bool_()), ("data", pa.list_(row)), ("old", pa.list_(old))]
        names, places = name_fields(("database",), (), ("table",))
        paths: dict[str, Path] = {name: (name,) for name, _ in wire} | places
        self._decoder = JsonDecoder(
            pa.schema([*(pa.field(name, kind) for name, kind in wire), *names]), None, rules, paths
        )

    @property
    def wants_table(self) -> bool:
        """Whether the stream has no table yet: it will be the first one that is seen."""
        return self._gate.is_open

    def first_table(self) -> str | None:
        """The first table that was seen since the last call, of a stream that has none yet."""
        return self._gate.take_first()

    def read(self, batch: pa.RecordBatch) -> Events:
        """The events; statements that define (DDL) and messages without rows are of none."""
        batch = without_blank_lines(batch)
        values = flat(batch.column("value"))
        found, reason, sifted = self._names.decode(pc.fill_null(values, b'{"isDdl":true}'), self._decoder.decode)
        foreign = self._names.foreign(found, sifted)
        kind, data, old = (flat(found.column(name)) for name in ("type", "data", "old"))
        ddl = mask_of(found.column("isDdl"))
        known = mask_of(pc.is_in(kind, value_set=pa.array(_ROWS)))
        of_no_row = ddl | (known & (pc.fill_null(pc.list_value_length(data), 0).to_numpy() == 0))
        of_no_row |= ~known & ~nulls_of(kind) & nulls_of(data)  # QUERY, TRUNCATE, CREATE, ... without isDdl
        reason = pc.coalesce(reason, text_where(~known & ~of_no_row, "no Canal message: its type is unknown"))
        if self._truncate_fails:
            reason = pc.coalesce(reason, text_where(mask_of(pc.equal(kind, "TRUNCATE")), EMPTIED))
        if foreign.any():
            reason = pc.if_else(pa.array(foreign), self._gate.reasons(found, foreign), reason)
        if self._gate.passes_over:
            of_no_row |= foreign
        bad = ~nulls_of(reason)
        # a message without rows stands as one image, so that it is counted or quarantined
        alone = bad | of_no_row
        data = pc.if_else(pa.array(alone), pa.scalar([None], data.type), data)
        length = pc.list_value_length(data).to_numpy().astype(np.int64)
        record = np.repeat(np.arange(len(length)), length)
        rows, why = self._rows(pc.list_flatten(data))
        deleted = mask_of(pc.equal(kind, "DELETE"))[record]
        aside = alone[record]
        for name in self._required:
            wrong = nulls_of(rows.column(name)) & ~deleted & ~aside
            why = pc.coalesce(why, text_where(wrong, f"field {name} is null, which the schema forbids"))
        reason = pc.coalesce(reason.take(pa.array(record)), why)
        skipped = (of_no_row & ~bad)[record]
        images = Images(record, rows, deleted, skipped, reason, self._old(old, length, record))
        return events_of(batch, images, self._generator)

    def _rows(self, texts: pa.StructArray) -> tuple[pa.Table, pa.Array]:
        """The rows in the table's types, and why one does not fit."""
        reason = pa.nulls(len(texts), pa.string())
        columns = []
        for field, text in zip(self._schema, texts.flatten(), strict=True):
            if pa.types.is_binary(field.type):  # a byte a character
                text, doubt = latin1_bytes(text)
                if doubt is not None:
                    reason = pc.coalesce(
                        reason, text_where(doubt, f"field {field.name} has a character that is no byte")
                    )
                text = text.cast(pa.binary())
            if pa.types.is_timestamp(field.type) and field.type.tz:  # its texts have no zone; they are taken as UTC
                local, why = fitted(text, field.with_type(pa.timestamp(field.type.unit)))
                column = local.cast(field.type)
            else:
                column, why = fitted(text, field)
            columns.append(column)
            if why is not None:
                reason = pc.coalesce(reason, why)
        return pa.Table.from_arrays(columns, schema=self._schema), reason

    def _old(self, old: pa.Array, length: np.ndarray, record: np.ndarray) -> pa.Table:
        """The key columns as they were, an entry an image; null where an update did not change them."""
        n = len(record)
        have = pc.fill_null(pc.list_value_length(old), 0).to_numpy().astype(np.int64)
        begin = np.cumsum(have) - have
        at = np.arange(n) - np.repeat(np.cumsum(length) - length, length)
        place = np.where(at < have[record], begin[record] + at, -1)
        texts = pc.list_flatten(old).take(pa.array(place, mask=place < 0))
        columns = {}
        for name, text in zip(self._generator.record_key_fields, texts.flatten(), strict=True):
            columns[name] = fitted(text, self._schema.field(name))[0]
        return pa.table(columns)
