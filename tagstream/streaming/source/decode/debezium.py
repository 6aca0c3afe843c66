"""Debezium's change events: what an envelope means for a row, in JSON or Avro.

Source: Debezium's documentation of its PostgreSQL and MySQL connectors ("Data change events"), checked on captured
streams. The record key is the message's key. A delete only uses the key: under the default replica identity, ``before``
has zeros in NOT NULL columns. The order is the position in the source's log, and never a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import (
    mask_of,
    nulls_of,
    only_where,
    pack_absent,
    text_where,
    with_values,
)
from tagstream.streaming.source.decode.connect_json import Body
from tagstream.streaming.source.decode.debezium_envelope import (
    BEFORE,
    FLAT_PLACES,
    LSN,
    OP,
    PLACES,
    SNAPSHOT,
    UNAVAILABLE_VALUE,
    Order,
    Placeholder,
    binlog_order,
)
from tagstream.streaming.source.decode.plain_json import without_blank_lines
from tagstream.streaming.source.decode.record_format import BY_PARTITION, Events, Mask
from tagstream.streaming.source.decode.row_messages import (
    NO_ROW,
    TABLE,
    TRUNCATE,
    NameReader,
    SourceTables,
    TableFilter,
    signals,
    without_row,
)
from tagstream.table.chunks import flat
from tagstream.table.fields import column_of
from tagstream.table.keys.keys import KeyGenerator

_TEXT = pa.string()


@dataclass(frozen=True)
class DebeziumRules:
    """``order``: what orders the events where the table has no ordering field. ``truncate``: what a TRUNCATE does.
    ``placeholder``: the text for values that were not sent.
    """

    order: Order = "lsn"
    truncate: Literal["fail", "delete", "ignore"] = "fail"
    placeholder: str = UNAVAILABLE_VALUE


class DebeziumEvents:
    """Converts envelopes to events.

    ``keys`` decodes message keys to the key columns. ``body`` decodes values to the row's columns and additional ones
    (``debezium_envelope.beside``). ``ordered``: the table has an ordering field. ``needs_message_key``: the key is not
    in the row. ``gate``: separates events of other tables. ``json``: the form of values in JSON; None: they are Avro or
    Protobuf. ``no_value``: what ``body`` gets in place of a null; None: the null.
    """

    may_lack = True

    def __init__(
        self,
        schema: pa.Schema,
        generator: KeyGenerator,
        body: Body,
        keys: Body,
        rules: DebeziumRules,
        *,
        ordered: bool,
        global_index: bool,
        needs_message_key: bool = True,
        gate: TableFilter | None = None,
        json: Literal["envelopes", "rows"] | None = "envelopes",
        no_value: bytes | None = b"{}",
    ) -> None:
        self._schema = pa.schema([f.with_nullable(True) for f in schema])
        self._required = [f.name for f in schema if not f.nullable]
        self._generator = generator
        self._body = body
        self._keys = keys
        self._rules = rules
        self._ordered = ordered
        self._global = global_index
        self._needs_message_key = needs_message_key
        self._gate = gate or TableFilter(SourceTables())
        self._json = json
        self._no_value = no_value
        self._names = None
        if json is not None:
            self._names = NameReader(self._gate, FLAT_PLACES if json == "rows" else PLACES)
        outside = set(generator.partition_fields) - set(generator.record_key_fields)
        self._no_place = sorted(outside) if not global_index else []
        self._placeholder = Placeholder(rules.placeholder)

    @property
    def wants_table(self) -> bool:
        """Whether the stream has no table yet. It will use the first table that it sees."""
        return self._gate.is_open

    def first_table(self) -> str | None:
        """The first table that was seen since the last call, for a stream that has none yet."""
        return self._gate.take_first()

    def read(self, batch: pa.RecordBatch) -> Events:
        """The events of the records, without the blank lines of files."""
        batch = without_blank_lines(batch)
        value = flat(batch.column("value"))
        tombstone = nulls_of(value)
        if self._no_value is not None and tombstone.any():
            value = pc.fill_null(value, self._no_value)
        sifted = None
        if self._names is None:
            body, reason = self._body.decode(value)
        else:
            body, reason, sifted = self._names.decode(value, self._body.decode)
        op = flat(body.column(OP))
        if tombstone.any():
            op = pc.if_else(pa.array(tombstone), pa.scalar("d"), op)
        reason = only_where(~tombstone, reason)
        body, foreign, signal = self._foreign(body, value, sifted)
        upsert, delete = _is(op, "c", "r", "u") & ~(foreign | signal), _is(op, "d")
        truncate = _is(op, "t") & ~foreign
        skipped, why = self._no_rows(op, upsert | delete | foreign | signal, truncate)
        no_row = signal | mask_of(pc.equal(reason, NO_ROW)) | self._without_row(value, op, body, upsert, foreign)
        reason = pc.coalesce(reason, why)
        if (aside := no_row | foreign).any():
            reason = pc.if_else(pa.array(aside), self._gate.reasons(body, foreign), reason)
        skipped |= no_row | self._after_its_delete(batch, tombstone, delete & ~tombstone)
        if self._gate.skips:  # a tombstone names no table; the delete before it counts
            skipped |= foreign | tombstone
        upsert, delete = upsert & ~no_row, delete & ~(foreign | signal)
        rows = self._with_keys(body, batch, delete & ~skipped)
        reason = pc.coalesce(reason, self._key_faults(batch, upsert | delete, rows, delete & ~skipped))
        reason = pc.coalesce(reason, self._nulls(rows, upsert))
        truncates = truncate if self._rules.truncate == "delete" else None
        ordering, unordered, why = self._order(body, tombstone, upsert | delete | (truncate & (truncates is not None)))
        reason = pc.coalesce(reason, why)
        lacking, old_keys, why = self._lacking(rows, batch, upsert)
        reason = pc.coalesce(reason, why)
        skipped &= nulls_of(reason)
        changed, new_keys = self._changed(batch, delete & ~skipped)
        if truncates is not None:
            truncates = truncates & skipped
        return Events(
            batch, rows, reason, delete, delete, skipped, None, ordering, unordered, lacking, old_keys, changed, new_keys,
            truncates=truncates,
        )  # fmt: skip

    def _foreign(self, body: pa.Table, value: pa.Array, sifted: Mask | None) -> tuple[pa.Table, Mask, Mask]:
        """(the rows, mask of events of other tables, mask of signals). A stream's first table is never taken from a
        signal.
        """
        if self._names is None or sifted is None:
            return body, self._gate.foreign(body), np.zeros(body.num_rows, np.bool_)
        if self._gate.is_open and self._json == "envelopes":
            signal = signals(value, np.ones(body.num_rows, np.bool_))
            if signal.any():
                i = body.schema.get_field_index(TABLE)
                body = body.set_column(i, body.schema.field(i), only_where(~signal, flat(body.column(i))))
            return body, self._gate.foreign(body), signal
        foreign = self._names.foreign(body, sifted)
        signal = signals(value, foreign & ~sifted)  # messages that were not decoded are skipped anyway
        return body, foreign & ~signal, signal

    def _without_row(self, value: pa.Array, op: pa.Array, body: pa.Table, upsert: Mask, foreign: Mask) -> Mask:
        """Mask of messages without a row. In a flattened stream they are rows without a key."""
        if self._json is None:
            return np.zeros(len(op), np.bool_)
        asked = nulls_of(op)
        if self._gate.skips:
            asked &= ~foreign
        if self._json == "rows":
            asked = asked | (upsert & nulls_of(body.column(self._generator.record_key_fields[0])))
        return without_row(value, asked)

    def _no_rows(self, op: pa.Array, of_row: Mask, truncate: Mask) -> tuple[Mask, pa.Array]:
        """(mask of events without a row, why others are bad)."""
        message = _is(op, "m")
        known = of_row | truncate | message
        reason = text_where(~known, "not a Debezium event: its op is not c, r, u, d, t or m (is it another format?)")
        if self._rules.truncate == "fail":
            reason = pc.coalesce(reason, text_where(truncate, TRUNCATE))
        return message | (truncate if self._rules.truncate != "fail" else np.zeros(len(op), np.bool_)), reason

    @staticmethod
    def _after_its_delete(batch: pa.RecordBatch, tombstone: Mask, delete: Mask) -> Mask:
        """Mask of tombstones that only repeat the delete before them, with the same topic partition and key."""
        at = np.flatnonzero(tombstone)
        at = at[at > 0]
        skip = np.zeros(len(tombstone), np.bool_)
        if not len(at):
            return skip
        keys, where = flat(batch.column("key")), flat(batch.column("pos_hi")).to_numpy()
        same = mask_of(pc.equal(keys.take(pa.array(at)), keys.take(pa.array(at - 1))))
        skip[at] = same & delete[at - 1] & (where[at] == where[at - 1])
        return skip

    def _with_keys(self, body: pa.Table, batch: pa.RecordBatch, delete: Mask) -> pa.Table:
        """The rows. Deletes have only the key columns of their message, or of ``before`` where the message has no key."""
        rows = body.select(self._schema.names)
        at = np.flatnonzero(delete)
        if not len(at):
            return rows
        found, _ = self._keys.decode(pc.fill_null(flat(batch.column("key")).take(pa.array(at)), b"{}"))
        place = np.full(len(delete), -1, np.int64)
        place[at] = np.arange(len(at))
        take = pa.array(place, mask=place < 0)
        given = pa.array(delete)
        for name in self._generator.record_key_fields:
            key = flat(found.column(name)).take(take)
            if BEFORE + name in body.column_names:
                key = pc.coalesce(key, flat(body.column(BEFORE + name)))
            rows = with_values(rows, name, given, key)
        return rows

    def _key_faults(self, batch: pa.RecordBatch, of_row: Mask, rows: pa.Table, delete: Mask) -> pa.Array:
        """Why an event does not identify its row: a message without a key, or a delete whose key lacks a column."""
        keyless = nulls_of(batch.column("key")) & nulls_of(batch.column("src")) & of_row
        if not self._needs_message_key:
            keyless &= nulls_of(batch.column("value"))
        text = (
            "the message has no key, so its row is unknown: give the source's table a primary key, or set the connector's "
            "message.key.columns"
        )
        reason = text_where(keyless, text)
        for name in self._generator.record_key_fields if delete.any() else ():
            missing = delete & nulls_of(column_of(rows, name))
            reason = pc.coalesce(reason, text_where(missing, f"the key of this delete has no column {name}"))
        for name in self._no_place:
            lost = delete & nulls_of(column_of(rows, name))
            text = f"this delete names no {name}, which {BY_PARTITION}"
            reason = pc.coalesce(reason, text_where(lost, text))
        return reason

    def _nulls(self, rows: pa.Table, upsert: Mask) -> pa.Array:
        reason = pa.nulls(len(upsert), _TEXT)
        for name in self._required:
            wrong = nulls_of(rows.column(name)) & upsert
            if wrong.any():
                reason = pc.coalesce(reason, text_where(wrong, f"field {name} is null, which the schema forbids"))
        return reason

    def _order(self, body: pa.Table, tombstone: Mask, of_row: Mask) -> tuple[pa.Array | None, Mask, pa.Array]:
        """(ordering values, mask of upserts that may lack one, why others have none).

        A row of an incremental snapshot has no position in the log. It is newer than all records before it in its
        partition, so it keeps the row's ordering value and wins by arrival.
        """
        order, nothing = self._rules.order, pa.nulls(len(tombstone), _TEXT)
        snapshot = np.zeros(len(tombstone), np.bool_)
        if order == "arrival":
            return None, snapshot, nothing
        if order == "lsn":
            values = flat(body.column(LSN))
            snapshot = mask_of(pc.equal(flat(body.column(SNAPSHOT)), "incremental"))
            where = "source.lsn"
        else:
            values, where = binlog_order(body), "source.file, pos and row"
        if self._ordered:
            return None, snapshot, nothing
        missing = nulls_of(values) & of_row & ~tombstone & ~snapshot
        text = f"has no {where}, which tagstream.debezium.order={order} needs"
        return only_where(~tombstone, values), snapshot, text_where(missing, text)

    def _changed(self, batch: pa.RecordBatch, delete: Mask) -> tuple[Mask | None, pa.Array | None]:
        """(mask of deletes whose rows continue with another key, the record keys of those rows)."""
        if "new_key" not in batch.schema.names:
            return None, None
        header = flat(batch.column("new_key"))
        changed = delete & ~nulls_of(header)
        return (changed, self._named_keys(header, changed)) if changed.any() else (None, None)

    def _named_keys(self, header: pa.Array, where: Mask) -> pa.Array:
        """The record keys in headers, null for other rows."""
        at = np.flatnonzero(where)
        found, _ = self._keys.decode(header.take(pa.array(at)))
        place = np.full(len(header), -1, np.int64)
        place[at] = np.arange(len(at))
        return self._generator.record_keys(found).take(pa.array(place, mask=place < 0))

    def _lacking(
        self, rows: pa.Table, batch: pa.RecordBatch, upsert: Mask
    ) -> tuple[pa.Array | None, pa.Array | None, pa.Array]:
        """(columns that were not sent, keys of the rows that have them after a change of key, why these are unknown)."""
        masks = {
            i: self._placeholder.find(flat(rows.column(f.name))) & upsert
            for i, f in enumerate(self._schema)
            if self._placeholder.can_be_in(f.type)
        }
        lacking = pack_absent(masks, len(upsert), len(self._schema))
        reason = pa.nulls(len(upsert), _TEXT)
        if lacking is None or "old_key" not in batch.schema.names:
            return lacking, None, reason
        header = flat(batch.column("old_key"))
        asked = ~nulls_of(lacking) & ~nulls_of(header)
        if not asked.any():
            return lacking, None, reason
        keys = self._named_keys(header, asked)
        unknown = nulls_of(keys) & asked
        text = "its header __debezium.oldkey, which names the row with the values that were not sent, has no key"
        reason = text_where(unknown, text)
        if not self._global:
            text = "values that were not sent are in the row of another key, which needs index.global.enabled=true"
            reason = pc.coalesce(reason, text_where(asked, text))
        return lacking, keys, reason


def _is(op: pa.Array, *wanted: str) -> Mask:
    return mask_of(pc.is_in(op, value_set=pa.array(wanted, _TEXT)))
