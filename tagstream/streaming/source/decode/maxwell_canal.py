"""Maxwell's JSON and Canal's flat messages: change records with whole rows, and which of their columns changed.

Maxwell (its documentation, "Data format"): ``data`` is the row, ``old`` has the columns that an update changed. Canal
(its documentation, "FlatMessage"): ``data`` is an array of rows whose values are all texts.

Both have one record for a changed key. Here it becomes a delete of the old key and an upsert of the new one, in this
order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.arrow_columns import latin1_bytes
from tagstream.streaming.source.decode.columns import mask_of, nulls_of, text_where
from tagstream.streaming.source.decode.encodings import fitted
from tagstream.streaming.source.decode.file_values import typed
from tagstream.streaming.source.decode.json_decoder import JsonDecoder
from tagstream.streaming.source.decode.plain_json import without_blank_lines
from tagstream.streaming.source.decode.record_decoder import Path
from tagstream.streaming.source.decode.record_format import DecodeRules, Events, Facts, Mask
from tagstream.streaming.source.decode.row_messages import TRUNCATE, NameReader, SourceTables, TableFilter, name_fields
from tagstream.table.chunks import flat
from tagstream.table.keys.keys import KeyGenerator

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Images:
    """Row images in the order of the source. ``record``: the number of each image's message in the batch. ``old``: the
    old values of the key columns, null where they did not change.
    """

    record: Ints
    rows: pa.Table
    deleted: Mask
    skipped: Mask
    reason: pa.Array
    old: pa.Table


def events_of(batch: pa.RecordBatch, images: Images, generator: KeyGenerator) -> Events:
    """The images as events. Of several images of one key in a message only the last counts."""
    n = len(images.record)
    good = ~images.deleted & ~images.skipped & nulls_of(images.reason)
    changed = np.zeros(n, np.bool_)
    old_rows = images.rows
    for name in generator.record_key_fields:
        was, now = flat(images.old.column(name)), flat(images.rows.column(name))
        changed |= good & mask_of(pc.and_(was.is_valid(), pc.fill_null(pc.not_equal(was, now), True)))
        i = old_rows.schema.get_field_index(name)
        old_rows = old_rows.set_column(i, old_rows.schema.field(i), pc.coalesce(was, now))
    # The delete of an old key comes before its upsert.
    order = np.argsort(np.concatenate([np.flatnonzero(changed) * 2, np.arange(n) * 2 + 1]), kind="stable")
    take = np.concatenate([np.flatnonzero(changed) + n, np.arange(n)])[order]
    of_image = np.where(take >= n, take - n, take)
    rows = pa.concat_tables([images.rows, old_rows]).take(pa.array(take))
    deleted = images.deleted[of_image] | (take >= n)
    skipped, reason = images.skipped[of_image], images.reason.take(pa.array(of_image))
    record = images.record[of_image]
    last = _last_of_key(generator.record_keys(rows), record, skipped | ~nulls_of(reason))
    if not last.all():
        keep = pa.array(last)
        rows, reason = rows.filter(keep), reason.filter(keep)
        deleted, skipped, record = deleted[last], skipped[last], record[last]
    events = pa.RecordBatch.from_arrays([c.take(pa.array(record)) for c in batch.columns], names=batch.schema.names)
    return Events(events, rows, reason, deleted, deleted, skipped)


def _last_of_key(keys: pa.Array, record: Ints, aside: Mask) -> Mask:
    """Mask of images without a later one of the same message and key, and of all images without a key."""
    n = len(record)
    if n == len(np.unique(record)):
        return np.ones(n, np.bool_)
    codes = pc.fill_null(pc.dictionary_encode(keys).indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    both = record * (n + 1) + codes
    last = np.zeros(n, np.bool_)
    _, first_from_end = np.unique(both[::-1], return_index=True)
    last[n - 1 - first_from_end] = True
    last |= aside | (codes < 0)
    return last


_TYPE, _OLD = "@type", "@old."
_UPSERTS, _DELETES = ("insert", "update", "bootstrap-insert"), ("delete",)
_NO_ROWS = ("bootstrap-start", "bootstrap-complete", "heartbeat")
_DDL = r"^(table|database)-(create|alter|drop)$"


class MaxwellJson:
    """Maxwell's messages as events. The record key is made from the row, whichever key the producer gives the message."""

    may_lack = False

    def __init__(
        self,
        schema: pa.Schema,
        facts: Mapping[str, Facts],
        rules: DecodeRules,
        generator: KeyGenerator,
        gate: TableFilter | None = None,
    ) -> None:
        self._gate = gate or TableFilter(SourceTables())
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
        """Whether the stream has no table yet. It will use the first table that it sees."""
        return self._gate.is_open

    def first_table(self) -> str | None:
        """The first table that was seen since the last call, for a stream that has none yet."""
        return self._gate.take_first()

    def read(self, batch: pa.RecordBatch) -> Events:
        """The events. Messages about schemas and bootstraps have no row."""
        batch = without_blank_lines(batch)
        values = flat(batch.column("value"))
        empty = nulls_of(values)  # a compacted topic's tombstone: its delete comes before it
        found, reason, sifted = self._names.decode(pc.fill_null(values, b"{}"), self._decoder.decode)
        foreign = self._names.foreign(found, sifted)
        kind = flat(found.column(_TYPE))
        upsert = mask_of(pc.is_in(kind, value_set=pa.array(_UPSERTS))) & ~foreign
        deleted = mask_of(pc.is_in(kind, value_set=pa.array(_DELETES))) & ~foreign
        skipped = mask_of(pc.is_in(kind, value_set=pa.array(_NO_ROWS))) | empty
        skipped |= mask_of(pc.match_substring_regex(kind, _DDL))
        known = upsert | deleted | skipped | foreign
        reason = pc.coalesce(reason, text_where(~known, "not a Maxwell message: its type is unknown"))
        if foreign.any():
            reason = pc.if_else(pa.array(foreign), self._gate.reasons(found, foreign), reason)
        if self._gate.skips:
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


_ROWS = ("INSERT", "UPDATE", "DELETE")


class CanalJson:
    """Canal's messages as events, one per row."""

    may_lack = False

    def __init__(
        self,
        schema: pa.Schema,
        rules: DecodeRules,
        generator: KeyGenerator,
        gate: TableFilter | None = None,
        truncate: str = "fail",
    ) -> None:
        self._gate = gate or TableFilter(SourceTables())
        self._names = NameReader(self._gate, [(("database",), (), ("table",))])
        self._truncate_fails = truncate == "fail"
        self._rules = rules
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
        """Whether the stream has no table yet. It will use the first table that it sees."""
        return self._gate.is_open

    def first_table(self) -> str | None:
        """The first table that was seen since the last call, for a stream that has none yet."""
        return self._gate.take_first()

    def read(self, batch: pa.RecordBatch) -> Events:
        """The events. DDL statements and messages without rows have none."""
        batch = without_blank_lines(batch)
        values = flat(batch.column("value"))
        found, reason, sifted = self._names.decode(pc.fill_null(values, b'{"isDdl":true}'), self._decoder.decode)
        foreign = self._names.foreign(found, sifted)
        kind, data, old = (flat(found.column(name)) for name in ("type", "data", "old"))
        ddl = mask_of(found.column("isDdl"))
        known = mask_of(pc.is_in(kind, value_set=pa.array(_ROWS)))
        of_no_row = ddl | (known & (pc.fill_null(pc.list_value_length(data), 0).to_numpy() == 0))
        of_no_row |= ~known & ~nulls_of(kind) & nulls_of(data)  # QUERY, TRUNCATE, CREATE, ... without isDdl
        reason = pc.coalesce(reason, text_where(~known & ~of_no_row, "not a Canal message: its type is unknown"))
        if self._truncate_fails:
            reason = pc.coalesce(reason, text_where(mask_of(pc.equal(kind, "TRUNCATE")), TRUNCATE))
        if foreign.any():
            reason = pc.if_else(pa.array(foreign), self._gate.reasons(found, foreign), reason)
        if self._gate.skips:
            of_no_row |= foreign
        bad = ~nulls_of(reason)
        # A message without rows becomes one image, so that it is counted or quarantined.
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
            if pa.types.is_binary(field.type):  # one byte per character
                text, doubt = latin1_bytes(text)
                if doubt is not None:
                    reason = pc.coalesce(
                        reason, text_where(doubt, f"field {field.name} has a character that is not a byte")
                    )
                text = text.cast(pa.binary())
            if pa.types.is_timestamp(field.type) and field.type.tz:  # its texts have no zone and are read as UTC
                local, why = fitted(text, field.with_type(pa.timestamp(field.type.unit)))
                column = local.cast(field.type)
            elif pa.types.is_time(field.type) or pa.types.is_nested(field.type):  # Arrow casts no text to them
                column, why = typed(text, field, self._rules)
            else:
                column, why = fitted(text, field)
            columns.append(column)
            if why is not None:
                reason = pc.coalesce(reason, why)
        return pa.Table.from_arrays(columns, schema=self._schema), reason

    def _old(self, old: pa.Array, length: np.ndarray, record: np.ndarray) -> pa.Table:
        """The old values of the key columns, one entry per image; null where an update did not change them."""
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
