"""Plain JSON: a record is a row. A Kafka message without a value deletes the row of its key.

With partial updates a record has some fields of a row: a missing field was not sent, and a field that is null becomes
null. Arrow's reader returns null for both. So where a column is null, the record's text is searched. If it does not
contain the field's name, the field was not sent. If it does, in a record without inner objects and escapes, it was
sent. The few other records are parsed one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tagstream.streaming.source.decode.columns import mask_of, nulls_of, pack_absent, text_where
from tagstream.streaming.source.decode.json_decoder import JsonDecoder
from tagstream.streaming.source.decode.record_format import (
    BY_PARTITION,
    FAULT,
    NO_FACTS,
    STRICT,
    DecodeRules,
    Events,
    Facts,
    Mask,
)
from tagstream.table.chunks import flat
from tagstream.table.errors import ConfigError, InvalidKeyError
from tagstream.table.keys.record_key import record_key_from_message

DELETED = "_hoodie_is_deleted"
_TEXT = pa.string()
_ALIAS = "@"  # not allowed in an Avro name


class PlainJson:
    """Plain JSON records. ``schema`` has :data:`DELETED`. ``key_fields`` with their types. ``partition_fields``: their
    columns. ``names_partition``: a key alone does not identify a row. ``partial``: records may lack fields.
    ``columns``: how many of the schema's fields, from the first on, are the row's (default: all). ``operation``: the
    column whose ``D`` marks deletes; None without one.
    """

    def __init__(
        self,
        schema: pa.Schema,
        facts: Mapping[str, Facts] | None,
        rules: DecodeRules = STRICT,
        *,
        key_fields: Sequence[str],
        key_types: Sequence[pa.DataType],
        names_partition: bool,
        refuse_collisions: bool,
        partition_fields: Sequence[str] = (),
        partial: bool = False,
        columns: int | None = None,
        delete_fields: Sequence[str] | None = None,
        operation: str | None = None,
    ) -> None:
        self.may_lack = partial
        self._operation = operation
        self._columns = len(schema) if columns is None else columns
        self._schema = schema
        self._facts = facts or {}
        self._names = {f.name: (f.name, *self._facts.get(f.name, NO_FACTS).aliases) for f in schema}
        self._loose = {f.name for f in schema if partial or len(self._names[f.name]) > 1}
        self._of_deletes = {f.name for f in schema if delete_fields is None or f.name in delete_fields}
        self._decoder = self._wire_decoder(rules)
        self._bare_deletes = self._delete_decoder(rules)
        self._key_fields = key_fields
        self._key_types = key_types
        self._names_partition = names_partition
        self._refuse_collisions = refuse_collisions
        self._place = {name.split(".")[0] for name in partition_fields}

    def _wire_decoder(self, rules: DecodeRules) -> JsonDecoder:
        """The decoder of the records as they are: a column with several names has one field for each. Missing fields
        are checked later.
        """
        if not self._loose:
            return JsonDecoder(self._schema, self._facts, rules)
        fields, paths, facts = [], {}, dict(self._facts)
        for field in self._schema:
            for name in self._names[field.name]:
                own = field.name if name == field.name else _ALIAS + name + _ALIAS + field.name
                fields.append(field.with_name(own).with_nullable(field.nullable or field.name in self._loose))
                paths[own] = (name,)
                facts[own] = self._facts.get(field.name, NO_FACTS)
                if field.name in self._loose:
                    facts[own] = replace(facts[own], default=None)
        return JsonDecoder(pa.schema(fields), facts, rules, paths)

    def _delete_decoder(self, rules: DecodeRules) -> JsonDecoder | None:
        """The decoder for deletes that only have their key, partition and ordering value. They write no row, so they
        need no other column.

        None where the schema requires no other column.
        """
        wire, paths = self._decoder.schema, self._decoder.paths
        self._free = [f.name for f in wire if not f.nullable and f.name not in self._of_deletes]
        if not self._free:
            return None
        schema = pa.schema([f.with_nullable(f.nullable or f.name in self._free) for f in wire])
        return JsonDecoder(schema, self._decoder.facts, rules, paths)

    def _decoded(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """(rows, why they are bad). Rows that are not deletes and lack a column are checked with the whole schema."""
        if self._bare_deletes is None:
            return self._decoder.decode(values)
        rows, reason = self._bare_deletes.decode(values)
        lacking = np.zeros(len(values), np.bool_)
        for name in self._free:
            if rows.column(name).null_count:
                lacking |= nulls_of(rows.column(name))
        at = np.flatnonzero(lacking & nulls_of(reason) & ~mask_of(rows.column(DELETED)))
        if not len(at):
            return rows, reason
        found, wrong = self._decoder.decode(values.take(pa.array(at)))
        place = np.arange(len(values))
        place[at] = len(values) + np.arange(len(at))
        both = pa.concat_tables([rows, found]).combine_chunks()
        return both.take(pa.array(place)), pa.concat_arrays([reason, wrong]).take(pa.array(place))

    def read(self, batch: pa.RecordBatch) -> Events:
        """The events of the records, without the blank lines of files."""
        batch = without_blank_lines(batch)
        rows, reason = self._decoded(batch.column("value"))
        tombstone = batch.column("value").is_null().to_numpy(zero_copy_only=False)
        lacking, keeps_place = None, None
        if self._loose:
            rows, reason, lacking, keeps_place = self._settled(batch.column("value"), rows, reason, tombstone)
        if FAULT in batch.schema.names:
            reason = pc.coalesce(batch.column(FAULT), reason)
        deleted = mask_of(rows.column(DELETED)) | operation_deletes(rows, self._operation)
        keys = None
        if tombstone.any():
            keys, reason = self._tombstones(batch.column("key"), tombstone, reason)
        nothing = np.zeros(batch.num_rows, np.bool_)
        return Events(
            batch, rows, reason, deleted | tombstone, tombstone, nothing, keys, absent=lacking, keeps_place=keeps_place
        )

    def _settled(
        self, values: pa.Array, wire: pa.Table, reason: pa.Array, tombstone: Mask
    ) -> tuple[pa.Table, pa.Array, pa.Array | None, Mask | None]:
        """(rows, reasons, the columns that were not sent, mask of upserts whose partition was not sent)."""
        good = nulls_of(reason) & ~tombstone
        columns: dict[str, pa.Array] = {}
        missing: dict[str, Mask] = {}
        for field in self._schema:
            column = flat(wire.column(field.name))
            for name in self._names[field.name][1:]:
                column = pc.coalesce(column, flat(wire.column(_ALIAS + name + _ALIAS + field.name)))
            if field.name in self._loose:
                missing[field.name] = not_sent(values, self._names[field.name], column, good)
                default = self._facts.get(field.name, NO_FACTS).default
                if default is not None and missing[field.name].any():
                    filled = pa.scalar(default).cast(field.type)
                    column = pc.if_else(pa.array(missing[field.name]), filled, column)
            columns[field.name] = column
        kinds = pa.schema([f.with_nullable(True) for f in self._schema])
        rows = pa.Table.from_arrays([columns[f.name] for f in kinds], schema=kinds)
        upsert = good & ~mask_of(rows.column(DELETED))
        for field in self._schema:
            if field.name not in self._loose or field.nullable:
                continue
            wrong = nulls_of(columns[field.name]) & good
            if self.may_lack:
                wrong &= ~missing[field.name] & upsert
            elif field.name not in self._of_deletes:
                wrong &= upsert
            reason = pc.coalesce(
                reason, text_where(wrong, f"field {field.name} is null or missing, which the schema forbids")
            )
        if not self.may_lack:
            return rows, reason, None, None
        return (rows, *self._lacking(missing, upsert, reason))

    def _lacking(
        self, missing: Mapping[str, Mask], upsert: Mask, reason: pa.Array
    ) -> tuple[pa.Array, pa.Array | None, Mask | None]:
        """(reasons, the columns that upserts lack, mask of those whose partition was not sent)."""
        names = self._schema.names
        masks = {i: missing[name] & upsert for i, name in enumerate(names[: self._columns]) if name != DELETED}
        place = [missing[name] & upsert for name in sorted(self._place)]
        if not place:
            return reason, pack_absent(masks, len(upsert), self._columns), None
        some, none = np.logical_or.reduce(place), np.logical_and.reduce(place)
        text = (
            f"has only some of the partition fields ({', '.join(sorted(self._place))}); send all of them, or none to keep "
            "the partition"
        )
        reason = pc.coalesce(reason, text_where(some & ~none, text))
        if self._names_partition:
            text = f"names no partition, which {BY_PARTITION}"
            reason = pc.coalesce(reason, text_where(none, text))
        return reason, pack_absent(masks, len(upsert), self._columns), none

    def _tombstones(self, message_keys: pa.Array, tombstone: Mask, reason: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Record keys of the Kafka tombstones, and all reasons. A loop over rows, since each message key is parsed
        separately.
        """
        keys: list[str | None] = [None] * len(message_keys)
        reasons = reason.to_pylist()
        for i in np.flatnonzero(tombstone).tolist():
            try:
                keys[i], reasons[i] = self._tombstone(message_keys[i].as_py()), None
            except InvalidKeyError as e:
                reasons[i] = f"tombstone: {e}"
        return pa.array(keys, _TEXT), pa.array(reasons, _TEXT)

    def _tombstone(self, message_key: bytes | None) -> str:
        if self._names_partition:
            raise InvalidKeyError(f"it names no partition, which {BY_PARTITION}")
        if message_key is None:
            raise InvalidKeyError("the message has no key, so the record to delete is unknown")
        try:
            text = message_key.decode("utf-8")
        except UnicodeDecodeError:
            raise InvalidKeyError("the message key is not UTF-8") from None
        refuse = self._refuse_collisions
        return record_key_from_message(self._key_fields, text, self._key_types, refuse_collisions=refuse)


def operation_deletes(rows: pa.Table, operation: str | None) -> Mask:
    """Mask of the rows whose operation is a delete, ``D`` or ``d`` (Hudi's AWSDmsAvroPayload)."""
    if operation is None or operation not in rows.column_names:
        return np.zeros(rows.num_rows, np.bool_)
    return mask_of(pc.is_in(flat(rows.column(operation)), value_set=pa.array(["D", "d"], pa.string())))


def without_blank_lines(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Remove lines of files that have only blanks. Kafka messages (no ``src``) stay, because they have a key."""
    if batch.column("src").null_count == batch.num_rows:
        return batch
    value, from_file = flat(batch.column("value")), pc.is_valid(batch.column("src"))
    # The cheap check first: a record begins with a brace.
    if pc.all(pc.starts_with(value, "{"), min_count=0).as_py():
        return batch
    blank = pc.fill_null(pc.match_substring_regex(value, r"^[ \t\r\n]*$"), False)
    return batch.filter(pc.invert(pc.and_(blank, from_file)))


def not_sent(texts: pa.Array, names: Sequence[str], column: pa.Array, good: Mask) -> Mask:
    """Mask of the ``good`` records (JSON) that have none of these field names. ``column`` has the fields' values."""
    at = np.flatnonzero(nulls_of(column) & good)
    out = np.zeros(len(texts), np.bool_)
    if not len(at):
        return out
    asked = flat(texts.take(pa.array(at))).cast(_TEXT)
    escaped = mask_of(pc.match_substring(asked, "\\"))
    pattern = "|".join(re.escape(f'"{name}"') for name in names)
    named = mask_of(pc.match_substring_regex(asked, f"(?:{pattern})[ \\t\\r\\n]*:"))
    inner = pc.greater(pc.count_substring(asked, "{"), 1).to_numpy(zero_copy_only=False)
    missing = ~named & ~escaped
    for i in np.flatnonzero(escaped | (named & inner)).tolist():
        missing[i] = not _has(asked[i].as_py(), names)
    out[at] = missing
    return out


def _has(text: str, names: Sequence[str]) -> bool:
    try:
        return any(name in json.loads(text) for name in names)
    except RecursionError:  # nested very deeply in a field that is not read; the name occurs in the text
        return True


def with_delete_mark(schema: pa.Schema) -> pa.Schema:
    """The schema with the field that marks deletes. Without it, a delete would become an upsert where the table has no
    such column.

    ConfigError where the field exists with another type.
    """
    if DELETED not in schema.names:
        return schema.append(pa.field(DELETED, pa.bool_()))
    if not pa.types.is_boolean(schema.field(DELETED).type):
        raise ConfigError(f"field {DELETED} is {schema.field(DELETED).type}; it marks deletes and must be boolean")
    return schema
