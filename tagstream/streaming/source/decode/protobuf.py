"""Protobuf messages of one type, with or without Confluent's frame (``proto_schema`` says what becomes a column).

ptars decodes a whole column of messages, or refuses it for one message that is damaged. Then its halves are decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import descriptor_pb2, descriptor_pool
from ptars import HandlerPool, PtarsConfig

from tagstream.streaming.source.decode.columns import mask_of, nulls_of, only_where, text_where
from tagstream.streaming.source.decode.encodings import of_whole
from tagstream.streaming.source.decode.file_rows import text_faults
from tagstream.streaming.source.decode.file_values import Made, first_of, missing, parts_of, typed
from tagstream.streaming.source.decode.proto_rules import ProtoRules
from tagstream.streaming.source.decode.proto_schema import (
    OVERFLOW_BYTES,
    OVERFLOW_NAME,
    ROOT,
    Node,
    ProtoMessage,
    proto_message,
)
from tagstream.streaming.source.decode.record_format import NO_FACTS, DecodeRules, Facts
from tagstream.streaming.source.decode.typed_rows import may_lack_all, missing_values
from tagstream.table.fields import struct_of

_MAGIC_BYTES = 5  # a zero byte, and the schema's id
_FIRST_S, _LAST_S = -62_135_596_800, 253_402_300_799  # the years 1 to 9999, those of a Timestamp
_MICROS = pa.timestamp("us", "UTC")


class ProtoBody:
    """Decodes values. ``schema``: the requested columns, which are fields of the message, or missing in it. ``facts``:
    of the row's columns.
    """

    def __init__(
        self,
        schema: pa.Schema,
        names: Mapping[str, str],
        facts: Mapping[str, Facts],
        proto: ProtoRules,
        rules: DecodeRules,
    ) -> None:
        """``names``: the field of each column."""
        self._schema = pa.schema([f.with_nullable(True) for f in schema])
        self._free = pa.schema([f.with_type(may_lack_all(f.type)) for f in self._schema])
        self._names = names
        self._facts = facts
        self._rules = rules
        self._framed = proto.framed
        self._message = proto_message(proto)
        self._nodes = {node.name: node for node in self._message.fields}
        first = self._message.index == b"\0"  # one byte in place of a count and a number; some clients write both
        self._places = (b"\0", b"\2\0") if first else (self._message.index,)
        self._decoder = _decoder(self._message)

    def decode(self, values: pa.Array) -> tuple[pa.Table, pa.Array]:
        """(rows, reasons), see ``connect_json.Body``. A null has no columns: Protobuf's defaults are not sent values."""
        values = values.cast(pa.binary())
        there = ~nulls_of(values)
        reason = pa.nulls(len(values), pa.string())
        if self._framed:
            values, reason = self._without_frame(values)
        found, damaged = self._found(values)
        reason = pc.coalesce(reason, damaged)
        columns = []
        for field in self._free:
            array, why = self._column(found, field)
            columns.append(only_where(there, array))
            reason = reason if why is None else pc.coalesce(reason, why)
        rows = pa.Table.from_arrays(columns, schema=self._free)
        if self._rules.check_texts:
            reason = pc.coalesce(reason, text_faults(rows, self._free, self._facts))
        inside = missing_values(rows, self._schema, np.ones(len(values), np.bool_))
        return rows, pc.coalesce(reason, self._absent(found), inside)

    def _without_frame(self, values: pa.Array) -> tuple[pa.Array, pa.Array]:
        """(messages, why a value has none for this decoder)."""
        lengths = pc.fill_null(pc.binary_length(values), 0).to_numpy()
        longest = int(lengths.max(initial=0)) + 1
        framed = mask_of(pc.starts_with(values, b"\0")) & (lengths >= _MAGIC_BYTES)
        own = np.zeros(len(values), np.bool_)
        made = pa.nulls(len(values), pa.binary())
        for place in self._places:
            end = _MAGIC_BYTES + len(place)
            here = framed & mask_of(pc.equal(pc.binary_slice(values, _MAGIC_BYTES, end), pa.scalar(place, pa.binary())))
            own |= here
            made = pc.if_else(pa.array(here), pc.binary_slice(values, end, max(longest, end)), made)
        text = "not in Confluent's wire format: it does not begin with a zero byte and a schema id"
        other = f"another message of its schema than {self._message.full_name}"
        return made, pc.coalesce(text_where(~framed, text), text_where(~own, other))

    def _found(self, values: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        """(columns of the message, why a value is not one). A null has the columns of an empty message."""
        n = len(values)
        reasons = np.full(n, None, object)
        at: list[npt.NDArray[np.int64]] = []
        batches: list[pa.RecordBatch] = []

        def take(rows: npt.NDArray[np.int64]) -> None:
            mine = values if len(rows) == n else values.take(pa.array(rows))
            try:
                batches.append(self._decoder.array_to_record_batch(mine))
                at.append(rows)
            except ValueError as e:
                if len(rows) == 1:
                    reasons[rows[0]] = f"not a message {self._message.full_name}: {str(e)[:100]}"
                    return
                for half in np.array_split(rows, 2):
                    take(half)

        if n:
            take(np.arange(n))
        if len(at) == 1 and len(at[0]) == n:
            return batches[0], pa.nulls(n, pa.string())
        empty = self._decoder.array_to_record_batch(pa.nulls(1, pa.binary()))
        table = pa.Table.from_batches([*batches, empty]).combine_chunks()
        place = np.full(n, table.num_rows - 1, np.int64)
        if at:
            place[np.concatenate(at)] = np.arange(table.num_rows - 1)
        (batch,) = table.take(pa.array(place)).combine_chunks().to_batches() or [empty.slice(0, 0)]
        return batch, pa.array(reasons, pa.string())

    def _column(self, found: pa.RecordBatch, field: pa.Field) -> Made:
        known = self._facts.get(field.name, NO_FACTS)
        names = (self._names[field.name], *known.aliases)
        node = next((self._nodes[name] for name in names if name in self._nodes), None)
        if node is None:
            return missing(field, known, found.num_rows), None
        array, reason = _shaped(found.column(node.name), node, self._rules)
        made, why = typed(array, field, self._rules, known)
        return made, first_of(reason, why)

    def _absent(self, found: pa.RecordBatch) -> pa.Array:
        """Why a message lacks a required field, whether it is a column or not."""
        reason = pa.nulls(found.num_rows, pa.string())
        for node in self._message.fields:
            if node.required:
                text = f"field {node.name} is required, and the message lacks it"
                reason = pc.coalesce(reason, text_where(nulls_of(found.column(node.name)), text))
        return reason


def _decoder(message: ProtoMessage) -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorProto.FromString(message.wire))
    root = pool.FindMessageTypeByName(ROOT)
    return HandlerPool([root.file], PtarsConfig()).get_for_message(root)


def _shaped(array: pa.Array, node: Node, rules: DecodeRules) -> Made:
    """A column of the decoded message with the values of its Avro schema, and why one is bad."""
    if node.repeated:
        lengths, offsets, inside = parts_of(array)
        values, why = _shaped(inside, replace(node, repeated=False), rules)
        return pa.ListArray.from_arrays(offsets, values), None if why is None else of_whole(why, lengths)
    if node.default is not None:
        array = pc.fill_null(array, node.default)
    if node.kind == "enum":
        return _names_of(array, node)
    if node.kind == "timestamp":
        return _micros(array, node, rules)
    if node.kind == "wrapper":
        return _shaped(pc.struct_field(array, 0), node.children[0], rules)
    if node.kind == "rest":
        name = pa.repeat(pa.scalar(node.message, pa.string()), len(array))
        fields = [pa.field(OVERFLOW_NAME, pa.string()), pa.field(OVERFLOW_BYTES, array.type)]
        return struct_of([name, array], fields, nulls_of(array)), None
    if node.kind == "record":
        return _record(array, node, rules)
    return array, None


def _record(array: pa.StructArray, node: Node, rules: DecodeRules) -> Made:
    arrays: list[pa.Array] = []
    reason: pa.Array | None = None
    absent = nulls_of(array)
    for i, child in enumerate(node.children):
        given = pc.struct_field(array, i)
        values, why = _shaped(given, child, rules)
        arrays.append(values)
        reason = first_of(reason, why)
        if child.required and (lacks := nulls_of(given) & ~absent).any():
            text = f"field {node.name}.{child.name} is required, and the message lacks it"
            reason = first_of(reason, text_where(lacks, text))
    if not arrays:
        return array, None
    fields = [pa.field(child.name, made.type) for child, made in zip(node.children, arrays, strict=True)]
    return struct_of(arrays, fields, absent), reason


def _names_of(array: pa.Array, node: Node) -> Made:
    numbers = pa.array(list(node.symbols), pa.int32())
    place = pc.index_in(array, value_set=numbers)
    names = pa.array(list(node.symbols.values()), pa.string()).take(place)
    unknown = nulls_of(names) & ~nulls_of(array)
    if not unknown.any():
        return names, None
    text = pc.binary_join_element_wise(
        f"field {node.name} has the number ", array.cast(pa.string()), ", which its enum does not have", ""
    )
    return names, only_where(unknown, text)


def _micros(array: pa.StructArray, node: Node, rules: DecodeRules) -> Made:
    """Timestamps as microseconds. Nanoseconds that do not fit are cut off only where the options say so."""
    seconds, nanos = (pc.fill_null(pc.struct_field(array, i), 0).to_numpy() for i in (0, 1))
    there = ~nulls_of(array)
    inside = (seconds >= _FIRST_S) & (seconds <= _LAST_S) & (nanos >= 0) & (nanos < 1_000_000_000)
    lost = np.zeros(len(array), np.bool_) if rules.truncate_times else nanos % 1000 != 0
    micros = np.where(inside, seconds, 0) * 1_000_000 + np.where(inside, nanos, 0) // 1000
    made = pa.array(micros, pa.int64(), mask=~(there & inside & ~lost)).cast(_MICROS)
    if (inside & ~lost)[there].all():
        return made, None
    wrong = text_where(there & ~inside, f"field {node.name} is not a valid Timestamp (years 1 to 9999)")
    text = (
        f"field {node.name} has nanoseconds, which a column of microseconds loses: set tagstream.decode.times=truncate to "
        "cut them off"
    )
    return made, first_of(wrong, text_where(there & lost, text))
